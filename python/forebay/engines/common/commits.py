"""Commits of big puts in a thread of their own: the checksums of many megabytes would hold up vLLM's scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import forebay

INLINE_BYTES = 4 << 20
"""Up to so many bytes a commit is made at once: it takes less than a millisecond."""

Then = Callable[["forebay.PutResult | None"], None]


class Commits:
    """Makes commits in the order in which they are asked for; one thread calls it, and gets the results.

    The thread is made when first needed.

    Args:
        failed: told of a commit that failed.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._thread: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[forebay.PutResult], Then]] = deque()

    def run(self, put: forebay.Put, valid_tokens: int, size: int, then: Then) -> None:
        """Commits a put.

        Args:
            put: whose slots are filled.
            valid_tokens: what of it is right.
            size: bytes of its slots.
            then: is told the result, None for a failure; now, or in a later :meth:`collect`.
        """
        if size <= INLINE_BYTES and not self._pending:
            try:
                result = put.commit(valid_tokens)
            except forebay.ForebayError as error:
                self._failed(error)
                then(None)
                return
            then(result)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "forebay-commit")
        self._pending.append((self._thread.submit(put.commit, valid_tokens), then))

    def collect(self, *, wait: bool = False) -> None:
        """Passes on the results of commits that have ended; with ``wait`` of all."""
        while self._pending and (wait or self._pending[0][0].done()):
            future, then = self._pending.popleft()
            error = future.exception()
            if error is not None:
                self._failed(error)
            then(None if error is not None else future.result())

    def close(self) -> None:
        """Waits for the commits under way and ends the thread."""
        self.collect(wait=True)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()

    def __bool__(self) -> bool:
        return bool(self._pending)
