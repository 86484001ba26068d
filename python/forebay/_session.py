"""Sessions: the prefetch of one request."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ._errors import check
from ._forebay import ffi, lib
from ._hold import Hold
from ._names import POLICY_NUMBERS, STOP_MODE_NUMBERS, Policy, StopMode, number_of
from ._pin import Core
from ._quick import Snapshot
from ._quick import poll as _poll
from ._quick import snapshot as _snapshot_at
from ._sequence import Sequence
from ._wait import wait_in_slices, wait_readable


def _options(
    policy: Policy | str | None,
    stop_mode: StopMode | str | None,
    predictive: bool | None,
    timeout_budget_s: float | None,
    candidate_start_token: int,
    have_blocks: int,
    min_tokens: int | None,
    label: str | None,
) -> tuple[Any, Any]:
    """``fby_session_options_t`` and what must stay alive with it."""
    options = ffi.new("fby_session_options_t *")
    options.size = ffi.sizeof("fby_session_options_t")
    options.policy = lib.FBY_UNSET if policy is None else number_of(POLICY_NUMBERS, "policy", policy)
    options.stop_mode = lib.FBY_UNSET if stop_mode is None else number_of(STOP_MODE_NUMBERS, "stop_mode", stop_mode)
    options.predictive = lib.FBY_UNSET if predictive is None else int(predictive)
    if timeout_budget_s is not None and not timeout_budget_s >= 0:
        raise ValueError(f"timeout_budget_s is {timeout_budget_s!r}; accepted: seconds from 0 on, or None")
    options.timeout_budget_s = -1.0 if timeout_budget_s is None else timeout_budget_s
    options.candidate_start_token = candidate_start_token
    options.have_blocks = have_blocks
    options.min_tokens = 2**64 - 1 if min_tokens is None else min_tokens
    text = ffi.NULL if label is None else ffi.new("char[]", label.encode("utf-8"))
    options.label = text
    return options, text


NO_OPTIONS: tuple[Any, ...] = (None, None, None, None, 0, 0, None, None)
"""The arguments of a start that names none: the configuration's options, without a struct."""


def start_session(core: Core, sequence: Sequence, arguments: tuple[Any, ...]) -> Session:
    """``fby_session_start``; see :meth:`Cache.start`, which names the arguments."""
    options, alive = (ffi.NULL, None) if arguments == NO_OPTIONS else _options(*arguments)
    out = ffi.new("fby_session_t *")
    with sequence.lock:
        check(lib.fby_session_start(core.pointer, sequence.pointer, options, out))
    del alive
    return Session(core, int(out[0]))


class Session:
    """One request's prefetch (``fby_session_t``); made by :meth:`Cache.start`.

    A context manager: leaving it releases. A session that is dropped is released too. May be used from any thread.

    Attributes:
        handle: the library's handle.
    """

    __slots__ = ("__weakref__", "_address", "_core", "_fd", "_open", "handle")

    def __init__(self, core: Core, handle: int) -> None:
        self._core = core
        self._address = core.address
        self.handle = handle
        self._open = True
        self._fd = -1

    def poll(self) -> Snapshot:
        """The latest snapshot (``fby_session_poll``): no lock, no system call; never signals demand.

        Raises:
            StaleError: the handle is not known any more.
        """
        return _poll(self._address, self.handle)

    def demand(self) -> None:
        """The scheduler wants the request (``fby_session_demand``). Idempotent; quick.

        best_effort stops claiming; timeout does if its budget is spent; other policies go on. After it returns, a
        session that stopped submits nothing more.

        Raises:
            StaleError: the handle is not known any more.
        """
        check(lib.fby_session_demand(self._core.pointer, self.handle))

    def stop(self) -> None:
        """Aborts (``fby_session_stop``): before the answer, outcome ``aborted`` and no lease. Idempotent; quick.

        After the answer it drops a lease that nobody took and discards what still drains; the answer stands.

        Raises:
            StaleError: the handle is not known any more.
        """
        check(lib.fby_session_stop(self._core.pointer, self.handle))

    def wait(self, timeout: float | None = None) -> Snapshot:
        """Waits for the answer (``fby_session_wait``), without the interpreter's lock.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed; nothing was stopped.
            StaleError: the handle is not known any more, also after a reset.
            ClosedError: the cache closed meanwhile.
        """
        out = ffi.new("fby_snapshot_t *")
        out.size = ffi.sizeof("fby_snapshot_t")
        pointer, handle = self._core.pointer, self.handle
        wait_in_slices(lambda seconds: int(lib.fby_session_wait(pointer, handle, seconds, out)), timeout)
        return _snapshot_at(int(ffi.cast("uintptr_t", out)))

    async def wait_async(self, timeout: float | None = None) -> Snapshot:
        """Waits for the answer in an event loop, by a descriptor of its own (:meth:`event_fd`).

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed; nothing was stopped.
            StaleError: the handle is not known any more, also after a reset.
            ClosedError: the cache closed meanwhile.
        """
        await wait_readable(self.event_fd(), timeout, f"session {self.handle:#x} was not answered")
        return self.wait(0)

    def take(self) -> Hold:
        """Turns the lease into a hold, atomically (``fby_session_take``). Quick.

        Nothing delivered gives an empty hold. The session has ended for its caller then; a tail that detach left goes
        on.

        Raises:
            StateError: not answered yet.
            StaleError: expired, released, stopped or taken.
            BusyError: the hold table is full.
        """
        out = ffi.new("fby_hold_t *")
        check(lib.fby_session_take(self._core.pointer, self.handle, out))
        self._open = False
        return Hold(self._core, int(out[0]))

    def release(self) -> None:
        """Ends the caller's interest (``fby_session_release``). Quick; not needed after take; idempotent.

        Before the answer as :meth:`stop`; after it, drops the lease and lets what still drains go on. Also closes the
        descriptor of :meth:`fileno`.

        Raises:
            ForkedError: the cache is the parent process's.
            PoisonedError: the cache is poisoned.
        """
        if not self._open:
            return
        self._open = False
        self._close_descriptor()
        code = lib.fby_session_release(self._core.pointer, self.handle)
        if code not in (lib.FBY_E_STALE, lib.FBY_E_CLOSED):
            check(code)

    def event_fd(self) -> int:
        """A descriptor that becomes readable when the session is answered or its handle ends.

        ``fby_session_event_fd``. Readable at once when it is answered already. A new one with each call, the caller's
        to close; do not read it.

        Raises:
            StaleError: the handle is not known any more.
            OSError: no descriptor is to be had.
        """
        return check(lib.fby_session_event_fd(self._core.pointer, self.handle))

    def fileno(self) -> int:
        """The same for ``select`` and ``selectors``: one descriptor, the session object's own; it closes it.

        Raises:
            ForebayError: as for :meth:`event_fd`.
        """
        with self._core.lock:
            if self._fd < 0:
                self._fd = self.event_fd()
            return self._fd

    def _close_descriptor(self) -> None:
        with self._core.lock:
            descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self._close_descriptor()
        if getattr(self, "_open", False):
            lib.fby_session_release(self._core.pointer, self.handle)

    def __repr__(self) -> str:
        return f"<forebay.Session {self.handle:#x}>"
