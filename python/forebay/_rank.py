"""Ranks: copies between the pool's slots and a rank's own device memory, in the rank's own process (docs/ranks.md)."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._errors import AbandonedError, ForebayError, StateError, check
from ._forebay import ffi, lib
from ._names import LAYOUT_NUMBERS, number_of
from ._pin import Core
from ._pool import Pool, pool_in
from ._wait import wait_in_slices

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._cache import Cache

Memory: TypeAlias = "int | Buffer"
"""Where a tensor lies: an address (``tensor.data_ptr()``), or a writable, contiguous buffer of this process."""

DETACH_LIMIT_S = 10.0
"""What :meth:`Rank.detach` grants by default to copies that are under way."""


class Tensor(NamedTuple):
    """A tensor of the device (``fby_tensor_t``), in bytes.

    Attributes:
        base: address of row 0 of block 0, ``tensor.data_ptr()``: whoever gives it keeps the memory while the rank is
            attached. Or a buffer of this process, which the rank keeps.
        bytes: what may be touched from ``base`` on; None: all of the buffer. An address needs a number.
        block_stride: from block to block; 0: close together.
        row_stride: from row to row; 0: close together.
    """

    base: Memory
    bytes: int | None = None
    block_stride: int = 0
    row_stride: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tensors of one group lie (``fby_layout_t``; the table in docs/ranks.md shows engines).

    Attributes:
        kind: ``"split"``, ``"packed"``, ``"mla"`` or ``"block_first"``.
        layers: of this rank.
        tensors: 2 * layers (split), layers (packed, mla) or 1 (block_first) of them.
        blocks: blocks in each tensor.
        row_bytes: bytes that are always contiguous.
        rows: rows per block and piece.
        layer_stride: block_first: bytes from layer to layer; else 0.
    """

    kind: str
    layers: int
    tensors: tuple[Tensor, ...]
    blocks: int
    row_bytes: int
    rows: int = 1
    layer_stride: int = 0


class CopyStatus(NamedTuple):
    """How a copy ended (``fby_copy_status_t``).

    Attributes:
        error: 0, or a negative code.
        blocks_failed: blocks not to be used.
        bytes: copied for the others.
        settled: False: the device cannot say whether it still copies; slots and tensors must stay until the process
            ends.
    """

    error: int
    blocks_failed: int
    bytes: int
    settled: bool


@dataclass(slots=True)
class Copy:
    """A load or save that was started; made by :meth:`Rank.load` and :meth:`Rank.save`. For one thread at a time.

    Attributes:
        handle: the library's handle.
        results: per block 0 or a negative code; complete when it ended.
        status: how it ended, once :meth:`poll` or :meth:`wait` said so.
    """

    handle: int
    _rank: Rank = field(repr=False)
    _results: Any = field(repr=False)
    _sums: Any = field(repr=False)
    _shape: tuple[int, int] = field(repr=False)
    status: CopyStatus | None = field(default=None)

    @property
    def results(self) -> list[int]:
        """Per block of the list: 0, or why it must not be used."""
        return [int(code) for code in self._results]

    @property
    def sums(self) -> list[list[int]]:
        """Checksums ``[blocks][segments]``; empty when they were not asked for."""
        blocks, segments = self._shape
        return [[int(self._sums[b * segments + s]) for s in range(segments)] for b in range(blocks)]

    def poll(self) -> CopyStatus | None:
        """None while it is under way, else how it ended (``fby_rank_poll``); never waits."""
        if self.status is None:
            raw = _status()
            with self._rank._using() as pointer:
                code = lib.fby_rank_poll(pointer, self.handle, raw)
            if code == -errno.EAGAIN:
                return None
            check(code)
            self._ended(raw)
        return self.status

    def wait(self, timeout: float | None = None) -> CopyStatus:
        """Waits until it ended (``fby_rank_wait``), without the interpreter's lock.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed; nothing was stopped.
        """
        if self.status is None:
            raw, handle = _status(), self.handle
            with self._rank._using() as pointer:
                wait_in_slices(lambda seconds: int(lib.fby_rank_wait(pointer, handle, seconds, raw)), timeout)
            self._ended(raw)
        assert self.status is not None
        return self.status

    def _ended(self, raw: Any) -> None:
        self._rank._ended(self.handle)
        self.status = CopyStatus(raw.error, int(raw.blocks_failed), int(raw.bytes), bool(raw.settled))


def _status() -> Any:
    raw = ffi.new("fby_copy_status_t *")
    raw.size = ffi.sizeof("fby_copy_status_t")
    return raw


# What a device may still write to after a detach that could not prove its end: kept until the process ends.
_abandoned: list[Any] = []


class Rank:
    """A process that copies between slots and its own device memory (``fby_rank_t``). It decides nothing.

    What protects the slots is the hold or put of the process that has the cache. May be used from any thread. A context
    manager: leaving it detaches. Making one is :meth:`attach`.

    Args:
        pool: from :meth:`Cache.pool`; its descriptor may be closed afterwards.
        rank: 0 to ``ranks - 1``.
        ranks: how many share the slots.
        device: ``"host"`` or ``"cuda"``.
        threads: host: that many copy at once, the caller included.
        library: cuda: path of the driver library.
        ordinal: cuda: which device.
        driver: address of a ``fby_device_driver_t`` of the caller's, instead of ``device``; 0: none.

    Attributes:
        rank: as given.
        ranks: as given.

    Raises:
        ArgumentError: a field of pool or configuration; the detail names it.
        FormatError: the descriptor is not that pool.
        OSError: no descriptor, no driver library, no such device.
    """

    __slots__ = (
        "__weakref__", "_alive", "_core", "_lock", "_memory", "_pointer", "_segments", "_users", "rank", "ranks",
    )  # fmt: skip

    def __init__(
        self,
        pool: Pool,
        rank: int = 0,
        ranks: int = 1,
        *,
        device: str = "host",
        threads: int = 1,
        library: str | os.PathLike[str] | None = None,
        ordinal: int = 0,
        driver: int = 0,
    ) -> None:
        self._pointer = None
        config, alive = _config(rank, ranks, device, threads, library, ordinal, driver)
        raw, out = pool_in(pool), ffi.new("fby_rank_t **")
        check(lib.fby_rank_attach(raw, config, out))
        del alive
        self._own(out[0], None, rank, ranks)

    @classmethod
    def attach(
        cls,
        pool: Pool,
        rank: int = 0,
        ranks: int = 1,
        *,
        device: str = "host",
        threads: int = 1,
        library: str | os.PathLike[str] | None = None,
        ordinal: int = 0,
        driver: int = 0,
    ) -> Rank:
        """The same as making one, by its C name (``fby_rank_attach``); arguments and errors are those of the class."""
        return cls(
            pool, rank, ranks, device=device, threads=threads, library=library, ordinal=ordinal, driver=driver
        )  # fmt: skip

    @classmethod
    def attach_cache(
        cls,
        cache: Cache,
        rank: int = 0,
        ranks: int = 1,
        *,
        device: str = "host",
        threads: int = 1,
        library: str | os.PathLike[str] | None = None,
        ordinal: int = 0,
        driver: int = 0,
    ) -> Rank:
        """The same for a cache of this process, connected ones too (``fby_rank_attach_cache``).

        The arguments are those of the class. Detach it before the cache is closed.

        Raises:
            ForebayError: as for the class, and for any call on a cache.
        """
        config, alive = _config(rank, ranks, device, threads, library, ordinal, driver)
        out = ffi.new("fby_rank_t **")
        check(lib.fby_rank_attach_cache(cache._core.pointer, config, out))
        del alive
        self = cls.__new__(cls)
        self._own(out[0], cache._core, rank, ranks)
        return self

    def _own(self, pointer: Any, core: Core | None, rank: int, ranks: int) -> None:
        self._pointer = pointer
        self._core = core
        self._lock = threading.Lock()
        self._users = 0  # threads inside a call: detach frees what they use
        self._alive: dict[int, Any] = {}  # lists that a copy under way may write
        self._memory: list[Any] = []  # buffers that are registered
        self._segments: dict[int, int] = {}
        self.rank = rank
        self.ranks = ranks

    @contextlib.contextmanager
    def _using(self) -> Iterator[Any]:
        with self._lock:
            pointer = self._pointer
            if pointer is None:
                raise StateError(lib.FBY_E_STATE, "the rank is detached")
            self._users += 1
        try:
            yield pointer
        finally:
            with self._lock:
                self._users -= 1

    def _ended(self, handle: int) -> None:
        self._alive.pop(handle, None)

    def register(self, group: int, layout: Layout, *, offset: int, size: int, segment_bytes: int = 0) -> None:
        """Says where this rank's part of a group's payload lies on the device (``fby_rank_register``); once per group.

        Args:
            group: index of the group.
            layout: this rank's tensors.
            offset: of this rank's shard in the payload, in bytes.
            size: of the shard: all layers; layout ``mla``: the whole payload.
            segment_bytes: cuts the shard for checksums; 0: no sums come from copies.

        Raises:
            ArgumentError: the detail names field, value, and what is accepted.
            ValueError: a layout that is not known, or an address without a number of bytes.
            OSError: an address that is not the device's, or the group has a layout already.
        """
        shard, raw = ffi.new("fby_shard_t *"), ffi.new("fby_layout_t *")
        shard.size, raw.size = ffi.sizeof("fby_shard_t"), ffi.sizeof("fby_layout_t")
        shard.group, shard.offset, shard.bytes, shard.segment_bytes = group, offset, size, segment_bytes
        tensors, memory = _tensors_in(layout.tensors)
        raw.kind = number_of(LAYOUT_NUMBERS, "layout kind", layout.kind)
        raw.layers, raw.tensors, raw.tensor = layout.layers, len(layout.tensors), tensors
        raw.blocks, raw.row_bytes, raw.rows, raw.layer_stride = (
            layout.blocks, layout.row_bytes, layout.rows, layout.layer_stride,
        )  # fmt: skip
        out = ffi.new("uint64_t *")
        with self._using() as pointer:
            check(lib.fby_rank_register(pointer, shard, raw))
            self._memory.extend(memory)
            check(lib.fby_rank_segments(pointer, group, out))
        self._segments[group] = int(out[0])

    def load(
        self,
        group: int,
        places: Sequence[int],
        device_blocks: Sequence[int],
        *,
        verify: bool = False,
        sums: bool = False,
        after: int = 0,
    ) -> Copy:
        """Starts a copy from slots to device blocks (``fby_rank_load``). With device ``host`` it is done on return.

        Args:
            group: index of the group.
            places: of the slots, none :data:`NO_PLACE`.
            device_blocks: one for each, none twice.
            verify: checks each payload against its trailer; a block that fails is in ``results``.
            sums: gives this rank's checksums in ``Copy.sums``.
            after: cuda: a ``CUevent`` to begin behind.

        Raises:
            ArgumentError: a wrong list; nothing was copied.
            BusyError: 1,024 copies were not polled to their end.
        """
        return self._copy(lib.fby_rank_load, group, places, device_blocks, lib.FBY_COPY_VERIFY * verify, sums, after)

    def save(
        self, group: int, places: Sequence[int], device_blocks: Sequence[int], *, sums: bool = False, after: int = 0
    ) -> Copy:
        """Starts a copy from device blocks to slots of a put (``fby_rank_save``); as :meth:`load`."""
        return self._copy(lib.fby_rank_save, group, places, device_blocks, 0, sums, after)

    def _copy(
        self,
        call: Any,
        group: int,
        places: Sequence[int],
        device_blocks: Sequence[int],
        flags: int,
        with_sums: bool,
        after: int,
    ) -> Copy:
        n = len(places)
        if len(device_blocks) != n:
            raise ValueError(f"{n} places and {len(device_blocks)} device blocks; accepted: as many of both")
        segments = self._segments.get(group, 0) if with_sums else 0
        place, block = ffi.new("uint64_t[]", list(places)), ffi.new("uint64_t[]", list(device_blocks))
        results = ffi.new("int32_t[]", n)
        sums = ffi.new("uint64_t[]", n * segments) if segments else ffi.NULL
        raw, out = ffi.new("fby_copy_list_t *"), ffi.new("fby_copy_t *")
        raw.size = ffi.sizeof("fby_copy_list_t")
        raw.group, raw.flags, raw.blocks, raw.place, raw.device_block = group, flags, n, place, block
        raw.sums, raw.results, raw.after = sums, results, ffi.cast("void *", after)
        with self._using() as pointer:
            check(call(pointer, raw, out))
            self._alive[int(out[0])] = (results, sums)
        return Copy(int(out[0]), self, results, sums, (n, segments))

    def event_fd(self) -> int:
        """Readable when a copy may have ended (``fby_rank_event_fd``). The rank's own: read it, do not close it."""
        with self._using() as pointer:
            return check(lib.fby_rank_event_fd(pointer))

    def detach(self, limit_s: float | None = DETACH_LIMIT_S) -> None:
        """Waits for what is under way, unmaps, frees (``fby_rank_detach``). Idempotent.

        Args:
            limit_s: longest wait in seconds; None waits for ever.

        Raises:
            StateError: another thread is inside a call; nothing has changed.
            AbandonedError: copies did not end; the mapping stays until the process ends.
            ForkedError: it is the parent process's.
        """
        with self._lock:
            if self._users > 0:
                raise StateError(lib.FBY_E_STATE, f"{self._users} threads use the rank; accepted: detach after them")
            pointer, self._pointer = self._pointer, None
        if pointer is None:
            return
        try:
            check(lib.fby_rank_detach(pointer, -1.0 if limit_s is None else limit_s))
        except AbandonedError:
            _abandoned.append((self._alive, self._memory))
            raise
        self._alive, self._memory = {}, []

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    def __del__(self) -> None:
        if self._pointer is not None:
            with contextlib.suppress(ForebayError):
                self.detach()

    def __repr__(self) -> str:
        return f"<forebay.Rank {self.rank} of {self.ranks}{', detached' if self._pointer is None else ''}>"


def _tensors_in(tensors: Sequence[Tensor]) -> tuple[Any, list[Any]]:
    """``fby_tensor_t[]``, and the buffers that must stay while the rank may copy."""
    raw = ffi.new("fby_tensor_t[]", len(tensors))
    memory: list[Any] = []
    for one, tensor in zip(raw, tensors, strict=True):
        if isinstance(tensor.base, int):
            if tensor.bytes is None:
                raise ValueError("a tensor is an address without a number of bytes; accepted: both, or a buffer")
            one.base, one.bytes = ffi.cast("void *", tensor.base), tensor.bytes
        else:
            buffer = ffi.from_buffer("char[]", tensor.base, require_writable=True)
            if tensor.bytes is not None and tensor.bytes > len(buffer):
                raise ValueError(f"a tensor has {tensor.bytes} bytes in a buffer of {len(buffer)}")
            one.base, one.bytes = buffer, len(buffer) if tensor.bytes is None else tensor.bytes
            memory.append(buffer)
        one.block_stride, one.row_stride = tensor.block_stride, tensor.row_stride
    return raw, memory


def _config(
    rank: int, ranks: int, device: str, threads: int, library: Any, ordinal: int, driver: int
) -> tuple[Any, Any]:
    """``fby_rank_config_t`` and what must stay alive with it."""
    raw = ffi.new("fby_rank_config_t *")
    raw.size = ffi.sizeof("fby_rank_config_t")
    name = ffi.new("char[]", device.encode("utf-8"))
    path = ffi.NULL if library is None else ffi.new("char[]", os.fsencode(library))
    raw.rank, raw.ranks, raw.threads, raw.device, raw.library, raw.ordinal = rank, ranks, threads, name, path, ordinal
    raw.driver = ffi.cast("fby_device_driver_t *", driver)
    return raw, (name, path)
