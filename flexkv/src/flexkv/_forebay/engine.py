"""The leader's heart: matches, puts, launches and their answers. SGLang's scheduler thread calls it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any

import forebay

from flexkv.common.request import KVResponse, KVResponseStatus

from .log import complain, log
from .mover import Job
from .pages import pages_of
from .prefetching import Prefetching
from .requests import Request
from .scope import current
from .tasks import LONGEST_S, Kind, Stage, Task

CLOSE_LIMIT_S = 10.0


class LoadRefusedError(RuntimeError):
    """A layer-wise load cannot be made, and nothing of it was.

    Attributes:
        task_id: of it.
    """

    def __init__(self, task_id: int) -> None:
        super().__init__(f"load {task_id} cannot be made")
        self.task_id = task_id


class Engine(Prefetching):
    """One server's cache, as the manager uses it."""

    # ---- Matches ----

    def match(self, tokens: Any, start: int, namespace: Sequence[str] | None, *, store: bool) -> Task | None:
        """What can be restored behind ``start``, protected until it is launched or cancelled.

        Args:
            tokens: of the request.
            start: first token that the device lacks.
            namespace: that the caller names, or None.
            store: the store may be asked, as far as ``match_wait_s`` allows.

        Returns:
            a task, or None: nothing.
        """
        scope = current()
        request = self.requests.get(scope.handle)
        if request is not None:
            self.cancel_match(request)
        if self.is_off or start % self._tokens != 0 or not scope.options.load:
            return None
        sequence = self.sequence(tokens, scope, namespace)
        hold = self._best_hold(request, sequence, start)
        if hold is None and store and self.settings.match_wait_s > 0 and request is None and sequence.blocks:
            hold = self._usable(self._fetch(sequence, start), start)
        if hold is None:
            return None
        task = Task(self.table.new_number(), Kind.GET, len(tokens), start, hold.tokens, scope.handle, sequence, hold)
        self._keep(task)
        request = self.requests.make(scope.handle, scope.label)
        if request is not None:
            request.match = task
        return task

    def _usable(self, hold: forebay.Hold | None, start: int) -> forebay.Hold | None:
        """A hold that gives tokens behind ``start``; another one is let go."""
        if hold is not None and (hold.tokens <= start or hold.first_block * self._tokens > start):
            hold.release()
            return None
        return hold

    def _best_hold(self, request: Request | None, sequence: forebay.Sequence, start: int) -> forebay.Hold | None:
        """What the request's prefetch brought, or what is in memory by now, if that is more."""
        taken = self._usable(self._take(request), start)
        if taken is not None and taken.blocks >= sequence.blocks:
            return taken
        found = self._usable(self._look_up(sequence), start)
        if taken is None or found is None:
            return taken or found
        shorter, longer = sorted((taken, found), key=lambda hold: hold.tokens)
        shorter.release()
        return longer

    def _take(self, request: Request | None) -> forebay.Hold | None:
        """The lease of a request's prefetch as a hold."""
        if request is None or request.session is None:
            return None
        session, request.session = request.session, None
        with contextlib.suppress(forebay.StaleError, forebay.BusyError):
            return session.take()
        session.release()
        return None

    def _look_up(self, sequence: forebay.Sequence) -> forebay.Hold | None:
        with contextlib.suppress(forebay.CapacityError, forebay.BusyError):
            return self.cache.lookup(sequence)
        return None

    def _fetch(self, sequence: forebay.Sequence, start: int) -> forebay.Hold | None:
        """A prefetch inside of a match: it is wanted at once, and stopped when the time is over."""
        with self.cache.start(sequence, candidate_start_token=start, **self._usual) as session:
            session.demand()
            with contextlib.suppress(forebay.WaitTimeoutError):
                session.wait(self.settings.match_wait_s)
                return session.take()
        return self._look_up(sequence)

    def cancel_match(self, request: Request) -> None:
        """Lets a request's last match go, if it was not launched."""
        task, request.match = request.match, None
        if task is not None and self.table.unqueue(task):
            task.drop()

    def stage(self, tokens: Any, namespace: Sequence[str] | None) -> Task | None:
        """Slots for what of a request the cache lacks; None: nothing to write."""
        scope = current()
        if self.is_off or not self.settings.save or not scope.options.save:
            return None
        sequence = self.sequence(tokens, scope, namespace, to_read=False)
        if sequence.blocks == 0:
            return None
        try:
            put = self.cache.put(sequence)
        except (forebay.CapacityError, forebay.BusyError):
            return None
        if put.staged_from >= put.staged_to:
            put.release()
            return None
        start, end = put.staged_from * self._tokens, sequence.blocks * self._tokens
        task = Task(self.table.new_number(), Kind.PUT, len(tokens), start, end, scope.handle, sequence, put=put)
        self._keep(task)
        return task

    # ---- Launches ----

    def launch(self, number: int, slots: Any, *, counter: int = -1) -> None:
        """Starts a matched task. What cannot be started has failed, and says so when it is asked for.

        Args:
            number: of the task.
            slots: device slot of each of its tokens, in order.
            counter: of a layer-wise load; -1: all layers at once.

        Raises:
            LoadRefusedError: a layer-wise load that cannot be made: its caller asks for no status.
        """
        task = self.table.find(number)
        if task is None or task.stage is not Stage.MATCHED or task.kind is Kind.PREFETCH:
            complain("launching", ValueError(f"task {number} is not matched"))
            if counter >= 0:
                raise LoadRefusedError(number)
            return
        job = self._prepare(task, slots, counter)
        if job is None:
            self.table.end(task, KVResponseStatus.FAILED)
            task.drop()
            if counter >= 0:
                raise LoadRefusedError(number)
            return
        assert self._mover is not None
        self._mover.add(job)
        if job.begun is not None:
            job.begun.wait()
            self._note(number)
            if task.status is not KVResponseStatus.SUCCESS:
                raise LoadRefusedError(number)
        elif task.kind is Kind.PUT and self._model_config.tp_size > 1:
            # Of several ranks only the leader protects the pages until it hears of the end. So there is an end at once.
            self.table.wait([number], LONGEST_S, completely=False)

    def _prepare(self, task: Task, slots: Any, counter: int) -> Job | None:
        request = self.requests.get(task.handle)
        if request is not None and request.match is task:
            request.match = None
        try:
            if self.is_off:
                raise RuntimeError(self._off or "the integration is not ready")
            pages = pages_of(slots, self._tokens, (task.end - task.start) // self._tokens)
            if counter >= 0 and (task.kind is not Kind.GET or self._signals is None or not self._signals.has(counter)):
                raise ValueError(f"counter {counter} has no eventfds")
        except Exception as error:
            complain("launching", error)
            return None
        with self.table.changed:
            task.stage = Stage.QUEUED
        return Job(task, pages, counter, threading.Event() if counter >= 0 else None)

    def cancel(self, number: int) -> None:
        """Lets a task go. One that is being copied goes on to its end."""
        task = self.table.find(number)
        if task is None:
            return
        if task.kind is Kind.PREFETCH:
            self.end_prefetch(task, KVResponseStatus.CANCELLED)
        elif self.table.unqueue(task):
            task.drop()

    # ---- Answers ----

    def wait(self, numbers: Sequence[int], limit_s: float, *, completely: bool) -> dict[int, KVResponse]:
        """Answers about tasks, waited for. What was not begun by then never begins."""
        end = time.monotonic() + limit_s
        made: dict[int, KVResponse] = {}
        rest = []
        for number in numbers:
            task = self.table.find(number)
            if task is not None and task.stage is Stage.MATCHED and task.kind is not Kind.PREFETCH:
                made[number] = KVResponse(KVResponseStatus.UNREADY, number)
            else:
                if task is not None and task.session is not None:
                    self.wait_prefetch(task, max(0.0, end - time.monotonic()))
                rest.append(number)
        made |= self.table.wait(rest, max(0.0, end - time.monotonic()), completely=completely)
        for number in rest:
            if number not in made:
                task = self.table.find(number)
                if task is not None and task.kind is not Kind.PREFETCH and self.table.unqueue(task):
                    log.warning("forebay: task %d was not begun in %.1f s, and will not be", number, limit_s)
                made[number] = KVResponse(KVResponseStatus.TIMEOUT, number)
            self._note(number)
        return made

    def try_wait(self, numbers: Sequence[int]) -> dict[int, KVResponse]:
        """Answers about those tasks that have one. Of a prefetch it is the demand, too."""
        made = {}
        for number in numbers:
            task = self.table.find(number)
            if task is not None and task.kind is Kind.PREFETCH:
                self.poll_prefetch(task)
            response = self.table.response(number, completely=False)
            if response is not None:
                made[number] = response
                self._note(number)
        return made

    def _note(self, number: int) -> None:
        """A load's end, for its request's line in the journal; once."""
        task = self.table.find(number, ended=True)
        if task is None or task.kind is not Kind.GET or task.is_noted or task.status is None:
            return
        task.is_noted = True
        request = self.requests.get(task.handle)
        if request is None:
            return
        if task.status is KVResponseStatus.SUCCESS:
            request.matched += task.end - task.start
        elif task.status is KVResponseStatus.FAILED:
            request.failed += (task.end - task.start) // self._tokens

    # ---- The end of a request, and of all ----

    def forget(self, handle: Hashable) -> None:
        """A request is over, in whatever state. Copies under way go on to their end."""
        request = self.requests.pop(handle)
        if request is not None:
            self._close_request(handle, request)

    def _close_request(self, handle: Hashable, request: Request) -> None:
        del handle
        self.cancel_match(request)
        task = request.prefetch
        if task is not None and task.stage is not Stage.ENDED:
            if task.session is not None:
                with contextlib.suppress(forebay.ForebayError):
                    request.answer = task.session.poll()
            task.drop()
            self.table.end(task, KVResponseStatus.CANCELLED)
        session, request.session = request.session, None
        if session is not None:
            with contextlib.suppress(forebay.ForebayError):
                session.release()
        row = request.row({"policy": self._policy, "stop_mode": self._stop_mode} | request.options)
        if row is not None:
            self._journal.write(row)

    def drain(self) -> None:
        """Waits until everything that was launched has run."""
        if self._mover is not None:
            self._mover.drain()

    def reset(self) -> None:
        """Forgets every block in CPU memory, and what was matched."""
        self.drain()
        for handle in self.requests.handles():
            self.forget(handle)
        for task in self.table.open_tasks():
            self.cancel(task.number)
        if self._cache is not None:
            self._cache.reset(CLOSE_LIMIT_S, bump_epoch=self.settings.reset_bumps_epoch)

    def close(self) -> None:
        """Ends everything. Idempotent."""
        if self._is_closed:
            return
        for handle in self.requests.handles():
            self.forget(handle)
        for task in self.table.open_tasks():
            self.cancel(task.number)
        self._is_closed = True
        if self._mover is not None and not self._mover.close(CLOSE_LIMIT_S):
            log.warning("forebay: a rank still copies; the cache stays open until the process ends")
            return
        self._crew.close()
        if self._signals is not None:
            self._signals.close()
        if self._pool is not None:
            self._pool.close()
        if self._cache is not None:
            try:
                self._cache.close(CLOSE_LIMIT_S)
            except forebay.ForebayError as error:
                log.warning("forebay: closing: %s", error)
