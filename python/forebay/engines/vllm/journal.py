"""A line per finished request, for tests and for whoever wants to know what became of a prefetch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .complaints import complain
from .requests import Entry


def record(entry: Entry, *, policy: str, stop_mode: str, is_async: bool) -> dict[str, Any] | None:
    """What the journal says of a request; None when it had no prefetch.

    Tokens are the session's; ``matched`` those that the engine was given beyond its own; ``failed`` blocks that did not
    load. No prompt text, no namespace.
    """
    answer = entry.answer
    if answer is None:
        return None
    return {
        "request": entry.request.request_id,
        "policy": str(entry.options.session.get("policy", policy)),
        "stop_mode": str(entry.options.session.get("stop_mode", stop_mode)),
        "outcome": str(answer.outcome) if answer.answered else "aborted",
        "reason": str(answer.reason) if answer.answered else "abort",
        "found": answer.found_tokens,
        "planned": answer.planned_tokens,
        "loaded": answer.loaded_tokens,
        "delivered": answer.delivered_tokens,
        "graphs": answer.submitted,
        "matched": entry.matched,
        "async": is_async,
        "failed": entry.failed,
    }


class Journal:
    """A file that is appended to. A line that cannot be written is dropped, with a complaint.

    Args:
        path: of the file; None: nothing is written.
    """

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None

    def write(self, row: dict[str, Any]) -> None:
        """Appends one line."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            complain("writing the journal", error)
