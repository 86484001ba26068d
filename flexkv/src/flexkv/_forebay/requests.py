"""Requests, where SGLang's classes are seen: the prefetch of each, its match, and what the journal says of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import forebay

from .tasks import Task

MOST_REQUESTS = 4096
"""Requests that are remembered; SGLang says of each when it is over."""


@dataclass(slots=True)
class Request:
    """One attempt of a request.

    Attributes:
        label: its id.
        options: of its session, beside the configured ones.
        prefetch: the task of its prefetch.
        session: of an answered prefetch, whose lease was not taken.
        answer: of the prefetch.
        device_tokens: prefix that the device had when the prefetch began.
        is_span_told: the tokens that came from the store were reported.
        match: the task of its last match.
        matched: tokens that were restored beyond the device's.
        failed: blocks of loads that failed.
    """

    label: str
    options: dict[str, Any] = field(default_factory=dict)
    prefetch: Task | None = None
    session: forebay.Session | None = None
    answer: forebay.Snapshot | None = None
    device_tokens: int = 0
    is_span_told: bool = False
    match: Task | None = None
    matched: int = 0
    failed: int = 0

    def row(self, options: dict[str, Any]) -> dict[str, Any] | None:
        """A line of the journal; None without a prefetch. No prompt text, no namespace.

        Args:
            options: that were in force for its session.
        """
        answer = self.answer
        if answer is None:
            return None
        return {
            "request": self.label,
            "policy": str(options["policy"]),
            "stop_mode": str(options["stop_mode"]),
            "outcome": str(answer.outcome) if answer.answered else "aborted",
            "reason": str(answer.reason) if answer.answered else "abort",
            "found": answer.found_tokens,
            "planned": answer.planned_tokens,
            "loaded": answer.loaded_tokens,
            "delivered": answer.delivered_tokens,
            "graphs": answer.submitted,
            "matched": self.matched,
            "failed": self.failed,
        }


class Requests:
    """The requests that are known, oldest first.

    Args:
        surplus: told of a request that was dropped for its age.
    """

    def __init__(self, surplus: Callable[[Hashable, Request], None]) -> None:
        self._surplus = surplus
        self._all: OrderedDict[Hashable, Request] = OrderedDict()

    def get(self, handle: Hashable | None) -> Request | None:
        """A request that is known."""
        return None if handle is None else self._all.get(handle)

    def make(self, handle: Hashable | None, label: str) -> Request | None:
        """A request, known from now on; None without a handle."""
        if handle is None:
            return None
        request = self._all.get(handle)
        if request is None:
            request = self._all[handle] = Request(label)
            while len(self._all) > MOST_REQUESTS:
                self._surplus(*self._all.popitem(last=False))
        return request

    def pop(self, handle: Hashable | None) -> Request | None:
        """Forgets a request."""
        return None if handle is None else self._all.pop(handle, None)

    def handles(self) -> list[Hashable]:
        """All that are known."""
        return list(self._all)
