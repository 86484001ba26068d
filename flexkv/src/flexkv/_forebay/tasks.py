"""Tasks: what was matched, what was launched, and what became of it."""

from __future__ import annotations

import enum
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import forebay

from flexkv.common.request import KVResponse, KVResponseStatus

MOST_ENDED = 4096
"""Ended tasks that are remembered, so that a late question gets their status."""

LONGEST_S = 86400.0
"""A limit that no wait here reaches."""

MOST_MATCHED = 1024
"""Matches that nobody launches or cancels keep their hold until so many newer ones came."""


class Kind(enum.Enum):
    """What a task is for."""

    GET = "get"
    PUT = "put"
    PREFETCH = "prefetch"


class Stage(enum.Enum):
    """Where a task is. From ``RUNNING`` on memory of the engine is being read or written."""

    MATCHED = 0
    QUEUED = 1
    RUNNING = 2
    ENDED = 3


@dataclass(slots=True, eq=False)
class Task:
    """One task.

    Attributes:
        number: its id.
        kind: what it is for.
        tokens: length of its mask.
        start: first token of what it moves.
        end: end of those.
        handle: of the request, or None.
        sequence: of its tokens.
        hold: what is to be restored; until it was copied.
        put: what is to be written; until it was committed.
        session: of a prefetch.
        stage: where it is.
        status: how it ended, as far as the engine's memory goes.
        is_drained: nothing of it is under way any more.
        done_tokens: prefetch: usable tokens from the start.
        is_demanded: the scheduler has asked for a prefetch.
        is_noted: its end was counted for its request.
    """

    number: int
    kind: Kind
    tokens: int
    start: int
    end: int
    handle: Hashable | None = None
    sequence: forebay.Sequence | None = None
    hold: forebay.Hold | None = None
    put: forebay.Put | None = None
    session: forebay.Session | None = None
    stage: Stage = Stage.MATCHED
    status: KVResponseStatus | None = None
    is_drained: bool = False
    done_tokens: int = 0
    is_demanded: bool = False
    is_noted: bool = False

    def drop(self) -> None:
        """Lets go of what it holds."""
        hold, self.hold = self.hold, None
        put, self.put = self.put, None
        session, self.session = self.session, None
        for one in (hold, put, session):
            if one is not None:
                one.release()


@dataclass(slots=True)
class Table:
    """All tasks. Its lock is the one that every field of a task is changed under, once it is launched."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    _open: OrderedDict[int, Task] = field(default_factory=OrderedDict)
    _ended: OrderedDict[int, Task] = field(default_factory=OrderedDict)
    _next: int = 1

    def new_number(self) -> int:
        """The next task's id."""
        with self.changed:
            number, self._next = self._next, self._next + 1
            return number

    def add(self, task: Task) -> list[Task]:
        """Takes a task in.

        Returns:
            the oldest matches beyond :data:`MOST_MATCHED`, which are no tasks any more: the caller lets them go.
        """
        with self.changed:
            self._open[task.number] = task
            matched = [
                one for one in self._open.values() if one.stage is Stage.MATCHED and one.kind is not Kind.PREFETCH
            ]
            surplus = matched[: max(0, len(matched) - MOST_MATCHED)]
            for one in surplus:
                self._end(one, KVResponseStatus.CANCELLED)
            return surplus

    def find(self, number: int, *, ended: bool = False) -> Task | None:
        """A task that has not ended; with ``ended`` one that is remembered, too."""
        with self.changed:
            return self._open.get(number) or (self._ended.get(number) if ended else None)

    def open_tasks(self) -> list[Task]:
        """Tasks that have not ended."""
        with self.changed:
            return list(self._open.values())

    def _end(self, task: Task, status: KVResponseStatus) -> None:
        task.status, task.stage, task.is_drained = status, Stage.ENDED, True
        self._open.pop(task.number, None)
        self._ended[task.number] = task
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)
        self.changed.notify_all()

    def end(self, task: Task, status: KVResponseStatus) -> None:
        """The task is over."""
        with self.changed:
            if task.stage is not Stage.ENDED:
                self._end(task, status)

    def answer(self, task: Task, status: KVResponseStatus) -> None:
        """The engine's memory is free again; the rest follows."""
        with self.changed:
            task.status = status
            self.changed.notify_all()

    def claim(self, task: Task) -> bool:
        """Whether a queued task may run: from now on it is waited for."""
        with self.changed:
            if task.stage is not Stage.QUEUED:
                return False
            task.stage = Stage.RUNNING
            return True

    def unqueue(self, task: Task) -> bool:
        """Whether a task that was matched or queued will never run now."""
        with self.changed:
            if task.stage not in (Stage.MATCHED, Stage.QUEUED):
                return False
            self._end(task, KVResponseStatus.CANCELLED)
            return True

    # ---- Questions ----

    def response(self, number: int, *, completely: bool) -> KVResponse | None:
        """The answer about a task; None while there is none."""
        with self.changed:
            task = self._open.get(number) or self._ended.get(number)
            if task is None:
                return KVResponse(KVResponseStatus.NOT_FOUND, number, None)
            if task.status is None or (completely and not task.is_drained):
                return None
            return KVResponse(task.status, number, mask_of(task))

    def wait(self, numbers: Iterable[int], limit_s: float, *, completely: bool) -> dict[int, KVResponse]:
        """Answers about tasks; waits for them up to the limit. A task that has begun to copy is waited for in any case.

        The limit is at most :data:`LONGEST_S`.

        Returns:
            answers by task; those that have none after the limit are left out.
        """
        wanted = list(dict.fromkeys(numbers))
        end = time.monotonic() + min(limit_s, LONGEST_S)
        made: dict[int, KVResponse] = {}
        with self.changed:
            while True:
                for number in wanted:
                    if number not in made:
                        one = self.response(number, completely=completely)
                        if one is not None:
                            made[number] = one
                left = [number for number in wanted if number not in made]
                remaining = end - time.monotonic()
                running = any(self._is_running(number) for number in left)
                if not left or (remaining <= 0 and not running):
                    return made
                self.changed.wait(None if remaining <= 0 else remaining)

    def _is_running(self, number: int) -> bool:
        task = self._open.get(number)
        return task is not None and task.stage is Stage.RUNNING and task.status is None


def mask_of(task: Task) -> Any:
    """The mask of an ended task's tokens."""
    start, end = (0, task.done_tokens) if task.kind is Kind.PREFETCH else (task.start, task.end)
    if task.status is not KVResponseStatus.SUCCESS:
        start = end = 0
    return mask(task.tokens, start, end)


def mask(tokens: int, start: int, end: int) -> Any:
    """A bool array of ``tokens``, True in ``[start, end)``."""
    import numpy

    made = numpy.zeros(tokens, dtype=bool)
    made[start:end] = True
    return made
