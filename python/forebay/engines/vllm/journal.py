"""What the journal says of a request (docs/vllm.md)."""

from __future__ import annotations

from typing import Any

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
