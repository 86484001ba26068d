#!/usr/bin/env python3
"""The tour: twelve ways of fetching a prefix back, every byte compared, and nothing left behind."""
import json
import os

from story import Story, main

POLICIES = ["wait_complete", "timeout", "best_effort", "break_even"]
STOP_MODES = ["drain", "recall", "detach"]
KEYS = ["policy", "stop_mode", "outcome", "reason", "found_tokens", "planned_tokens", "loaded_tokens", "delivered_tokens",
        "graphs_submitted", "graphs_at_seal", "stop_to_answer_us", "verified"]
QUICK = ("demo", "--queue", "0", "--tokens", "1024", "--json")
HINT = "\nTry `forebay demo --help`.\n"
ACCEPTED = "mem, file:DIRECTORY, DRIVER[@HOST]:key=value,key=value, fault:DRIVER:key=value,..., or env"


class Demo(Story):
    def runs(self, out):
        out = json.loads(out)
        self.assertEqual(list(out), ["store", "runs"])
        for run in out["runs"]:
            self.assertEqual(list(run), KEYS)
        self.assertEqual([(run["policy"], run["stop_mode"]) for run in out["runs"]],
                         [(policy, mode) for policy in POLICIES for mode in STOP_MODES])
        return out["runs"]

    def test_every_byte_comes_back_right_and_the_scratch_directory_goes(self):
        scratch = self.path / "scratch"
        scratch.mkdir()
        runs = self.runs(self.succeeds("demo", "--json", environment={"TMPDIR": str(scratch)}))
        for run in runs:
            self.assertTrue(run["verified"], run)
            self.assertEqual(run["graphs_submitted"], run["graphs_at_seal"], run)
            self.assertLessEqual(run["delivered_tokens"], run["planned_tokens"], run)
            self.assertLessEqual(run["planned_tokens"], run["found_tokens"], run)
            self.assertLessEqual(run["found_tokens"], 8176, run)
            self.assertEqual(run["loaded_tokens"], run["delivered_tokens"], run)
        for run in runs[:3]:
            self.assertEqual((run["outcome"], run["reason"], run["delivered_tokens"], run["graphs_submitted"]),
                             ("complete", "complete", 8176, 16))
        self.assertEqual(list(scratch.iterdir()), [])

    def test_a_spent_budget_loads_nothing(self):
        for run in self.runs(self.succeeds(*QUICK, "--store", "mem")):
            if run["policy"] == "timeout":
                self.assertEqual((run["outcome"], run["reason"], run["delivered_tokens"], run["graphs_submitted"]),
                                 ("empty", "deadline", 0, 0))

    def test_the_table_says_what_to_look_at(self):
        lines = self.succeeds("demo", "--queue", "0", "--tokens", "1024", "--store", "mem").splitlines()
        self.assertEqual(lines[0], "Store: mem")
        table = lines[lines.index("") + 1:]
        self.assertTrue(table[0].startswith("policy         stop mode  reason "), table[0])
        self.assertEqual([line.split()[:2] for line in table[1:13]], [[p, m] for p in POLICIES for m in STOP_MODES])
        self.assertTrue(table[1].endswith(" 1.0 MiB"), table[1])
        self.assertEqual(" ".join(table[13:]).count("Compare `"), 2)

    def test_corrupt_bytes_are_not_delivered(self):
        done = self.run_forebay(*QUICK, "--store", "fault:mem:script=get:*:corrupt(9)")
        self.assertEqual(done.returncode, 0)
        runs = self.runs(done.stdout)
        for run in runs:
            self.assertEqual((run["verified"], run["delivered_tokens"]), (True, 0), run)
        self.assertEqual(runs[0]["reason"], "partial_read")

    def test_wrong_bytes_fail_the_command(self):
        """With the library's own check off, only the demo's comparison is left."""
        done = self.run_forebay(*QUICK, "--store", "fault:mem:script=get:*:corrupt(9)",
                                environment={"FOREBAY_STORE_VERIFY": "off"})
        self.assertEqual((done.returncode, done.stderr),
                         (1, "forebay demo: 63 delivered blocks of policy wait_complete with stop mode drain are not what was "
                             "stored\n"))
        self.assertFalse(self.runs(done.stdout)[0]["verified"])

    def test_a_store_of_ones_own_keeps_the_prefix(self):
        directory = self.path / "store"
        out = self.succeeds(*QUICK, "--store", "env", environment={"FOREBAY_STORE": f"file:{directory}"})
        self.assertEqual(json.loads(out)["store"], f"file:{directory}")
        self.assertEqual([run["verified"] for run in self.runs(out)], [True] * 12)
        verdict = json.loads(self.succeeds("store", "verify", str(directory), "--json"))
        self.assertEqual((verdict["objects"], verdict["good"]), (64, 64))

    def test_a_store_that_is_too_small_is_said(self):
        done = self.run_forebay(*QUICK, "--store", "mem:capacity=100KiB")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^forebay demo: the store mem:capacity=100KiB took \d+ of 64 blocks, \d+ failed\n$")

    def test_wrong_stores_are_refused_by_name(self):
        self.fails(2, f'forebay demo: --store: store "mem:x": "x" is not key=value; accepted: {ACCEPTED}' + HINT, "demo",
                   "--store", "mem:x")
        self.fails(2, f'forebay demo: --store: store "env" reads FOREBAY_STORE, which holds no store; accepted: {ACCEPTED}' + HINT,
                   "demo", "--store", "env")
        self.fails(2, 'forebay demo: --tokens: "100" is too small; accepted: a whole number from 256 to 131072' + HINT, "demo",
                   "--tokens", "100")
        done = self.run_forebay("demo", "--store", "nosuch")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nosuch", done.stderr)

    def test_it_explains_itself_with_examples(self):
        text = self.succeeds("demo", "--help")
        self.assertTrue(text.startswith("Usage: forebay demo [options]\n"), text)
        self.assertIn("\nExamples:\n  forebay demo\n", text)

    def test_without_a_place_for_the_scratch_directory(self):
        done = self.run_forebay("demo", environment={"TMPDIR": str(self.path / "nowhere")})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f'forebay demo: no directory can be made in "{self.path}/nowhere": No such file or directory; '
                                      "accepted: a TMPDIR that can be written to\n")
        self.assertEqual(os.listdir(self.path), [])


if __name__ == "__main__":
    main()
