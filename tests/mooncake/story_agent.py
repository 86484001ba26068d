"""Runs the tests of the wheel's agent inside with-store: once with a lease that suits them, once with one that is too short.

    story_agent.py PROGRAM [ARGUMENT...]      arguments: only this run

Exit 77 when Mooncake's wheel cannot be installed here.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNAVAILABLE, SKIP = 69, 77
RUNS = ((2000, ()), (1, ("lease",)))


def run(lease_ms, command):
    words = ["mooncake", "--size", "256MiB", "--set", f"default_kv_lease_ttl={lease_ms}", "--", *command]
    code = subprocess.run([ROOT / "scripts/with-store", *words]).returncode
    if code == UNAVAILABLE:
        print("Mooncake's wheel cannot be installed here: see the reason above")
        sys.exit(SKIP)
    return code


def main():
    program = os.path.abspath(sys.argv[1])
    return any([run(lease_ms, [program, *arguments]) for lease_ms, arguments in RUNS])


if __name__ == "__main__":
    sys.exit(main())
