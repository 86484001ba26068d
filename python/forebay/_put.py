"""Puts: new blocks into the cache, and behind it into the store."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._errors import StaleError, check
from ._forebay import ffi, lib
from ._hold import copy_size
from ._pin import Core, Pin
from ._sequence import Sequence
from ._wait import wait_in_slices, wait_readable


class PutResult(NamedTuple):
    """What a commit did (``fby_put_result_t``): the first four are an exact partition of the staged whole blocks.

    Attributes:
        published: visible from now on.
        duplicate: somebody else had published it meanwhile.
        discarded: not valid.
        orphan: its parent is not resident; it goes to the store only.
        resident_tokens: contiguous resident prefix that the put now pins, in tokens.
    """

    published: int
    duplicate: int
    discarded: int
    orphan: int
    resident_tokens: int


class Stored(NamedTuple):
    """What became of a put's store writes: objects, one per block and group.

    Attributes:
        stored: the store holds them now.
        failed: the others.
    """

    stored: int
    failed: int


class Put:
    """Staged blocks of a sequence (``fby_put_t``); made by :meth:`Cache.put`.

    A context manager: leaving it releases, or aborts after an exception. docs/puts.md.

    Attributes:
        first_missing: first block, counted from 0, that is not resident.
        staged_from: first block to fill.
        staged_to: end of the blocks to fill; equal to ``staged_from`` when all are resident or there is no room.
    """

    __slots__ = ("__weakref__", "_core", "_pin", "_sequence", "first_missing", "staged_from", "staged_to")

    def __init__(self, core: Core, sequence: Sequence, from_block: int, to_block: int | None) -> None:
        out, where = ffi.new("fby_put_t *"), ffi.new("uint64_t[3]")
        end = sequence.blocks if to_block is None else to_block
        with sequence.lock:
            check(lib.fby_put_begin(core.pointer, sequence.pointer, from_block, end, out, where, where + 1, where + 2))
        self._core = core
        self._sequence = sequence
        self._pin: Pin | None = Pin(core, int(out[0]), lib.fby_put_abort)
        self.first_missing, self.staged_from, self.staged_to = (int(block) for block in where)

    @property
    def handle(self) -> int:
        """The library's handle; 0 after the end."""
        return self._pin.handle if self._pin is not None else 0

    def _live(self) -> Pin:
        if self._pin is None:
            raise StaleError(lib.FBY_E_STALE, "the put has ended")
        return self._pin

    def _range(self, start: int | None, stop: int | None) -> tuple[int, int]:
        start = self.staged_from if start is None else start
        stop = self.staged_to if stop is None else stop
        if not 0 <= start <= stop:
            raise ValueError(f"blocks {start} to {stop}; accepted: 0 <= start <= stop")
        return start, stop

    def slots(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[memoryview | None]:
        """Views to fill, for blocks ``[start, stop)`` of a group (``fby_put_slots``).

        Args:
            group: index of the group.
            start: first block; by default ``staged_from``.
            stop: end; by default ``staged_to``.

        Returns:
            one writable view per block, shape ``(payload_bytes,)``, format ``"B"``; None where nothing is staged. Valid
            until commit, abort or release, which revoke them.

        Raises:
            StateError: the range is committed.
            StaleError: the put has ended.
            ArgumentError: outside of the sequence's blocks.
            IndexError: no such group.
        """
        payload = self._core.payload(group)
        start, stop = self._range(start, stop)
        pin = self._live()
        return pin.views(
            lambda out: int(lib.fby_put_slots(self._core.pointer, pin.handle, group, start, stop, out)),
            stop - start,
            payload,
            writable=True,
        )

    def addresses(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[int]:
        """Addresses to fill, for copies that are made elsewhere; 0 where nothing is staged.

        Nothing keeps the memory: the caller must not use an address after commit, abort, release or close.

        Args:
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.

        Raises:
            ForebayError: as for :meth:`slots`.
        """
        self._core.payload(group)
        start, stop = self._range(start, stop)
        out = ffi.new("void *[]", stop - start)
        check(lib.fby_put_slots(self._core.pointer, self._live().handle, group, start, stop, out))
        return [int(ffi.cast("uintptr_t", slot)) for slot in out]

    def places(self, group: int = 0, start: int | None = None, stop: int | None = None) -> list[int]:
        """Where the slots to fill begin in the pool, in bytes, for ranks in other processes (``fby_put_places``).

        Args:
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.

        Returns:
            one place per block; ``NO_PLACE`` where nothing is staged.

        Raises:
            ForebayError: as for :meth:`slots`.
        """
        self._core.payload(group)
        start, stop = self._range(start, stop)
        out = ffi.new("uint64_t[]", stop - start)
        check(lib.fby_put_places(self._core.pointer, self._live().handle, group, start, stop, out))
        return list(ffi.unpack(out, stop - start))

    def copy_from(
        self, source: Any, group: int = 0, start: int | None = None, stop: int | None = None, *, offset: int = 0
    ) -> int:
        """Copies payloads that lie one after the other in a buffer into the slots, without the interpreter's lock.

        Args:
            source: a contiguous buffer; block ``i`` comes from byte ``offset + (i - start) * payload_bytes``.
            group: as for :meth:`slots`.
            start: as for :meth:`slots`.
            stop: as for :meth:`slots`.
            offset: where in the source to begin, in bytes.

        Returns:
            how many blocks were copied; those where nothing is staged are left out.

        Raises:
            ValueError: the source is too small.
            ForebayError: as for :meth:`slots`.
        """
        payload = self._core.payload(group)
        start, stop = self._range(start, stop)
        n = stop - start
        data = ffi.from_buffer("char[]", source)
        copy_size(n, payload, offset, len(data))
        slots = ffi.new("void *[]", n)
        pin = self._live()
        with self._core.lock:
            guard = pin.guard()
            check(lib.fby_put_slots(self._core.pointer, pin.handle, group, start, stop, slots))
        copied = int(lib.fbypy_scatter(slots, data + offset, n, payload))
        del guard
        return copied

    def _revoke_writable(self) -> Pin:
        with self._core.lock:
            pin = self._live()
            pin.revoke()
            if pin.is_viewed():
                raise BufferError("slices or arrays over the put's slots are alive; drop those before the commit")
            return pin

    def commit(self, valid_tokens: int | None = None) -> PutResult:
        """Publishes the whole blocks below ``valid_tokens`` (``fby_put_commit``); revokes all views.

        Checksums are computed in the calling thread, without the interpreter's lock; store writes follow on their own.
        The put keeps its pin until :meth:`next`, abort or release.

        Args:
            valid_tokens: counted from the sequence's start; by default all of the sequence.

        Raises:
            BufferError: slices or arrays made from views are alive, and could change published bytes; nothing is
                committed.
            StateError: committed already, or another thread is at it.
            StaleError: the put has ended, also by a reset.
        """
        valid = self._sequence.tokens if valid_tokens is None else valid_tokens
        pin = self._revoke_writable()
        result = ffi.new("fby_put_result_t *")
        result.size = ffi.sizeof("fby_put_result_t")
        check(lib.fby_put_commit(self._core.pointer, pin.handle, valid, result))
        return PutResult(
            result.published, result.duplicate, result.discarded, result.orphan, int(result.resident_tokens)
        )

    def next(self, sequence: Sequence, from_block: int, to_block: int | None = None) -> None:
        """The next range of the same request, keeping the pin without a gap (``fby_put_next``).

        Updates ``first_missing``, ``staged_from`` and ``staged_to``.

        Args:
            sequence: the grown sequence.
            from_block: first block of the range.
            to_block: its end; by default the sequence's whole blocks.

        Raises:
            StateError: the previous range is not committed.
            ForebayError: as for :meth:`Cache.put`.
        """
        where = ffi.new("uint64_t[3]")
        end = sequence.blocks if to_block is None else to_block
        handle = self._live().handle
        with sequence.lock:
            check(
                lib.fby_put_next(
                    self._core.pointer, handle, sequence.pointer, from_block, end, where, where + 1, where + 2
                )
            )
        self._sequence = sequence
        self.first_missing, self.staged_from, self.staged_to = (int(block) for block in where)

    def wait_store(self, timeout: float | None = None) -> Stored:
        """Waits until the put's store writes ended (``fby_put_wait_store``), over all its ranges.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed; nothing has changed. With ``store.write: back`` a write may wait for as
                long as the pool has room.
            StaleError: the put has ended.
        """
        out = ffi.new("uint64_t[2]")
        handle = self._live().handle
        wait_in_slices(
            lambda seconds: int(lib.fby_put_wait_store(self._core.pointer, handle, seconds, out, out + 1)), timeout
        )
        return Stored(int(out[0]), int(out[1]))

    def event_fd(self) -> int:
        """A descriptor that becomes readable when no store write of the put is outstanding, or its handle ends.

        ``fby_put_event_fd``. Readable at once when none is. A new one with each call, the caller's to close; do not
        read it. :meth:`wait_store` with timeout 0 has the figures then.

        Raises:
            StaleError: the put has ended.
            OSError: no descriptor is to be had.
        """
        return check(lib.fby_put_event_fd(self._core.pointer, self._live().handle))

    async def wait_store_async(self, timeout: float | None = None) -> Stored:
        """The same as :meth:`wait_store` in an event loop, by a descriptor of its own (:meth:`event_fd`).

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed; nothing has changed.
            StaleError: the put has ended.
        """
        await wait_readable(self.event_fd(), timeout, f"the writes of put {self.handle:#x} did not end")
        return self.wait_store(0)

    def abort(self) -> None:
        """Returns uncommitted slots and drops the pin (``fby_put_abort``); what was published stays.

        Where slices or arrays made from views are alive, the put ends with the last of those. Idempotent.

        Raises:
            StateError: another thread is committing it.
            ForkedError: the cache is the parent process's.
        """
        with self._core.lock:
            pin, self._pin = self._pin, None
        if pin is not None:
            pin.finish()

    def release(self) -> None:
        """The same as :meth:`abort`, as in C (``fby_put_release``): the name for a put that was committed."""
        self.abort()

    def __enter__(self) -> Put:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()

    def __repr__(self) -> str:
        return f"<forebay.Put {self.handle:#x} of blocks {self.staged_from} to {self.staged_to}>"
