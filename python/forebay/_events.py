"""Events: what was published and removed, and which sessions ended."""

from __future__ import annotations

import errno
import select
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from ._errors import StaleError, check
from ._forebay import ffi, lib
from ._names import EventType
from ._pin import Core
from ._quick import Snapshot
from ._quick import snapshot as _snapshot_at


class Event(NamedTuple):
    """One event (``fby_event_t``).

    Attributes:
        type: what happened.
        hash: chain hash of the block, 16 bytes; published and removed only, else empty.
        block: its position; for ``LOST`` how many events did not fit.
        session: handle of the session that ended, else 0.
        result: its last snapshot, else None.
    """

    type: EventType
    hash: bytes
    block: int
    session: int
    result: Snapshot | None


def _event(raw: Any) -> Event:
    kind = EventType(raw.type)
    about_block = kind in (EventType.PUBLISHED, EventType.REMOVED)
    ended = kind is EventType.SESSION
    return Event(
        kind,
        bytes(ffi.buffer(raw.hash)) if about_block else b"",
        int(raw.block),
        int(raw.session) if ended else 0,
        _snapshot_at(int(ffi.cast("uintptr_t", ffi.addressof(raw, "result")))) if ended else None,
    )


class Subscription:
    """A bounded queue of events (``fby_subscription_t``); made by :meth:`Cache.subscribe`.

    Iterating takes what waits and then stops; iterate again after :meth:`wait`, or when :meth:`fileno` is readable. A
    context manager: leaving it unsubscribes. May be used from several threads; they take turns.
    """

    __slots__ = ("__weakref__", "_core", "_fd", "_lock", "_pointer")

    def __init__(self, core: Core, capacity: int) -> None:
        out = ffi.new("fby_subscription_t **")
        check(lib.fby_subscribe(core.pointer, capacity, out))
        self._pointer = ffi.gc(out[0], lib.fby_unsubscribe)
        self._core = core
        self._fd = check(lib.fby_subscription_fd(self._pointer))
        self._lock = threading.Lock()

    def next(self) -> Event | None:
        """The next event, or None when none waits (``fby_subscription_next``). Quick.

        Raises:
            StaleError: it was unsubscribed.
            ClosedError: the cache is closed.
        """
        raw = ffi.new("fby_event_t *")
        raw.size = ffi.sizeof("fby_event_t")
        with self._lock:
            if self._pointer is None:
                raise StaleError(lib.FBY_E_STALE, "the subscription has ended")
            code = lib.fby_subscription_next(self._pointer, raw)
        if code == -errno.EAGAIN:
            return None
        check(code)
        return _event(raw)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until an event is there, without the interpreter's lock.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            whether one is there.
        """
        waiter = select.poll()
        waiter.register(self.fileno(), select.POLLIN)
        return bool(waiter.poll(None if timeout is None else max(0, int(timeout * 1000 + 0.999))))

    def fileno(self) -> int:
        """A descriptor that is readable while events wait; the subscription's: do not close or read it.

        Raises:
            StaleError: it was unsubscribed.
        """
        if self._fd < 0:
            raise StaleError(lib.FBY_E_STALE, "the subscription has ended")
        return self._fd

    def unsubscribe(self) -> None:
        """Ends and frees it, also after the cache was closed (``fby_unsubscribe``). Idempotent."""
        with self._lock:
            pointer, self._pointer, self._fd = self._pointer, None, -1
        if pointer is not None:
            ffi.release(pointer)

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unsubscribe()
