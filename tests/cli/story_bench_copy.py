#!/usr/bin/env python3
"""A rank's copies beside plain ones: every byte is checked, every layout is a figure. What the times are is not asked."""
import json

from story import Story, main

KEYS = ["bench", "machine", "kernel", "threads", "rounds", "seed", "layouts", "figures"]
FIGURE = ["name", "value", "unit", "op", "goal", "met", "lo", "hi"]
MIB = 1 << 20
# Layers x rows x bytes of one token in one layer, and K and V apart in the first.
BLOCK = {"layerfirst": 32 * 16 * 2 * 2048, "packed": 32 * 16 * 4096, "mla": 32 * 16 * 1152}
KINDS = ["ratio", "summed_ratio", "plain_speed", "speed", "summed_speed"]
SMALL = ("bench", "copy", "--size", "8MiB", "--rounds", "3", "--json")
HINT = "\nTry `forebay bench copy --help`.\n"


class BenchCopy(Story):
    def whole(self, text, layouts=tuple(BLOCK), size=8 * MIB, rounds=3):
        """The JSON of a run: its shape, and that all was copied right."""
        out = json.loads(text)
        self.assertEqual(list(out), KEYS)
        self.assertEqual((out["bench"], out["rounds"]), ("copy", rounds))
        for layout, found in zip(layouts, out["layouts"], strict=True):
            blocks = size // BLOCK[layout]
            # Twice all of it, with checksums and without, and in each round a word of each block for both.
            checked = 2 * blocks * BLOCK[layout] + rounds * 2 * blocks * 8
            self.assertEqual(found, {"layout": layout, "blocks": blocks, "block_bytes": BLOCK[layout], "checked_bytes": checked,
                                     "wrong_bytes": 0, "wrong_sums": 0})
        self.assertEqual([figure["name"] for figure in out["figures"]],
                         [f"copy_{layout}_{kind}" for layout in layouts for kind in KINDS])
        for figure in out["figures"]:
            self.assertEqual(list(figure), FIGURE)
            self.assertGreater(figure["value"], 0)
            is_ratio = figure["name"].endswith("ratio")
            self.assertEqual(figure["unit"], "ratio" if is_ratio else "GB/s")
            if is_ratio:
                self.assertTrue(figure["lo"] <= figure["value"] <= figure["hi"], figure)
            else:
                self.assertEqual((figure["lo"], figure["hi"]), (None, None))
        return out

    def goals(self, out):
        for figure in out["figures"]:
            if figure["op"] is not None:
                self.assertEqual((figure["op"], figure["met"]), (">=", figure["value"] >= figure["goal"]))
        return {figure["name"]: figure["goal"] for figure in out["figures"] if figure["op"] is not None}

    def test_every_layout_is_copied_right(self):
        out = self.whole(self.succeeds(*SMALL, "--layouts"))
        self.assertEqual(out["threads"], 2)
        self.assertEqual(self.goals(out), {"copy_layerfirst_ratio": 0.85, "copy_packed_ratio": 0.85, "copy_mla_ratio": 0.85})

    def test_without_layouts_it_is_the_layer_first_one(self):
        out = self.whole(self.succeeds(*SMALL), layouts=["layerfirst"])
        self.assertEqual(list(self.goals(out)), ["copy_layerfirst_ratio"])

    def test_a_size_that_is_no_whole_blocks_is_rounded_down(self):
        size = 9 * MIB + 12345
        self.whole(self.succeeds(*SMALL, "--layouts", "--size", str(size)), size=size)

    def test_goals_are_those_of_two_threads(self):
        for threads in ("1", "3"):
            out = self.whole(self.succeeds(*SMALL, "--threads", threads), layouts=["layerfirst"])
            self.assertEqual((out["threads"], self.goals(out)), (int(threads), {}))

    def test_the_tables_say_what_was_compared(self):
        lines = self.succeeds(*(word for word in SMALL if word != "--json"), "--layouts", "--seed", "7").splitlines()
        self.assertTrue(lines[0].startswith("Machine: "))
        self.assertRegex(lines[1], r"^Threads: 2; stores: \w+; 3 rounds and one to warm up, seed 7\.$")
        self.assertEqual([line.split()[:5] for line in lines[4:7]],
                         [["layerfirst", "4", "x", "2.00", "MiB"], ["packed", "4", "x", "2.00", "MiB"], ["mla", "14", "x", "0.56", "MiB"]])
        self.assertTrue(lines[8].startswith("figure "))
        self.assertEqual([line.split()[0] for line in lines[9:]], [f"copy_{layout}_{kind}" for layout in BLOCK for kind in KINDS])

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, message in [
            (("--size", "1MiB"), '--size: "1MiB" is too small; accepted: a size from 8MiB to 1024TiB, such as 512MiB'),
            (("--threads", "0"), '--threads: "0" is too small; accepted: a whole number from 1 to 256'),
            (("--rounds", "x"), '--rounds: "x" is not a whole number; accepted: a whole number from 1 to 10000'),
        ]:
            with self.subTest(arguments):
                self.assertEqual(self.fails(2, f"forebay bench copy: {message}{HINT}", "bench", "copy", *arguments), "")

    def test_a_size_that_the_machine_lacks_is_said(self):
        done = self.run_forebay("bench", "copy", "--size", "1024TiB")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("forebay bench copy: "), done.stderr)

    def test_it_is_listed_and_explained(self):
        self.assertIn("\n  copy ", self.succeeds("bench", "--help"))
        self.assertIn("\nExamples:\n  forebay bench copy --layouts\n", self.succeeds("bench", "copy", "--help"))


if __name__ == "__main__":
    main()
