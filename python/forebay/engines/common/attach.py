"""How a rank comes to the pool of the deciding process: one function on each side; layouts of the KV tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import forebay

from .address import Instance, PoolAddress

if TYPE_CHECKING:
    from .model import EngineModel


TICK_NS = 100_000_000
"""Two servers of one process id began to listen further apart than this."""


class AwayError(RuntimeError):
    """The server is not there now: asked again in the next step."""


class AttachError(RuntimeError):
    """A rank cannot use the pool; the message names what differs, with both values."""


def server_instance(cache: forebay.Cache) -> Instance:
    """Which server is behind a connected cache: its process, and when it began to listen, to the tenth of a second.

    Raises:
        forebay.ForebayError: the server is away.
    """
    info = cache.server_info()
    return info.pid, (time.monotonic_ns() - info.age_ns + TICK_NS // 2) // TICK_NS * TICK_NS


def _is_same(one: Instance, other: Instance) -> bool:
    """Whether two looks saw the same server: ages are rounded, and a message takes time."""
    return one[0] == other[0] and abs(one[1] - other[1]) <= TICK_NS


class PublishedPool:
    """The scheduler's end of :func:`attach_pool`: where workers find the pool, and whether that still holds.

    Args:
        cache: of this process, or connected.
        model: that workers compare with theirs.
        server: socket of the server that has the cache, or None.
        verify: loads check each slot.

    Raises:
        forebay.ForebayError: no descriptor is to be had, or the server is away.
    """

    def __init__(self, cache: forebay.Cache, model: EngineModel, *, server: str | None, verify: bool) -> None:
        self._cache, self._model, self._server, self._verify = cache, model, server, verify
        self._pool: forebay.Pool | None = None
        self._knock = cache.sequence([0])  # a call with it tries to connect again; asking for the pool does not
        self.address = self._publish()

    def _publish(self) -> PoolAddress:
        instance = (os.getpid(), 0) if self._server is None else server_instance(self._cache)
        pool = self._cache.pool()
        groups = tuple((group[0], group[1], group[2], group[3], group[4]) for group in pool.groups)
        if self._server is None:
            self._pool = pool  # its descriptor stays open until the workers have come
        else:
            pool.close()
        return PoolAddress(
            *instance,
            self._server,
            pool.descriptor if self._server is None else -1,
            pool.bytes,
            groups,
            pool.fingerprint,
            self._verify,
            self._model.digest(),
        )

    def is_current(self) -> bool:
        """Whether places of the cache still mean this pool. Asks the server, if there is one."""
        if self._server is None:
            return True
        try:
            return self._cache.connected and _is_same(server_instance(self._cache), self.address.instance)
        except forebay.ForebayError:
            return False

    def renew(self) -> bool:
        """Publishes the pool of a server that came back. Whether it did."""
        try:
            if not self._cache.connected:
                self._cache.lookup_advisory(self._knock)
            self.address = self._publish()
        except forebay.ForebayError:
            return False
        return True

    def close(self) -> None:
        """All workers have come, or none will."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _same_model(address: PoolAddress, mine: Mapping[str, str], rank: int) -> None:
    for name in sorted(set(address.model) | set(mine)):
        theirs, own = address.model.get(name, "nothing"), mine.get(name, "nothing")
        if theirs != own:
            raise AttachError(f"{name} is {own!r} on rank {rank} and {theirs!r} in the scheduler's process")


def attach_pool(
    address: PoolAddress, model: EngineModel, rank: int, *, device: str, threads: int, name: str
) -> tuple[forebay.Rank, Any]:
    """Maps the pool in this process, for copies.

    A server hands out the descriptor itself, over a connection that lives as long as the rank, for so long the process
    can write to slots. The cache of the scheduler's process is reached through ``/proc``: the kernel lets in a process
    of the same user.

    Args:
        address: of the pool.
        model: this rank's.
        rank: its number.
        device: back end of copies.
        threads: of one copy on the host.
        name: of the engine, for the server's list of clients.

    Returns:
        the rank, and what must be kept with it.

    Raises:
        AttachError: this rank's model is not the scheduler's.
        AwayError: the server is not there, or not the one that the scheduler spoke of; it may come back.
        OSError: the descriptor cannot be opened.
        forebay.ForebayError: it is not that pool.
    """
    _same_model(address, model.digest(), rank)
    pool, kept = (
        _server_pool(address, f"{name} rank {rank}") if address.server is not None else (_process_pool(address), None)
    )
    try:
        ordinal = _ordinal() if device == "cuda" else 0
        return forebay.Rank(pool, rank, model.ranks, device=device, threads=threads, ordinal=ordinal), kept
    finally:
        pool.close()


def _process_pool(address: PoolAddress) -> forebay.Pool:
    descriptor = os.open(f"/proc/{address.process}/fd/{address.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    groups = tuple(forebay.PoolGroup(*group) for group in address.groups)
    return forebay.Pool(descriptor, address.bytes, groups, address.fingerprint)


def _server_pool(address: PoolAddress, name: str) -> tuple[forebay.Pool, forebay.Cache]:
    assert address.server is not None
    try:
        cache = forebay.connect(address.server, name=name)
        pool = cache.pool()
        instance = server_instance(cache)
    except (forebay.ForebayError, OSError) as error:
        raise AwayError(f"the server at {address.server} cannot be reached: {error}") from error
    if not _is_same(instance, address.instance):
        pool.close()
        cache.close(0)
        raise AwayError(f"the server at {address.server} is another one by now")
    return pool, cache


def _ordinal() -> int:
    import torch  # type: ignore[import-not-found, unused-ignore]

    return int(torch.cuda.current_device())


def _is_dense(block: Any) -> bool:
    """Whether a block's bytes lie close together, in whatever order its dimensions are."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(block.shape, block.stride(), strict=True))
    return bool(span == block.numel())


def _tensor(view: Any) -> tuple[forebay.Tensor, int]:
    """A tensor whose first dimension counts blocks, and the bytes of one block."""
    size = int(view.element_size())
    if not _is_dense(view[0]):
        raise AttachError(
            f"a KV tensor of shape {tuple(view.shape)} has strides {tuple(view.stride())}; accepted: whole blocks"
        )
    block, stride = int(view[0].numel()) * size, int(view.stride(0)) * size
    return forebay.Tensor(int(view.data_ptr()), (int(view.shape[0]) - 1) * stride + block, stride), block


def _views(tensor: Any) -> list[Any]:
    """One view per piece of a layer, block first: as given, the tensor itself, or K and V of its first dimension."""
    if isinstance(tensor, (list, tuple)):
        return list(tensor)
    if tensor.dim() == 5 and tensor.shape[0] == 2 and tensor.shape[1] != 2:
        return [tensor[0], tensor[1]]
    return [tensor]


def layout_of(tensors: Sequence[Any], *, is_shared: bool) -> tuple[forebay.Layout, int]:
    """The layout of one group from its layers' tensors, and the bytes of a block on this rank.

    Args:
        tensors: per layer ``[blocks, …]``, or ``[2, blocks, …]`` with K and V apart, or a list of both.
        is_shared: all ranks have the same bytes (MLA).

    Raises:
        AttachError: blocks that are not whole, or layers that differ.
    """
    views = [_views(tensor) for tensor in tensors]
    pieces = [piece for i in range(len(views[0])) for piece in (view[i] for view in views)]
    made = [_tensor(piece) for piece in pieces]
    row_bytes = made[0][1]
    if any(block != row_bytes for _, block in made) or any(len(view) != len(views[0]) for view in views):
        raise AttachError("layers of one KV cache group differ in the bytes of a block; accepted: equal ones")
    kind = "mla" if is_shared else "split" if len(views[0]) == 2 else "packed"
    blocks = int(pieces[0].shape[0])
    layout = forebay.Layout(kind, len(tensors), tuple(tensor for tensor, _ in made), blocks, row_bytes)
    return layout, row_bytes * len(pieces)


def register_tensors(rank: forebay.Rank, model: EngineModel, number: int, tensors: Mapping[str, Any]) -> None:
    """Registers every group's tensors with a rank.

    Args:
        rank: attached.
        model: its groups.
        number: of the rank.
        tensors: by layer.

    Raises:
        AttachError: a layer is missing, or its blocks are not what the scheduler's side counted with.
    """
    for index, group in enumerate(model.groups):
        missing = [layer for layer in group.layers if layer not in tensors]
        if missing:
            raise AttachError(f"rank {number} has no KV tensor of layer {missing[0]}")
        layout, size = layout_of([tensors[layer] for layer in group.layers], is_shared=group.is_shared)
        if size != group.page_bytes:
            raise AttachError(
                f"a block of group {group.name} has {size} bytes on rank {number}, {group.page_bytes} were expected"
            )
        offset = 0 if group.is_shared else number * size
        rank.register(index, layout, offset=offset, size=size)
