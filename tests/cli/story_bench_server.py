#!/usr/bin/env python3
"""What a server costs: every figure is there, nothing is left behind. What the times are is not asked."""
import json
import os
import signal
import subprocess

from story import FOREBAY, Story, main

KEYS = ["bench", "machine", "rounds", "samples", "clients", "seed", "python_note", "figures"]
FIGURE = ["name", "value", "unit", "op", "goal", "met", "lo", "hi"]
SMALL = ("bench", "server", "--clients", "3", "--rounds", "2", "--samples", "20", "--idle", "0.05", "--load", "0.05")
HINT = "\nTry `forebay bench server --help`.\n"


class BenchServer(Story):
    def here(self, *arguments):
        """Runs it with its directories below this story's; nothing is in them afterwards."""
        scratch = self.path / "tmp"
        scratch.mkdir(exist_ok=True)
        out = self.succeeds(*arguments, environment={"TMPDIR": str(scratch)})
        self.assertEqual(os.listdir(scratch), [])
        return out

    def python(self, text):
        path = self.path / "python"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def test_every_figure_is_there(self):
        out = json.loads(self.here(*SMALL, "--json"))
        self.assertEqual(list(out), KEYS)
        self.assertEqual((out["bench"], out["rounds"], out["samples"], out["clients"], out["seed"], out["python_note"]),
                         ("server", 2, 20, 3, 1, "no --python was given"))
        figures = {figure["name"]: figure for figure in out["figures"]}
        self.assertEqual(list(figures), ["client_poll_p50_us", "client_call_p50_us", "client_call_p999_us", "calls_per_s_3_clients",
                                         "idle_wakes_0.05s"])
        for figure in out["figures"]:
            self.assertEqual(list(figure), FIGURE)
            self.assertGreaterEqual(figure["value"], 0)
        for name, goal in (("client_poll_p50_us", 0.2), ("client_call_p50_us", 40)):
            one = figures[name]
            self.assertTrue(0 < one["lo"] <= one["value"] <= one["hi"], one)
            self.assertEqual((one["op"], one["goal"], one["met"]), ("<=", goal, one["value"] <= goal))
        self.assertGreater(figures["calls_per_s_3_clients"]["value"], 0)
        self.assertEqual([name for name, one in figures.items() if one["goal"] is not None],
                         ["client_poll_p50_us", "client_call_p50_us"])

    def test_what_an_interpreter_says_is_taken(self):
        # It gets the socket of a server that answers, and the numbers to measure with.
        python = self.python(f'test "$1" = -c || exit 1\n"{FOREBAY}" stat "$3" > /dev/null || exit 1\necho "$4.5 0.$5"\n')
        out = json.loads(self.here(*SMALL, "--json", "--python", python))
        figures = {figure["name"]: figure for figure in out["figures"]}
        self.assertIsNone(out["python_note"])
        self.assertEqual((figures["python_poll_p50_us"]["value"], figures["python_start_p50_us"]["value"]), (20.5, 0.1025))
        self.assertEqual((figures["python_poll_p50_us"]["goal"], figures["python_poll_p50_us"]["met"]), (2, False))

    def test_an_interpreter_without_the_package_is_said(self):
        for text, note in (("echo 'No module named forebay'; exit 3\n", "has no package: No module named forebay"),
                           ("exit 1\n", "ended with status 1; it says why above"), ("kill -9 $$\n", "was ended by a signal")):
            python = self.python(text)
            out = json.loads(self.here(*SMALL, "--json", "--python", python))
            self.assertEqual(out["python_note"], f"{python} {note}")
            self.assertNotIn("python_poll_p50_us", [figure["name"] for figure in out["figures"]])
        self.assertIn("\nPython: not measured: /no/such cannot be run\n", self.here(*SMALL, "--python", "/no/such"))

    def test_an_interrupted_run_leaves_nothing(self):
        scratch = self.path / "tmp"
        scratch.mkdir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_")}
        command = [FOREBAY, *SMALL, "--rounds", "10000", "--samples", "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**clean, "TMPDIR": str(scratch)}) as bench:
            while not list(scratch.glob("*/s")):
                pass
            bench.send_signal(signal.SIGINT)
            out, err = bench.communicate(timeout=60)
        self.assertEqual((bench.returncode, out), (1, ""))
        self.assertTrue(err.startswith("forebay bench server: "), err)
        self.assertEqual(os.listdir(scratch), [])

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, message in ((("--clients", "257"), '--clients: "257" is too large; accepted: a whole number from 1 to 256'),
                                   (("--load", "0"), "--load is 0; accepted: seconds above 0")):
            with self.subTest(arguments):
                self.assertEqual(self.fails(2, f"forebay bench server: {message}{HINT}", "bench", "server", *arguments), "")

    def test_it_is_listed_and_explained(self):
        self.assertIn("\n  server ", self.succeeds("bench", "--help"))
        self.assertIn("\nExamples:\n  forebay bench server\n", self.succeeds("bench", "server", "--help"))


if __name__ == "__main__":
    main()
