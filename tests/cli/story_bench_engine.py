#!/usr/bin/env python3
"""What an interpreter measures inside an engine: how it is asked, what it says in JSON, and what is said when it cannot.

The interpreters here are scripts. The measuring itself has tests of its own, where vLLM is.
"""
import json
import sys

from story import Story, main

HINT = "\nTry `forebay bench engine --help`.\n"
ADVICE = ("scripts/install-engine vllm makes an environment with vLLM, and scripts/with-engine vllm COMMAND runs a command in it, "
          "with forebay: --python python is then its interpreter\n")
SAID = """fact\tengine\tvllm 1.2.3
fact\tmodel\tgemma "3"
note\tvs_builtin_ratio: none runs here
figure\tmatch_call_us\t1.5\tus\t<=\t5\t1.25\t1.75
figure\tsave_overhead_ratio\t0.5\t\t>=\t0.97\t0.25\t1e0
figure\tvs_builtin_ratio\t-\t\t<=\t1\t-\t-
figure\tplain_tokens_per_s\t1234.5\t1/s\t-\t-\t-\t-
end
"""
FIGURES = [
    {"name": "match_call_us", "value": 1.5, "unit": "us", "op": "<=", "goal": 5, "met": True, "lo": 1.25, "hi": 1.75},
    {"name": "save_overhead_ratio", "value": 0.5, "unit": "", "op": ">=", "goal": 0.97, "met": False, "lo": 0.25, "hi": 1},
    {"name": "vs_builtin_ratio", "value": None, "unit": "", "op": None, "goal": None, "met": None, "lo": None, "hi": None},
    {"name": "plain_tokens_per_s", "value": 1234.5, "unit": "1/s", "op": None, "goal": None, "met": None, "lo": None,
     "hi": None},
]


class BenchEngine(Story):
    def python(self, measuring, check="exit 0"):
        """An interpreter that answers the question for packages with `check`, and measures with `measuring`."""
        path = self.path / "python"
        path.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then {check}; fi\n{measuring}\n')
        path.chmod(0o755)
        return str(path)

    def saying(self, text):
        (self.path / "said").write_text(text)
        return self.python(f'echo "$@" > "{self.path}/asked"\ncat "{self.path}/said"')

    def refused(self, message, python, *more):
        self.assertEqual(self.fails(1, f"forebay bench engine: {message}", "bench", "engine", "--tiny", "--python", python, *more), "")

    def test_what_it_says_stands_in_the_commands_own_form(self):
        python = self.saying(SAID)
        out = json.loads(self.succeeds("bench", "engine", "--tiny", "--json", "--python", python))
        self.assertEqual(list(out), ["bench", "machine", "rounds", "seed", "engine", "model", "notes", "figures"])
        self.assertEqual((out["bench"], out["rounds"], out["seed"], out["engine"], out["model"], out["notes"]),
                         ("engine", 9, 1, "vllm 1.2.3", 'gemma "3"', ["vs_builtin_ratio: none runs here"]))
        self.assertIn(" cores, ", out["machine"])
        self.assertEqual(out["figures"], FIGURES)
        self.assertEqual([list(figure) for figure in out["figures"]], [list(figure) for figure in FIGURES])

    def test_people_get_a_table_of_what_was_measured(self):
        out = self.succeeds("bench", "engine", "--tiny", "--python", self.saying(SAID))
        machine, rounds, *rest = out.splitlines()
        self.assertTrue(machine.startswith("Machine: "))
        self.assertEqual(rounds, "Rounds: 9, and one to warm up")
        self.assertEqual(rest[:4], ["Engine: vllm 1.2.3", 'Model: gemma "3"', "Note: vs_builtin_ratio: none runs here", ""])
        rows = {line.split()[0]: line.split()[1:] for line in rest[5:] if line and not line.startswith("95 %")}
        self.assertEqual(rows.get("match_call_us"), ["1.5000", "us", "<=", "5", "met"])
        self.assertEqual(rows.get("save_overhead_ratio"), ["0.5000", ">=", "0.97", "NOT", "MET"])
        self.assertEqual(rows.get("plain_tokens_per_s"), ["1234.5000", "1/s"])
        self.assertNotIn("vs_builtin_ratio", rows)
        self.assertEqual(rest[-1], "95 % intervals: match_call_us [1.25, 1.75], save_overhead_ratio [0.25, 1]")

    def test_it_is_asked_with_the_commands_options(self):
        python = self.saying("end\n")
        for arguments, asked in (
            (("--tiny",), "--tiny --rounds 9 --tokens 2000 --block-tokens 32 --seed 1"),
            (("--model", "m", "--rounds", "3", "--tokens", "100", "--block-tokens", "128", "--seed", "18446744073709551615",
              "--threads", "2", "--dtype", "bfloat16"),
             "--model m --rounds 3 --tokens 100 --block-tokens 128 --seed 18446744073709551615 --threads 2 --dtype bfloat16"),
        ):
            self.succeeds("bench", "engine", "--python", python, *arguments)
            self.assertEqual((self.path / "asked").read_text(), f"-m forebay.engines.bench --lines {asked}\n")

    def test_a_missing_package_is_named_and_what_to_do(self):
        for name in ("vllm", "forebay"):
            python = self.python("exit 0", check=f"echo {name}; exit 3")
            self.refused(f"{python} has no package {name}; {ADVICE}", python)
        self.refused(f"/no/such cannot be run; {ADVICE}", "/no/such")

    def test_this_interpreter_says_which_package_it_lacks(self):
        # The question itself is Python: one without the packages answers it, whatever else is installed.
        bare = self.python("exit 9", check=f'exec "{sys.executable}" -I -S "$@"')
        self.refused(f"{bare} has no package vllm; {ADVICE}", bare)
        site = self.path / "site"
        (site / "vllm").mkdir(parents=True)
        (site / "vllm" / "__init__.py").write_text("raise SystemExit('it was imported')\n")
        there = self.python("exit 9", check=f'PYTHONPATH="{site}" exec "{sys.executable}" -S "$@"')
        self.refused(f"{there} has no package forebay; {ADVICE}", there)

    def test_an_interpreter_that_fails_is_said(self):
        python = self.python("echo it says why >&2; exit 1")
        done = self.run_forebay("bench", "engine", "--tiny", "--python", python)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", f"it says why\nforebay bench engine: {python} ended with status 1; it says why above\n"))
        python = self.python("kill -9 $$")
        self.refused(f"{python} was ended by signal 9\n", python)

    def test_what_is_no_benchmark_is_refused(self):
        for text in ("hello", "figure\tx\t1", "figure\tx\tone\tus\t-\t-\t-\t-", "figure\tx\t1\tus\t<\t2\t-\t-", "fact\tx", "note"):
            with self.subTest(text):
                said = text.partition("\t")[0]
                self.refused(f'line 2 of what the interpreter printed is none of a benchmark\'s: "{said}"\n',
                             self.saying(f"note\tx\n{text}\nend\n"))
        self.refused("the interpreter printed no end: it is not known whether it has measured everything\n",
                     self.saying(SAID.removesuffix("end\n")))

    def test_a_model_is_asked_for(self):
        accepted = "accepted: --model DIR, a directory with a model as vLLM loads it, or --tiny"
        for arguments, wrong in (((), "--model is missing"), (("--tiny", "--model", "m"), "--model and --tiny are both given")):
            self.assertEqual(self.fails(2, f"forebay bench engine: {wrong}; {accepted}{HINT}", "bench", "engine", *arguments), "")

    def test_it_is_listed_and_explained(self):
        self.assertIn("\n  engine ", self.succeeds("bench", "--help"))
        self.assertIn("\nExamples:\n  scripts/with-engine vllm build/forebay bench engine ", self.succeeds("bench", "engine", "--help"))


if __name__ == "__main__":
    main()
