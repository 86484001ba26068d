#!/usr/bin/env python3
"""The command as a newcomer meets it: help, versions, slips of the hand, exit codes."""
import re

from story import ROOT, Story, main

COMMANDS = re.findall(r'X\("([a-z]+)", fby_cmd_', (ROOT / "src/cli/commands.h").read_text())


class Main(Story):
    def test_without_a_command_it_says_how_to_use_it(self):
        done = self.run_forebay()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        for command in COMMANDS:
            self.assertRegex(done.stderr, rf"(?m)^  {command} ")

    def test_help_goes_to_stdout(self):
        for word in ("--help", "-h", "help"):
            self.assertIn("Usage: forebay COMMAND", self.succeeds(word))

    def test_version(self):
        header = (ROOT / "include/forebay/forebay.h").read_text()
        numbers = [re.search(rf"FBY_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(self.succeeds("--version"), f"forebay {'.'.join(numbers)}\n")

    def test_a_slip_is_answered_with_the_nearest_command(self):
        self.fails(2, 'forebay: unknown command "confg"; did you mean config?\n', "confg")
        self.fails(2, 'forebay trace: unknown command "inof"; did you mean info?\n', "trace", "inof")
        self.fails(2, 'forebay config: unknown command "zzzzzz"; accepted: check, show\n', "config", "zzzzzz")

    def test_options_are_checked(self):
        hint = "\nTry `forebay trace info --help`.\n"
        self.fails(2, "forebay trace info: an argument is missing; accepted: FILE" + hint, "trace", "info")
        self.fails(2, 'forebay trace info: "b" is one argument too many; accepted: FILE' + hint, "trace", "info", "a", "b")
        self.fails(2, "forebay trace info: unknown option --lro; did you mean --lru?" + hint, "trace", "info", "x", "--lro=3")
        self.fails(2, "forebay trace info: unknown option -q" + hint, "trace", "info", "x", "-q")
        self.fails(2, "forebay trace info: --lru needs a value" + hint, "trace", "info", "x", "--lru")
        self.fails(2, "forebay trace info: --json=yes takes no value" + hint, "trace", "info", "x", "--json=yes")
        self.fails(2, 'forebay trace info: --lru: "10,x" is not a whole number; accepted: 1 to 64 whole numbers from 1 to '
                      "100000000, separated by commas" + hint, "trace", "info", "x", "--lru", "10,x")

    def test_every_command_explains_itself_with_examples(self):
        leaves = [("trace", "gen"), ("trace", "info"), ("config", "check"), ("config", "show"), ("store", "ls"),
                  ("store", "verify"), ("store", "gc"), ("stat",), ("top",), ("bench", "server"), ("bench", "copy"),
                  ("bench", "engine"), ("doctor",)]
        for leaf in leaves:
            text = self.succeeds(*leaf, "--help")
            self.assertTrue(text.startswith(f"Usage: forebay {' '.join(leaf)}"), text)
            self.assertIn("\nExamples:\n  ", text)
            self.assertIn("--json", text)

    def test_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w") as full:
            self.fails(1, "forebay: the output could not be written: No space left on device\n", "trace", "gen", stdout=full)


if __name__ == "__main__":
    main()
