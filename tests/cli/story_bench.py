#!/usr/bin/env python3
"""The comparison: the same prompts read in every way, counted and checked; and what makes it fail."""
import json
import pathlib
import sys

from story import Story, main

NATIVE = pathlib.Path(__file__).resolve().parent / "native_program.py"
ARMS = ["native", "whole", "one_graph", "chunk128", "chunk32"]
LOADS = ["serial", "8", "32"]
KEYS = ["bench", "machine", "store", "load", "rounds", "tokens", "blocks", "block_bytes", "seed", "native", "ratios", "ttft_ms",
        "graphs", "wrong_blocks", "checked_bytes", "mib_per_s", "cpu_s_per_gib", "context_switches_per_gib", "wakes_per_gib",
        "stops", "orders", "figures"]
PAIRS = [("one_graph", "whole"), ("chunk128", "whole"), ("chunk32", "whole"), ("whole", "native"), ("one_graph", "native"),
         ("chunk128", "native"), ("chunk32", "native")]
FIGURE = ["name", "value", "unit", "op", "goal", "met", "lo", "hi"]
# 256 blocks of 1 KiB: 2 graphs of 128, 8 of 32.
SMALL = ("bench", "compare", "--tokens", "4096", "--block-tokens", "16", "--block-bytes", "1KiB", "--rounds", "2", "--requests", "2",
         "--json")
TINY = ("bench", "compare", "--tokens", "64", "--block-tokens", "4", "--block-bytes", "256B", "--rounds", "1", "--requests", "2",
        "--load", "serial", "--json", "--store", "mem")
HINT = "\nTry `forebay bench compare --help`.\n"
ACCEPTED = "mem, file:DIRECTORY, DRIVER[@HOST]:key=value,key=value, fault:DRIVER:key=value,..., or env"


def native(manner):
    return f"exec {sys.executable} {NATIVE} {manner}"


class Bench(Story):
    def whole(self, out, arms=ARMS, loads=LOADS):
        """The JSON of a run, its shape checked."""
        out = json.loads(out)
        self.assertEqual(list(out), [key for key in KEYS if key != "native" or "native" in arms])
        self.assertEqual((out["bench"], out["load"], out["wrong_blocks"]), ("compare", loads, 0))
        self.assertEqual([(r["load"], r["arm"], r["base"]) for r in out["ratios"]],
                         [(load, arm, base) for load in loads for arm, base in PAIRS if arm in arms and base in arms])
        for ratio in out["ratios"]:
            self.assertLessEqual(ratio["lo"], ratio["median"])
            self.assertLessEqual(ratio["median"], ratio["hi"])
        for figure in out["figures"]:
            self.assertEqual(list(figure), FIGURE)
            if figure["value"] is None:  # of a stop that found nothing begun there is no ratio
                self.assertIn(figure["met"], (False, None), figure)
            elif figure["op"] == ">=":
                self.assertEqual(figure["met"], figure["value"] >= figure["goal"], figure)
            elif figure["op"] == "<=":
                self.assertEqual(figure["met"], figure["value"] <= figure["goal"], figure)
            else:
                self.assertEqual((figure["op"], figure["goal"], figure["met"]), (None, None, None))
        for name in ("mib_per_s", "cpu_s_per_gib", "context_switches_per_gib", "wakes_per_gib"):
            self.assertEqual([(arm, list(cells)) for arm, cells in out[name].items()], [(arm, loads) for arm in arms])
        for order in (order for load in loads for order in out["orders"][load]):
            self.assertEqual(sorted(order), sorted(arms))
        return out

    def test_every_arm_reads_the_same_from_memory(self):
        out = self.whole(self.succeeds(*SMALL, "--store", "mem", "--stops", "0"))
        requests = 3 * (2 + 8 + 32)  # two rounds and the one that warms up
        self.assertEqual(out["graphs"], {arm: {"expected": graphs * requests, "counted": graphs * requests} for arm, graphs in
                                         [("whole", 1), ("one_graph", 1), ("chunk128", 2), ("chunk32", 8)]})
        self.assertEqual(list(out["ttft_ms"]), ARMS)
        self.assertEqual(out["checked_bytes"], len(ARMS) * (2 + 8 + 32) * 256 * 1024)
        self.assertEqual({load: len(orders) for load, orders in out["orders"].items()}, dict.fromkeys(LOADS, 3))
        self.assertEqual(out["stops"], {})
        self.assertEqual(len(out["figures"]), 4 * 3 + 1)
        self.assertEqual(out["store"], "mem")

    def test_and_from_a_directory(self):
        directory = self.path / "store"
        out = self.whole(self.succeeds(*SMALL, "--store", f"file:{directory}", "--load", "serial,8", "--stops", "0"),
                         loads=["serial", "8"])
        self.assertEqual(out["graphs"]["chunk32"], {"expected": 240, "counted": 240})
        verdict = json.loads(self.succeeds("store", "verify", str(directory), "--json"))
        self.assertEqual((verdict["objects"], verdict["good"]), (32 * 256, 32 * 256))

    def test_a_second_run_finds_the_prompts(self):
        directory = self.path / "store"
        for _ in range(2):
            self.succeeds(*SMALL, "--store", f"file:{directory}", "--load", "serial", "--arms", "chunk32", "--stops", "0")
        verdict = json.loads(self.succeeds("store", "verify", str(directory), "--json"))
        self.assertEqual((verdict["objects"], verdict["good"]), (32 * 256, 32 * 256))

    def test_one_seed_gives_one_order(self):
        def orders(seed):
            return self.whole(self.succeeds(*TINY, "--rounds", "9", "--stops", "0", "--seed", seed), loads=["serial"])["orders"]
        self.assertEqual(orders("5"), orders("5"))
        self.assertNotEqual(orders("5"), orders("6"))

    def test_sessions_are_stopped_in_every_way(self):
        out = self.whole(self.succeeds(*SMALL, "--store", "mem", "--load", "serial", "--arms", "whole", "--stops", "2"),
                         arms=["whole"], loads=["serial"])
        self.assertEqual(list(out["stops"]), ["drain", "recall", "detach"])
        self.assertEqual(list(out["stops"]["drain"]), ["stops", "p50_ms", "p99_ms"])
        self.assertEqual(list(out["stops"]["recall"]), ["stops", "p50_ms", "p99_ms", "begun_p50_ms", "begun_ratio"])
        self.assertEqual([f["name"] for f in out["figures"]],
                         [f"stop to answer, {name}" for name in ("drain, p50", "drain, p99", "recall, p50", "recall, p99",
                                                                 "recall/what was begun", "detach, p50", "detach, p99")])

    def test_a_slow_store_can_be_named(self):
        out = self.whole(self.succeeds(*TINY, "--arms", "whole", "--stops", "1", "--slow", "fault:mem:name=forebay-bench,latency_ms=1"),
                         arms=["whole"], loads=["serial"])
        self.assertEqual(list(out["stops"]), ["drain", "recall", "detach"])

    def test_the_native_client_can_be_a_program(self):
        out = self.whole(self.succeeds(*TINY, "--load", "serial,8", "--stops", "0", "--native", native("good")),
                         loads=["serial", "8"])
        self.assertEqual(out["native"], "the client's batch call in a process of its own")

    def test_wrong_bytes_fail_the_command(self):
        done = self.run_forebay(*TINY, "--arms", "native,whole", "--stops", "0", "--native", native("stale"))
        self.assertEqual((done.returncode, done.stderr),
                         (1, "forebay bench compare: 64 blocks are not what was stored\n"))
        self.assertEqual(json.loads(done.stdout)["wrong_blocks"], 64)  # 2 rounds x 2 requests x 16 blocks

    def test_another_count_of_graphs_fails_it_too(self):
        """A quarter of this budget, the share of a chunk, is 64 blocks."""
        done = self.run_forebay(*SMALL, "--store", "mem", "--load", "serial", "--arms", "chunk128,chunk32", "--stops", "0", "--set",
                                "prefetch.max_reserved_bytes=1MiB", "--block-bytes", "4KiB")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "forebay bench compare: arm chunk128: 24 graphs were counted, 12 were expected\n"))
        self.assertEqual(json.loads(done.stdout)["graphs"]["chunk32"], {"expected": 48, "counted": 48})

    def test_a_client_that_fails_is_said(self):
        self.fails(1, "forebay bench compare: the native client: it does not want to\n", *TINY, "--native", native("refuses"))
        self.fails(1, "forebay bench compare: arm native: the native client: object 7 is gone\n", *TINY, "--native", native("fails"))
        self.fails(1, "forebay bench compare: the native client ended without an answer; what it said is above\n", *TINY, "--native",
                   "exit 3")

    def test_a_store_that_is_too_small_is_said(self):
        done = self.run_forebay(*SMALL, "--store", "mem:capacity=100KiB")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^forebay bench compare: the store took \d+ of the 256 blocks of prompt 1 of 32; it needs "
                                      r"room for 9 MiB\n$")

    def test_the_tables_say_what_was_compared(self):
        lines = self.succeeds(*(word for word in SMALL if word != "--json"), "--store", "mem", "--stops", "1").splitlines()
        self.assertEqual(lines[0], "Store: mem")
        self.assertTrue(lines[1].startswith("Machine: "))
        self.assertEqual(lines[2:4], ["Native: the driver's blocking batch call",
                                      "Prompts of 4096 tokens: 256 blocks of 1024 bytes, 0.2 MiB. 2 rounds and one to warm up, "
                                      "seed 1."])
        self.assertTrue(lines[5].startswith("load    arm "))
        self.assertEqual([line.split()[:2] for line in lines[6:21]], [[load, arm] for load in LOADS for arm in ARMS])
        self.assertEqual(lines[22], "Graphs, counted of expected: whole 126 of 126; one_graph 126 of 126; chunk128 252 of 252; "
                                    "chunk32 1008 of 1008; wrong blocks: 0")
        self.assertTrue(lines[24].startswith("figure "))

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, message in [
            ((), f"--store is missing; accepted: {ACCEPTED}"),
            (("--store", "mem:x"), f'--store: store "mem:x": "x" is not key=value; accepted: {ACCEPTED}'),
            (("--store", "mem", "--load", "9"), '--load: "9" is not known; accepted: some, separated by commas, of serial, 8, 32'),
            (("--store", "mem", "--arms", "all"), '--arms: "all" is not known; accepted: some, separated by commas, of native, whole, '
                                                  'one_graph, chunk128, chunk32'),
            (("--store", "mem", "--rounds", "0"), '--rounds: "0" is too small; accepted: a whole number from 1 to 10000'),
            (("--store", "mem", "--tokens", "100"), "--tokens is not a multiple of --block-tokens, or more than 4096 of them"),
            (("--store", "mem", "--set", "store.verify"), "--set has no '='; accepted: --set KEY=VALUE"),
            (("--store", "mooncake", "--stops", "3"), "--stops: this store cannot be slowed from here; accepted: --slow STORE, the same "
                                                      "store behind a slow link, or --stops 0"),
            (("--store", "mem", "--slow", "mem:y"), f'--slow: store "mem:y": "y" is not key=value; accepted: {ACCEPTED}'),
        ]:
            with self.subTest(arguments):
                self.assertEqual(self.fails(2, f"forebay bench compare: {message}{HINT}", "bench", "compare", *arguments), "")

    def test_it_lists_its_benches(self):
        text = self.succeeds("bench", "--help")
        self.assertTrue(text.startswith("Usage: forebay bench COMMAND [options]\n"), text)
        self.assertIn("\n  compare ", text)
        self.assertIn("\nExamples:\n  forebay bench compare ", self.succeeds("bench", "compare", "--help"))


if __name__ == "__main__":
    main()
