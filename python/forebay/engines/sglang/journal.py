"""What the journal says of a request (docs/sglang.md)."""

from __future__ import annotations

from typing import Any

from .requests import Entry


def record(entry: Entry, *, policy: str, stop_mode: str) -> dict[str, Any] | None:
    """What the journal says of a request; None when it had no prefetch.

    Tokens are the session's; ``matched`` those that the engine was given beyond its own; ``failed`` blocks that did not
    load. Of a session that went with its server, what was seen of it last. No prompt text, no namespace.
    """
    last = entry.answer
    if last is None and not entry.lost:
        return None
    outcome, reason = ("failed", "server_lost") if entry.lost else ("aborted", "abort")
    if last is not None and last.answered:
        outcome, reason = str(last.outcome), str(last.reason)
    return {
        "request": entry.name,
        "policy": str(entry.options.session.get("policy", policy)),
        "stop_mode": str(entry.options.session.get("stop_mode", stop_mode)),
        "outcome": outcome,
        "reason": reason,
        "found": last.found_tokens if last is not None else 0,
        "planned": last.planned_tokens if last is not None else 0,
        "loaded": last.loaded_tokens if last is not None else 0,
        "delivered": last.delivered_tokens if last is not None and not entry.lost else 0,
        "graphs": last.submitted if last is not None else 0,
        "matched": entry.matched,
        "failed": entry.failed,
    }
