"""The command ``forebay`` of the package: the program that was built with it takes this process over."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Executes the program with the same arguments; does not come back."""
    program = pathlib.Path(__file__).parent / "bin" / "forebay"
    os.execv(program, ["forebay", *sys.argv[1:]])
