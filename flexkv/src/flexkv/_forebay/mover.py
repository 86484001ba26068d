"""The thread that moves: loads and saves of launched tasks, in the order of their launches, on all ranks at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import forebay

from flexkv.common.request import KVResponseStatus

from . import wire
from .log import complain, log
from .rank import pack_address
from .tasks import Kind, Table, Task

if TYPE_CHECKING:
    from forebay.engines.common.attach import PublishedPool

    from .crew import Crew
    from .layers import LayerSignals

ROOM_LIMIT_S = 0.2
"""How long a put whose next blocks find no room waits for the store, when there is nothing else to do."""

FAILED, SUCCESS = KVResponseStatus.FAILED, KVResponseStatus.SUCCESS


@dataclass(slots=True)
class Job:
    """A launched task.

    Attributes:
        task: of it.
        pages: device pages of its tokens, in order.
        counter: of a layer-wise load; -1: all layers at once.
        begun: a layer-wise load: its first part was copied, or it has failed.
    """

    task: Task
    pages: list[int]
    counter: int = -1
    begun: threading.Event | None = None


class Mover:
    """Runs jobs one by one. Waits of the engine's thread end as :class:`Table` says.

    Args:
        table: of the tasks.
        crew: of the ranks.
        pool: that the ranks have mapped.
        block_tokens: tokens of a page.
        verify: loads check each slot.
        slabs: parts of a layer-wise load, each with its layers.
        signals: eventfds of layers, or None.
        lost: told once that copies cannot be made any more.
    """

    def __init__(
        self,
        table: Table,
        crew: Crew,
        pool: PublishedPool,
        *,
        block_tokens: int,
        verify: bool,
        slabs: Sequence[range],
        signals: LayerSignals | None,
        lost: Callable[[str], None],
    ) -> None:
        self._table, self._crew, self._pool = table, crew, pool
        self._block_tokens, self._verify, self._slabs, self._signals = block_tokens, verify, slabs, signals
        self._lost = lost
        self._jobs: deque[Job] = deque()
        self._wake = threading.Condition()
        self._is_busy = self._is_closing = False
        self.loaded_blocks = self.saved_blocks = self.failed_blocks = 0
        self._thread = threading.Thread(target=self._run, name="forebay-flexkv-mover", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        """Queues a job, whose task is queued."""
        with self._wake:
            self._jobs.append(job)
            self._wake.notify_all()

    def drain(self) -> None:
        """Waits until every job so far has run."""
        with self._wake:
            self._wake.wait_for(lambda: not self._jobs and not self._is_busy)

    def close(self, limit_s: float) -> bool:
        """Ends the thread behind the job that runs; the others fail. False: it still runs after the limit."""
        with self._wake:
            self._is_closing = True
            self._wake.notify_all()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    # ---- The thread ----

    def _run(self) -> None:
        while True:
            with self._wake:
                self._is_busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: bool(self._jobs) or self._is_closing)
                if self._is_closing:
                    break
                job = self._jobs.popleft()
                self._is_busy = True
            self._run_one(job)
        for job in self._jobs:
            self._finish(job, FAILED)
        with self._wake:
            self._jobs.clear()
            self._wake.notify_all()

    def _run_one(self, job: Job) -> None:
        task = job.task
        if not self._table.claim(task):
            self._finish(job, KVResponseStatus.CANCELLED)
            return
        status = FAILED
        try:
            self._check_pool()
            run = self._load_layers if job.counter >= 0 else self._load if task.kind is Kind.GET else self._save
            status = run(job)
        except wire.GoneError as error:
            self._lost(f"a rank is gone: {error}")
        except Exception as error:
            complain(f"a {task.kind.value}", error)
        self._finish(job, status)

    def _finish(self, job: Job, status: KVResponseStatus) -> None:
        """The one end of a job."""
        task = job.task
        try:
            task.drop()
        except forebay.ForebayError as error:
            log.debug("forebay: a task could not be let go: %s", error)  # its server is gone
        self._table.end(task, status)
        if job.begun is not None:
            job.begun.set()

    def _check_pool(self) -> None:
        """Places of a server that came back mean another pool: the ranks map that one.

        Raises:
            RuntimeError: the pool that this task's places are of is gone.
        """
        if self._pool.is_current():
            return
        if self._pool.renew():
            header = {"op": "attach", "address": pack_address(self._pool.address)}
            for answer in self._crew.ask(header):
                if answer["error"] is not None:
                    self._lost(str(answer["error"]))
        raise RuntimeError("the server was away since this was matched")

    def _copy(self, kind: str, places: list[int], pages: list[int], slab: int = -1, *, verify: bool = False) -> int:
        """One copy on all ranks. Blocks that failed on the rank where most did."""
        header = {"op": "copy", "kind": kind, "slab": slab, "verify": verify}
        answers = self._crew.ask(header, places, pages)
        failed = 0
        for answer in answers:
            if answer["error"] is not None:
                failed = len(places)
                complain(f"a {kind}", RuntimeError(answer["error"]))
            else:
                failed = max(failed, int(answer["failed"]))
                if not answer["settled"]:
                    self._lost("a device cannot say whether it still copies")
        return failed

    def _places(self, job: Job) -> list[int]:
        task, tokens = job.task, self._block_tokens
        assert task.hold is not None
        places = task.hold.places(0, task.start // tokens, task.end // tokens)
        if forebay.NO_PLACE in places or len(places) != len(job.pages):
            raise RuntimeError("what was matched is not there any more")
        return places

    def _load(self, job: Job) -> KVResponseStatus:
        is_right, places = False, self._places(job)
        try:
            failed = self._copy("load", places, job.pages, verify=self._verify)
            self.failed_blocks += failed
            is_right = failed == 0
        finally:
            # Their integration knows no status of its own: what all restored or none did, each rank learns here, before
            # the leader's wait returns and with it the barrier of all.
            self._crew.ask({"op": "verdict", "task": job.task.number, "ok": is_right}, followers=True)
        self.loaded_blocks += len(places) if is_right else 0
        return SUCCESS if is_right else FAILED

    def _load_layers(self, job: Job) -> KVResponseStatus:
        assert self._signals is not None
        places = self._places(job)
        for slab, layers in enumerate(self._slabs):
            # The first part checks the whole slots: what it lets pass is right for the others, too.
            failed = self._copy("load", places, job.pages, slab, verify=self._verify and slab == 0)
            if failed:
                self.failed_blocks += failed
                if slab > 0:
                    self._abandon()
                return FAILED
            self._signals.done(job.counter, layers)
            if slab == 0 and job.begun is not None:
                self._table.answer(job.task, SUCCESS)
                job.begun.set()
        self.loaded_blocks += len(places)
        return SUCCESS

    def _abandon(self) -> None:
        """A device failed in the middle of a load whose tokens the engine counts on and waits for, without a limit.

        There is no way to take them back: the process ends, in place of a wrong answer or of hanging for ever.
        """
        log.critical("forebay: a layer-wise load failed in its middle, this process cannot go on")
        os.kill(os.getpid(), signal.SIGABRT)

    def _save(self, job: Job) -> KVResponseStatus:
        """Copies out and commits, in as many ranges as the room asks for. What finds none waits for another request."""
        task, tokens = job.task, self._block_tokens
        put, sequence = task.put, task.sequence
        assert put is not None
        assert sequence is not None
        first, last, until = task.start // tokens, task.end // tokens, time.monotonic() + ROOM_LIMIT_S
        while put.staged_from < put.staged_to:
            start, end = max(put.staged_from, first), min(put.staged_to, last)
            rows = [
                (place, page)
                for place, page in zip(put.places(0, start, end), job.pages[start - first : end - first], strict=True)
                if place != forebay.NO_PLACE
            ]
            if rows and self._copy("save", [place for place, _ in rows], [page for _, page in rows]):
                put.abort()
                return FAILED
            if end >= last:
                self._table.answer(task, SUCCESS)  # the engine's pages are free; the checksums take their time
            put.commit(end * tokens)
            self.saved_blocks += len(rows)
            if end >= last or not self._next_range(put, sequence, end, last, until):
                task.end = end * tokens
                break
        return SUCCESS

    def _next_range(self, put: forebay.Put, sequence: forebay.Sequence, start: int, end: int, until: float) -> bool:
        """Stages what follows. Blocks that the store has not got yet take room: for those it waits a little."""
        put.next(sequence, start, end)
        while put.staged_from >= put.staged_to and not self._jobs and time.monotonic() < until:
            with contextlib.suppress(forebay.WaitTimeoutError):
                put.wait_store(max(0.0, until - time.monotonic()))
                put.commit(start * self._block_tokens)
                put.next(sequence, start, end)
        return put.staged_from < put.staged_to
