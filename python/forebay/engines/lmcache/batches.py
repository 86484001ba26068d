"""Batches as LMCache submits them, and the completions that it collects."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TypeAlias

from .complaints import complain

Completion: TypeAlias = "tuple[int, bool, str, list[bool]]"
"""Number of the batch, whether it went well, the first thing that went wrong, and one truth value per key."""


class Completions:
    """What has ended and was not collected, with a descriptor that is readable while there is something.

    Attributes:
        descriptor: an event descriptor; -1 once closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Completion] = []
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def post(self, completion: Completion) -> None:
        """Adds one. Thread-safe."""
        with self._lock:
            self._waiting.append(completion)
            if self.descriptor >= 0:
                os.eventfd_write(self.descriptor, 1)

    def drain(self) -> list[Completion]:
        """Takes all, oldest first."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            if self.descriptor >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self.descriptor)
        return waiting

    def close(self) -> None:
        """Closes the descriptor. What waits can still be taken."""
        with self._lock:
            descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class BatchError(Exception):
    """Keys of a batch have no result of the store's."""


class Batch:
    """One submission: a result per key, and one completion when each has its own. One thread at a time ends keys.

    Args:
        number: that LMCache knows it by.
        what: was asked, for the log. LMCache's own says nothing of what failed.
        keys: how many.
        post: gets the completion.
        needs_all: one key that failed fails the batch, as LMCache has it for stores. Else misses are an answer.
    """

    __slots__ = ("_failed", "_left", "_needs_all", "_number", "_post", "_results", "_what", "_why")

    def __init__(
        self, number: int, what: str, keys: int, post: Callable[[Completion], None], *, needs_all: bool = False
    ) -> None:
        self._number, self._what, self._post, self._needs_all = number, what, post, needs_all
        self._results = [False] * keys
        self._left = keys
        self._failed = 0
        self._why = ""
        if keys == 0:
            self._complete()

    def end(self, index: int, ok: bool, why: str = "") -> None:
        """Sets the result of a key; of the last one it posts the completion.

        Args:
            index: of the key.
            ok: its result.
            why: what went wrong; "" for nothing, which a key that is not there is.
        """
        self._results[index] = ok
        self._failed += bool(why)
        self._why = self._why or why
        self._left -= 1
        if self._left == 0:
            self._complete()

    def _complete(self) -> None:
        if self._why:
            complain(self._what, BatchError(f"{self._failed} of {len(self._results)} keys: {self._why}"))
        ok = all(self._results) or not self._needs_all
        self._post((self._number, ok, self._why, self._results))
