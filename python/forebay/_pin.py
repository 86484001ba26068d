"""What keeps pool memory safe to touch: an open cache, and the pins of holds and puts with the views made from them.

A view is a ``memoryview`` of a slot. It carries a guard; the guard keeps the pin, and so the library's protection of
the slot. Ending a pin first revokes the views that were handed out (``memoryview.release``): using one of them
afterwards is a ``ValueError``, not a read of somebody else's bytes. What was made *from* a view (a slice, a NumPy
array) cannot be revoked, and keeps the guard: the pin then ends when the last of these is gone.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ._errors import ClosedError, check, error
from ._forebay import ffi, lib

EXIT_LIMIT_S = 2.0
"""Longest time that closing a forgotten cache may take: at interpreter exit, or when it is collected."""

_LEAST_PRUNED = 64  # views whose references are kept before the dead ones are looked for


def ended(code: int) -> None:
    """Passes over the codes of an end that came before: the cache was closed, or its server is gone.

    Raises:
        ForebayError: any other negative code.
    """
    if code < 0 and code not in (lib.FBY_E_CLOSED, lib.FBY_E_STALE):
        raise error(code)


class Guard:
    """What every view of one pin carries. Its being alive means that memory of the pin may be touched."""

    __slots__ = ("__weakref__", "pin")

    def __init__(self, pin: Pin) -> None:
        self.pin = pin

    def __call__(self, address: object) -> None:
        """The destructor of a view's address: nothing to do, the reference to the guard goes with it."""


def _close_forgotten(pointer: Any, guards: weakref.WeakSet[Guard], state: list[bool], owner: int) -> None:
    """Closes a cache that nobody closed. With views alive its memory must stay: the end of the process takes it."""
    if state[0] or len(guards) > 0 or os.getpid() != owner:
        return
    state[0] = True
    warnings.warn("a cache was not closed", ResourceWarning, stacklevel=2)
    lib.fby_cache_close(pointer, EXIT_LIMIT_S, ffi.NULL)


class Core:
    """An open cache as its objects share it: sequences, sessions, holds, puts and subscriptions keep it alive.

    Attributes:
        pointer: ``fby_cache_t *``. Never dangles: the library keeps a closed cache's shell.
        address: the same as an ``int``.
        payloads: bytes of one block, for each group.
        lock: serialises the making of views with close.
        owner: id of the process that opened it.
    """

    __slots__ = (
        "__weakref__",
        "_finalizer",
        "_state",
        "address",
        "guards",
        "lock",
        "owner",
        "payloads",
        "pins",
        "pointer",
    )

    def __init__(self, pointer: Any, payloads: tuple[int, ...]) -> None:
        self.pointer = pointer
        self.address = int(ffi.cast("uintptr_t", pointer))
        self.payloads = payloads
        self.lock = threading.RLock()  # a collection inside may end another pin
        self.guards: weakref.WeakSet[Guard] = weakref.WeakSet()
        self.pins: weakref.WeakSet[Pin] = weakref.WeakSet()
        self.owner = os.getpid()
        self._state = [False]
        self._finalizer = weakref.finalize(self, _close_forgotten, pointer, self.guards, self._state, self.owner)

    @property
    def closed(self) -> bool:
        """Whether close was called, and not refused."""
        return self._state[0]

    def payload(self, group: int) -> int:
        """Bytes of one block of a group.

        Raises:
            IndexError: there is no such group.
        """
        if not 0 <= group < len(self.payloads):
            raise IndexError(f"group is {group}; accepted: 0 to {len(self.payloads) - 1}")
        return self.payloads[group]

    def seal(self) -> None:
        """Revokes every view and forbids new ones: close may unmap the pool.

        Raises:
            BufferError: slices or arrays made from views are alive; nothing has changed but the revoked views.
        """
        with self.lock:
            if self._state[0]:
                return
            for pin in list(self.pins):
                pin.revoke()
            if len(self.guards) > 0:
                raise BufferError(
                    f"{len(self.guards)} holds or puts have slices or arrays over their slots that are alive; "
                    "drop those before the cache is closed"
                )
            self._state[0] = True


class Pin:
    """A hold's last reader or a put: protection that ends once, when asked for and no view is left.

    Args:
        core: the cache.
        handle: ``fby_hold_t`` or ``fby_put_t``.
        end: the library's call that ends it, given the cache and the handle.
    """

    __slots__ = ("__weakref__", "_end", "_guard", "_prune_at", "_views", "core", "handle")

    def __init__(self, core: Core, handle: int, end: Callable[[Any, int], int]) -> None:
        self.core = core
        self.handle = handle
        self._end = end
        self._guard: weakref.ref[Guard] | None = None
        self._views: list[weakref.ref[memoryview]] = []
        self._prune_at = _LEAST_PRUNED
        core.pins.add(self)

    def guard(self) -> Guard:
        """The guard of all views; made when there is none. The caller has the core's lock."""
        if self.core.closed:
            raise ClosedError(lib.FBY_E_CLOSED, "the cache is closed")
        alive = self._guard() if self._guard is not None else None
        if alive is None:
            alive = Guard(self)
            self._guard = weakref.ref(alive)
            self.core.guards.add(alive)
        return alive

    def is_viewed(self) -> bool:
        """Whether a view, or something made from one, is alive."""
        return self._guard is not None and self._guard() is not None

    def views(self, call: Callable[[Any], int], n: int, payload: int, *, writable: bool) -> list[memoryview | None]:
        """Views of the slots whose addresses a call writes.

        Args:
            call: fills an array of ``n`` addresses and returns a code.
            n: number of slots.
            payload: bytes of each.
            writable: whether the views are.

        Returns:
            one view per slot, shape ``(payload,)`` of format ``"B"``; None where there is no slot.
        """
        slots = ffi.new("void *[]", n)
        with self.core.lock:
            guard = self.guard()
            check(call(slots))
            made: list[memoryview | None] = []
            for slot in slots:
                if slot == ffi.NULL:
                    made.append(None)
                    continue
                address = ffi.gc(ffi.cast("char *", slot), guard)
                view = memoryview(ffi.buffer(address, payload))
                made.append(view if writable else view.toreadonly())
            self._remember(made)
        return made

    def _remember(self, made: list[memoryview | None]) -> None:
        self._views.extend(weakref.ref(view) for view in made if view is not None)
        if len(self._views) > self._prune_at:
            self._views = [view for view in self._views if view() is not None]
            self._prune_at = max(_LEAST_PRUNED, 2 * len(self._views))

    def revoke(self) -> None:
        """Makes the handed-out views unusable, but for those that something was made from."""
        for reference in self._views:
            view = reference()
            if view is not None:
                try:
                    view.release()
                except BufferError:
                    continue
        self._views.clear()

    def finish(self) -> None:
        """Revokes, then ends the pin: now, or with the last thing made from a view.

        Raises:
            ForebayError: the library refused; not when all has ended already, see :func:`ended`.
        """
        with self.core.lock:
            self.revoke()
            if self.is_viewed() or self.handle == 0:
                return
            handle, self.handle = self.handle, 0
        ended(self._end(self.core.pointer, handle))

    def __del__(self) -> None:
        if getattr(self, "handle", 0) != 0:
            self._end(self.core.pointer, self.handle)
