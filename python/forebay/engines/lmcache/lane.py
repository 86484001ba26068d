"""A thread that runs many tasks at once: it begins them in order, sleeps until one is ready or late, and ends it."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from .complaints import log

MOST_RUNNING = 64
"""Tasks of a lane that are under way at once: half of what ``prefetch.max_sessions`` lets run."""

RETRY_S = 0.02
"""How long a task without room waits when nothing of its lane ends meanwhile."""

_LONGEST_SLEEP_S = 3600.0  # the kernel counts milliseconds in 31 bits

_AT_ONCE = -1  # in place of a descriptor


class NoRoomError(Exception):
    """The pool is full of what is in use: the task is begun again later."""


class Task(ABC):
    """One key's work. Its lane's thread makes all calls.

    Attributes:
        size: bytes of pool that it needs.
        deadline: monotonic time after which it is dropped and fails.
    """

    __slots__ = ("deadline", "size")

    AT_ONCE = _AT_ONCE

    def __init__(self, size: int, deadline: float) -> None:
        self.size, self.deadline = size, deadline

    @abstractmethod
    def begin(self) -> int:
        """Starts; never waits for the store.

        Returns:
            a descriptor that becomes readable when :meth:`end` has something to do, which the lane closes; or
            ``AT_ONCE``: it is to be ended now.

        Raises:
            NoRoomError: nothing was started.
        """

    @abstractmethod
    def end(self) -> None:
        """Collects what was started and gives the key its result.

        Raises:
            NoRoomError: there was not enough room; nothing is left of the attempt, and the key has no result.
        """

    @abstractmethod
    def drop(self) -> None:
        """Leaves what was started to Forebay. Never waits, never raises; harmless when nothing was."""

    @abstractmethod
    def fail(self, why: str) -> None:
        """Gives the key the result False."""


class Lane:
    """Runs tasks in the order in which they were submitted, several at once.

    Args:
        name: of the thread.
        budget: bytes of pool that its tasks may need together; one that needs more runs alone.
    """

    def __init__(self, name: str, budget: int) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._arrived: list[Task] = []
        self._stopping = False
        self._queue: deque[Task] = deque()
        self._running: dict[int, Task] = {}
        self._used = 0
        self._retry_at = 0.0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = select.epoll()
        self._poller.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Queues tasks. Thread-safe, quick. After :meth:`stop` they fail at once."""
        with self._lock:
            stopped = self._stopping
            if not stopped:
                self._arrived.extend(tasks)
                os.eventfd_write(self._wake, 1)
        if stopped:
            for task in tasks:
                task.fail("the adapter is closed")

    def stop(self) -> None:
        """Drops what is under way, fails what is left, ends the thread. Idempotent."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._poller.close()
        os.close(self._wake)

    # ---- Its thread ----

    def _run(self) -> None:
        while not self._stopping:
            self._begin_what_fits()
            for descriptor, _ in self._poller.poll(self._pause()):
                if descriptor == self._wake:
                    self._take_arrived()
                elif descriptor in self._running:
                    self._retire(descriptor)
            self._drop_late()
        self._take_arrived()
        for descriptor in list(self._running):
            self._forget(descriptor).fail("the adapter was closed")
        while self._queue:
            self._queue.popleft().fail("the adapter was closed")

    def _take_arrived(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with self._lock:
            arrived, self._arrived = self._arrived, []
        self._queue.extend(arrived)

    def _pause(self) -> float:
        """Seconds to sleep at most; -1: until something happens."""
        times = [task.deadline for task in self._running.values()]
        if self._queue:
            times.append(self._queue[0].deadline)
            if self._retry_at:
                times.append(self._retry_at)
        return min(max(0.0, min(times) - time.monotonic()), _LONGEST_SLEEP_S) if times else -1

    def _begin_what_fits(self) -> None:
        if self._retry_at > time.monotonic():
            return
        self._retry_at = 0.0
        while self._queue and not self._stopping:
            task = self._queue[0]
            full = len(self._running) >= MOST_RUNNING or self._used + task.size > self._budget
            if self._running and full:
                return
            self._queue.popleft()
            self._attempt(task)
            if self._retry_at:
                return

    def _attempt(self, task: Task) -> None:
        try:
            descriptor = task.begin()
            if descriptor == _AT_ONCE:
                task.end()
                return
        except NoRoomError:
            self._put_back(task)
        except Exception as error:
            self._fail(task, error)
        else:
            self._running[descriptor] = task
            self._used += task.size
            self._poller.register(descriptor, select.EPOLLIN)

    def _retire(self, descriptor: int) -> None:
        task = self._forget(descriptor, drop=False)
        self._retry_at = 0.0
        try:
            task.end()
        except NoRoomError:
            self._put_back(task)
        except Exception as error:
            self._fail(task, error)

    def _forget(self, descriptor: int, *, drop: bool = True) -> Task:
        task = self._running.pop(descriptor)
        self._used -= task.size
        self._poller.unregister(descriptor)
        os.close(descriptor)
        if drop:
            task.drop()
        return task

    def _put_back(self, task: Task) -> None:
        self._queue.appendleft(task)
        self._retry_at = time.monotonic() + RETRY_S

    def _fail(self, task: Task, error: Exception) -> None:
        log.debug("forebay: a task failed", exc_info=error)
        task.drop()
        task.fail(f"{type(error).__name__}: {error}")

    def _drop_late(self) -> None:
        now = time.monotonic()
        for descriptor in [number for number, task in self._running.items() if task.deadline <= now]:
            self._forget(descriptor).fail("no answer of the store within timeout_s")
        while self._queue and self._queue[0].deadline <= now:
            self._queue.popleft().fail("not begun within timeout_s")
