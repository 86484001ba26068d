"""A line per finished request, for tests and for whoever wants to know what became of a prefetch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """A file that is appended to. A line that cannot be written is dropped, with a complaint.

    Args:
        path: of the file; None: nothing is written.
        complain: told what failed, and of the error.
    """

    def __init__(self, path: str | None, complain: Callable[[str, BaseException], None]) -> None:
        self._path = Path(path) if path else None
        self._complain = complain

    def write(self, row: dict[str, Any]) -> None:
        """Appends one line."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            self._complain("writing the journal", error)
