"""Prefetches: from a request's arrival in the queue to the lease that its match takes."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Sequence
from typing import Any

import forebay

from flexkv.common.request import KVResponseStatus

from .core import Core
from .log import complain
from .scope import current
from .tasks import Kind, Stage, Task


class Prefetching(Core):
    """The part of the engine that brings blocks from the store."""

    def _keep(self, task: Task) -> None:
        for surplus in self.table.add(task):
            surplus.drop()

    def start_session(
        self, tokens: Any, namespace: Sequence[str] | None, options: dict[str, Any]
    ) -> tuple[forebay.Session, forebay.Sequence]:
        """A session over a request's tokens.

        Args:
            tokens: of the request.
            namespace: that the caller names, or None.
            options: of the session, beside the configured ones.

        Raises:
            forebay.ForebayError: it cannot be started.
            RuntimeError: the cache is not open.
        """
        scope = current()
        sequence = self.sequence(tokens, scope, namespace)
        arguments: dict[str, Any] = {"candidate_start_token": scope.device_tokens, "label": scope.label or None}
        return self.cache.start(sequence, **arguments | self._usual | options), sequence

    def prefetch(self, tokens: Any, namespace: Sequence[str] | None) -> Task | None:
        """Starts a request's prefetch; None: there is none."""
        scope = current()
        if self.is_off or not self.settings.prefetch or not scope.options.load:
            return None
        request = self.requests.make(scope.handle, scope.label)
        if request is not None and request.prefetch is not None and request.prefetch.stage is not Stage.ENDED:
            return request.prefetch
        try:
            session, sequence = self.start_session(tokens, namespace, scope.options.session)
        except (forebay.NotEnabledError, forebay.ConfigError) as error:
            complain("a policy of a request", error)
            session, sequence = self.start_session(tokens, namespace, {})
        task = Task(self.table.new_number(), Kind.PREFETCH, len(tokens), 0, 0, scope.handle, sequence, session=session)
        task.stage = Stage.QUEUED
        self._keep(task)
        if request is not None:
            request.prefetch, request.device_tokens = task, scope.device_tokens
            request.options = scope.options.session
        return task

    def poll_prefetch(self, task: Task) -> None:
        """The scheduler wants the request: demand, and what has become of it."""
        session = task.session
        if session is None:
            return
        try:
            if not task.is_demanded:
                task.is_demanded = True
                session.demand()
            answer = session.poll()
        except forebay.ForebayError as error:
            complain("asking for a prefetch", error)
            self.end_prefetch(task, KVResponseStatus.FAILED)
            return
        if answer.answered:
            self._answered(task, answer)

    def wait_prefetch(self, task: Task, limit_s: float) -> None:
        """Waits for a prefetch's answer."""
        if task.session is not None:
            with contextlib.suppress(forebay.WaitTimeoutError):
                task.session.wait(limit_s)
            self.poll_prefetch(task)

    def _answered(self, task: Task, answer: forebay.Snapshot) -> None:
        """The answer is there. Its lease stays with the request until its match takes it."""
        session, task.session = task.session, None
        task.done_tokens = min(answer.delivered_tokens, task.tokens)
        request = self.requests.get(task.handle)
        if request is not None and request.prefetch is task:
            request.answer, request.session = answer, session
        elif session is not None:
            session.release()
        is_right = answer.outcome not in (forebay.Outcome.FAILED, forebay.Outcome.EXPIRED)
        self.table.end(task, KVResponseStatus.SUCCESS if is_right else KVResponseStatus.FAILED)

    def end_prefetch(self, task: Task, status: KVResponseStatus) -> None:
        """Stops a prefetch that is not answered."""
        request = self.requests.get(task.handle)
        if request is not None and request.prefetch is task and task.session is not None:
            with contextlib.suppress(forebay.ForebayError):
                request.answer = task.session.poll()
        task.drop()
        self.table.end(task, status)

    def take_span(self, handle: Hashable) -> tuple[int, int | None]:
        """Tokens that a request's prefetch brought from the store, and where they begin; once."""
        request = self.requests.get(handle)
        if request is None or request.answer is None or request.is_span_told or not request.answer.answered:
            return 0, None
        request.is_span_told = True
        answer = request.answer
        start = max(answer.delivered_tokens - answer.loaded_tokens, request.device_tokens)
        tokens = answer.delivered_tokens - start
        return (tokens, start) if tokens > 0 else (0, None)
