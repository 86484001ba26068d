"""Holds: a protected prefix, and views of its slots."""

from __future__ import annotations

from typing import Any

from ._errors import StaleError, check
from ._forebay import ffi, lib
from ._pin import Core, Pin, ended


def copy_size(n: int, payload: int, offset: int, have: int) -> None:
    """Checks that ``n`` payloads fit between an offset and the end of a buffer.

    Raises:
        ValueError: they do not; the message says what would.
    """
    if offset < 0 or offset + n * payload > have:
        raise ValueError(
            f"{n} blocks of {payload} bytes from offset {offset} do not fit in a buffer of {have} bytes; "
            f"accepted: at least {max(offset, 0) + n * payload} bytes"
        )


class Hold:
    """Protection of a prefix against eviction (``fby_hold_t``); made by :meth:`Session.take` and :meth:`Cache.lookup`.

    A context manager: leaving it releases. A hold that is dropped without release ends by itself. Views keep the
    protection: docs/python.md#memory.
    """

    __slots__ = ("__weakref__", "_core", "_pin", "_readers")

    def __init__(self, core: Core, handle: int) -> None:
        self._core = core
        self._pin: Pin | None = Pin(core, handle, lib.fby_hold_release)
        self._readers = 1

    @property
    def handle(self) -> int:
        """The library's handle; 0 after the release."""
        return self._pin.handle if self._pin is not None else 0

    def _live(self) -> Pin:
        if self._pin is None:
            raise StaleError(lib.FBY_E_STALE, "the hold was released")
        return self._pin

    def _info(self) -> tuple[int, int, int]:
        out = ffi.new("uint64_t[3]")
        check(lib.fby_hold_info(self._core.pointer, self._live().handle, out, out + 1, out + 2))
        return out[0], out[1], out[2]

    @property
    def tokens(self) -> int:
        """Tokens that it protects (``fby_hold_info``)."""
        return self._info()[0]

    @property
    def blocks(self) -> int:
        """End of the protected blocks, counted from the sequence's start."""
        return self._info()[1]

    @property
    def first_block(self) -> int:
        """Its first block; not 0 only after a session with ``have_blocks`` whose device prefix was not resident."""
        return self._info()[2]

    def _range(self, start: int | None, stop: int | None) -> tuple[int, int]:
        if start is None or stop is None:
            _, blocks, first = self._info()
            start = first if start is None else start
            stop = blocks if stop is None else stop
        if not 0 <= start <= stop:
            raise ValueError(f"blocks {start} to {stop}; accepted: 0 <= start <= stop")
        return start, stop

    def slots(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[memoryview | None]:
        """Views of the payloads of blocks ``[start, stop)`` of a group, without a copy (``fby_hold_slots``).

        Blocks of a taken result whose group 0 is asked for count as consumed.

        Args:
            group: index of the group.
            start: first block; by default the hold's first.
            stop: end; by default the hold's end.

        Returns:
            one read-only view per block, shape ``(payload_bytes,)``, format ``"B"``. None for a block of a trailing
            group that the hold's end does not need. Valid until release or trim, which revoke them.

        Raises:
            ArgumentError: outside of the hold's blocks.
            IndexError: no such group.
            StaleError: the hold has ended.
        """
        payload = self._core.payload(group)
        start, stop = self._range(start, stop)
        pin = self._live()
        return pin.views(
            lambda out: int(lib.fby_hold_slots(self._core.pointer, pin.handle, group, start, stop, out)),
            stop - start,
            payload,
            writable=False,
        )

    def addresses(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[int]:
        """Addresses of the payloads, for copies that are made elsewhere (a driver API, ctypes).

        Nothing keeps the memory: the caller must not use an address after release, trim or close. Read only.

        Args:
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.

        Returns:
            one address per block; 0 where :meth:`slots` has None.

        Raises:
            ForebayError: as for :meth:`slots`.
        """
        self._core.payload(group)
        start, stop = self._range(start, stop)
        out = ffi.new("const void *[]", stop - start)
        check(lib.fby_hold_slots(self._core.pointer, self._live().handle, group, start, stop, out))
        return [int(ffi.cast("uintptr_t", slot)) for slot in out]

    def places(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[int]:
        """Where the slots begin in the pool, in bytes, for ranks in other processes (``fby_hold_places``).

        Args:
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.

        Returns:
            one place per block; ``NO_PLACE`` where :meth:`slots` has None.

        Raises:
            ForebayError: as for :meth:`slots`.
        """
        self._core.payload(group)
        start, stop = self._range(start, stop)
        out = ffi.new("uint64_t[]", stop - start)
        check(lib.fby_hold_places(self._core.pointer, self._live().handle, group, start, stop, out))
        return list(ffi.unpack(out, stop - start))

    def copy_to(
        self, target: Any, group: int = 0, start: int | None = None, stop: int | None = None, *, offset: int = 0
    ) -> int:
        """Copies payloads one after the other into a buffer, without the interpreter's lock.

        Args:
            target: a writable, contiguous buffer; block ``i`` goes to byte ``offset + (i - start) * payload_bytes``.
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.
            offset: where in the target to begin, in bytes.

        Returns:
            how many blocks were copied; those that :meth:`slots` gives as None are left out, their places unchanged.

        Raises:
            ValueError: the target is too small.
            ForebayError: as for :meth:`slots`.
        """
        payload = self._core.payload(group)
        start, stop = self._range(start, stop)
        n = stop - start
        room = ffi.from_buffer("char[]", target, require_writable=True)
        copy_size(n, payload, offset, len(room))
        slots = ffi.new("const void *[]", n)
        pin = self._live()
        with self._core.lock:
            guard = pin.guard()
            check(lib.fby_hold_slots(self._core.pointer, pin.handle, group, start, stop, slots))
        copied = int(lib.fbypy_gather(room + offset, slots, n, payload))
        del guard
        return copied

    def trim(self, tokens: int) -> int:
        """Gives up all beyond the greatest checkpoint <= ``tokens`` (``fby_hold_trim``); revokes all views.

        Returns:
            the new length in tokens; it never grows.

        Raises:
            BufferError: slices or arrays made from views are alive; nothing has changed but the revoked views.
            StaleError: the hold has ended.
        """
        now = ffi.new("uint64_t *")
        with self._core.lock:
            pin = self._live()
            pin.revoke()
            if pin.is_viewed():
                raise BufferError("slices or arrays over the hold's slots are alive; drop those before it is trimmed")
            check(lib.fby_hold_trim(self._core.pointer, pin.handle, tokens, now))
        return int(now[0])

    def readers(self, add: int = 1) -> None:
        """Adds readers (``fby_hold_readers``): the hold ends when release was called once per reader (1 at first).

        Raises:
            StaleError: the hold has ended.
            ArgumentError: too many.
        """
        with self._core.lock:
            check(lib.fby_hold_readers(self._core.pointer, self._live().handle, add))
            self._readers += add

    def release(self) -> None:
        """One reader less; the last one revokes the views and ends the protection (``fby_hold_release``).

        Where slices or arrays made from views are alive, the protection ends with the last of those. A released hold
        may be released again: nothing happens.

        Raises:
            ForkedError: the cache is the parent process's.
        """
        with self._core.lock:
            pin = self._pin
            if pin is None:
                return
            self._readers -= 1
            if self._readers > 0:
                ended(lib.fby_hold_release(self._core.pointer, pin.handle))
                return
            self._pin = None
        pin.finish()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<forebay.Hold {self.handle:#x}>"
