"""What the stories of the command share: running it, and comparing exit code, stdout and stderr exactly."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_NAMED = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ.get("FOREBAY_EXE", "")
FOREBAY = os.path.abspath(_NAMED) if _NAMED else ""  # stories run it in directories of their own
LIMIT_S = 60


def traces():
    """The directory of the public traces, or None."""
    path = pathlib.Path(os.environ.get("FOREBAY_TRACES", ROOT.parent / "shared" / "data"))
    return path if (path / "mooncake_conversation.jsonl").is_file() else None


class Story(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="forebay-story-")
        self.addCleanup(self.directory.cleanup)
        self.path = pathlib.Path(self.directory.name)

    def file(self, name, text):
        path = self.path / name
        path.write_text(text)
        return str(path)

    def run_forebay(self, *arguments, environment=None, stdout=subprocess.PIPE, under=()):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_")}
        return subprocess.run([*under, FOREBAY, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                              env={**clean, **(environment or {})}, cwd=self.path)

    def succeeds(self, *arguments, **more):
        done = self.run_forebay(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def fails(self, code, stderr, *arguments, **more):
        done = self.run_forebay(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (code, stderr))
        return done.stdout


def main():
    if not FOREBAY:
        print("usage: STORY.py PATH-OF-FOREBAY")
        sys.exit(2)
    unittest.main(verbosity=2)
