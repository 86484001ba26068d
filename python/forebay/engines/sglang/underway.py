"""Saves whose copies are under way, on one rank: started, and ended in their order on all ranks alike."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .complaints import complain
from .copying import Copier, Running

if TYPE_CHECKING:
    import forebay

    from .ranks import Attached, Ranks
    from .requests import Held


def _nothing() -> None:
    return None


@dataclass(slots=True)
class _Save:
    decision: forebay.Decision
    running: Running
    unlock: Callable[[], None]


class Saves:
    """The queue of one rank. One thread calls it.

    Args:
        ranks: that all copy.
        copier: of this one.
        ended: told the tag of a save's decision, and whether its blocks are right on all ranks.

    Attributes:
        bytes: copied so far.
    """

    def __init__(self, ranks: Ranks, copier: Copier, ended: Callable[[int, bool], None]) -> None:
        self._ranks, self._copier, self._ended = ranks, copier, ended
        self._queue: deque[_Save] = deque()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._queue)

    def start(self, attached: Attached, decision: forebay.Decision, held: Held) -> None:
        """Locks the pages and starts to copy them. What cannot be started is in the queue, too: all ranks wait for it.

        Args:
            attached: the pool.
            decision: with ranges.
            held: what the engine has.
        """
        start = min(one.first_block for one in decision.ranges)
        stop = max(one.first_block + one.blocks for one in decision.ranges)
        save = _Save(decision, Running([], -errno.EIO, None), _nothing)
        try:
            pages = held.pages(start, stop)
            save.unlock = held.lock()
            save.running = self._copier.save(attached, decision.ranges, pages, start)
        except Exception as error:
            complain("saving", error)
        self._queue.append(save)

    def finish(self, *, wait: bool = False) -> None:
        """Ends saves whose copies have ended, in their order; with ``wait`` all."""
        if not self._queue:
            return
        done = len(self._queue)
        if not wait:
            done = next((i for i, one in enumerate(self._queue) if not self._copier.is_done(one.running)), done)
            (done,) = self._ranks.minimum(done)
        for _ in range(done):
            self._finish(self._queue.popleft())

    def _finish(self, one: _Save) -> None:
        outcome = self._copier.wait(one.running)
        self.bytes += outcome.bytes
        try:
            one.unlock()
        except Exception as error:
            complain("unlocking pages", error)
        result = self._ranks.conclude(one.decision.number, outcome.code, outcome.failed)
        self._ended(one.decision.tag, result.ok)
