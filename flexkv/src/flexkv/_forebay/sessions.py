"""Sessions of prefetches, by the names that a scheduler which knows them calls."""

from __future__ import annotations

import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import forebay

from flexkv.prefetch import (
    PROTOCOL_VERSION,
    PrefetchCapabilities,
    PrefetchHandle,
    PrefetchOptions,
    PrefetchSnapshot,
    make_snapshot,
)

from .scope import current, entered

if TYPE_CHECKING:
    from .engine import Engine

MOST_SESSIONS = 4096
"""Sessions that are remembered; older ones that nobody released are."""

_EXPIRED = ("expired", True, "expired", None, 0, 0, (), 0, 0, 0, 0, False, None)


class Sessions:
    """The part of the manager that has sessions."""

    _sessions: OrderedDict[int, tuple[forebay.Session, forebay.Sequence]]
    _epoch: str

    @property
    def engine(self) -> Engine:
        """What is behind it."""
        raise NotImplementedError

    def _table(self) -> OrderedDict[int, tuple[forebay.Session, forebay.Sequence]]:
        if not hasattr(self, "_sessions"):
            self._sessions, self._epoch = OrderedDict(), uuid.uuid4().hex
        return self._sessions

    def prefetch_capabilities(self) -> PrefetchCapabilities:
        """What sessions can."""
        enabled = self.engine.settings.config.get("prefetch.enabled").value == "true"
        policies = ("wait_complete", "timeout", "best_effort") if enabled else ("wait_complete",)
        return PrefetchCapabilities(PROTOCOL_VERSION, policies, True, True, False)

    def start_prefetch(
        self, token_ids: Any, options: PrefetchOptions | None = None, namespace: Sequence[str] | None = None
    ) -> PrefetchHandle:
        """Starts a session.

        Raises:
            forebay.ForebayError: it cannot be started.
            RuntimeError: the integration is off.
        """
        table, options = self._table(), options or PrefetchOptions()
        chosen = {"policy": options.policy, "timeout_budget_s": options.timeout_budget_s}
        given = {name: value for name, value in chosen.items() if value is not None}
        scope = replace(current(), device_tokens=options.candidate_start_token)
        with entered(scope):
            session, sequence = self.engine.start_session(token_ids, namespace, given)
        table[session.handle] = session, sequence
        while len(table) > MOST_SESSIONS:
            table.popitem(last=False)[1][0].release()
        return PrefetchHandle(self._epoch, session.handle)

    def _find(self, handle: PrefetchHandle) -> forebay.Session | None:
        found = self._table().get(handle.session_id) if handle.epoch == self._epoch_now() else None
        return found[0] if found is not None else None

    def poll_prefetch(self, handle: PrefetchHandle) -> PrefetchSnapshot:
        """A session now; ``expired`` when it is not known."""
        session = self._find(handle)
        if session is not None:
            with contextlib.suppress(forebay.StaleError, forebay.ClosedError):
                return make_snapshot(handle, session.poll(), self.engine.block_tokens)
        return PrefetchSnapshot(handle, 0, *_EXPIRED)

    def notify_prefetch_demand(self, handle: PrefetchHandle) -> None:
        """The scheduler wants the request."""
        session = self._find(handle)
        if session is not None:
            with contextlib.suppress(forebay.StaleError, forebay.ClosedError):
                session.demand()

    def progress_prefetch(
        self, handles: Iterable[PrefetchHandle], demand_handles: Iterable[PrefetchHandle] = ()
    ) -> dict[PrefetchHandle, PrefetchSnapshot]:
        """One scheduling pass: demand where it is asked for, then a snapshot of each."""
        for handle in demand_handles:
            self.notify_prefetch_demand(handle)
        return {handle: self.poll_prefetch(handle) for handle in handles}

    def wait_prefetch(self, handle: PrefetchHandle, timeout_s: float) -> PrefetchSnapshot:
        """Waits for the answer; a time that is over stops nothing."""
        session = self._find(handle)
        if session is not None:
            with contextlib.suppress(forebay.WaitTimeoutError, forebay.StaleError, forebay.ClosedError):
                session.wait(timeout_s)
        return self.poll_prefetch(handle)

    def stop_prefetch(self, handle: PrefetchHandle, reason: str = "request_abort") -> None:
        """Stops a session; what is under way drains."""
        del reason
        session = self._find(handle)
        if session is not None:
            with contextlib.suppress(forebay.StaleError, forebay.ClosedError):
                session.stop()

    def release_prefetch(self, handle: PrefetchHandle) -> None:
        """Ends a session and its lease. Idempotent."""
        found = self._table().pop(handle.session_id, None) if handle.epoch == self._epoch_now() else None
        if found is not None:
            found[0].release()

    def _epoch_now(self) -> str:
        self._table()
        return self._epoch
