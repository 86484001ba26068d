"""A rank's KV tensors: what they are, for the leader; and as layouts, for copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import forebay
from forebay.engines.common.model import EngineModel, UnsupportedModelError
from forebay.engines.sglang.model import describe

if TYPE_CHECKING:
    from forebay.engines.sglang.pools import PoolPart

    from flexkv.common.storage import KVCacheLayout

MOST_SLABS = 8
"""Parts that a layer-wise load is made of, at most."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be the same on all ranks, and what the model's fingerprint is made of.

    Attributes:
        layers: of a rank.
        pages: in each tensor.
        page_tokens: tokens of a page.
        piece_bytes: one page of one tensor.
        is_shared: all ranks have the same bytes (MLA): one tensor per layer; else K and V.
        dtype: of the values.
        device: ``"host"`` or ``"cuda"``.
    """

    layers: int
    pages: int
    page_tokens: int
    piece_bytes: int
    is_shared: bool
    dtype: str
    device: str

    @property
    def layer_bytes(self) -> int:
        """One page of one layer."""
        return self.piece_bytes if self.is_shared else 2 * self.piece_bytes

    @property
    def page_bytes(self) -> int:
        """One page of all layers."""
        return self.layers * self.layer_bytes

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def model(self, engine: Any, arguments: Any, version: str, ranks: int) -> EngineModel:
        """The model that the engine runs, with these tensors.

        Args:
            engine: SGLang's model configuration.
            arguments: SGLang's ``ServerArgs``.
            version: of SGLang.
            ranks: that share it.
        """
        return describe(
            engine,
            [cast("PoolPart", _Part(self))],
            version=version,
            page_tokens=self.page_tokens,
            ranks=ranks,
            arguments=arguments,
        )


class _Part:
    """The facts as :func:`describe` reads them of a pool's part: the tensors themselves are in other processes."""

    name, order = "a", "nhd"

    def __init__(self, facts: Facts) -> None:
        self.layers = {f"layer {number}": None for number in range(facts.layers)}
        self.page_bytes, self.is_shared, self.dtype = facts.page_bytes, facts.is_shared, facts.dtype


def _is_dense(tensor: Any) -> bool:
    """Whether the slots' bytes lie close together, in order."""
    wanted = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if size > 1 and stride != wanted:
            return False
        wanted *= size
    return True


def facts_of(tensors: Sequence[Any], layout: KVCacheLayout) -> Facts:
    """What a rank's tensors are.

    Args:
        tensors: K of all layers and then V of all, or one per layer (MLA); each ``[slots, heads, size]``.
        layout: that they are described with.

    Raises:
        UnsupportedModelError: tensors that differ from each other or from the description, or are not dense.
    """
    pieces = layout.num_layer * (1 if layout.is_mla else 2)
    if len(tensors) != pieces:
        raise UnsupportedModelError(f"there are {len(tensors)} KV tensors; accepted: {pieces} for this layout")
    first = tensors[0]
    for tensor in tensors:
        if tuple(tensor.shape) != tuple(first.shape) or tensor.dtype != first.dtype or not _is_dense(tensor):
            raise UnsupportedModelError(
                f"a KV tensor has shape {tuple(tensor.shape)} of {tensor.dtype}, strides {tuple(tensor.stride())}; "
                f"accepted: dense ones of shape {tuple(first.shape)} of {first.dtype}"
            )
    row = int(first.element_size())
    for size in first.shape[1:]:
        row *= int(size)
    return Facts(
        layers=layout.num_layer,
        pages=int(first.shape[0]) // layout.tokens_per_block,
        page_tokens=layout.tokens_per_block,
        piece_bytes=row * layout.tokens_per_block,
        is_shared=layout.is_mla,
        dtype=str(first.dtype).removeprefix("torch."),
        device="cuda" if str(getattr(first.device, "type", first.device)) == "cuda" else "host",
    )


def slabs_of(layers: int) -> list[range]:
    """The layers of each part of a layer-wise load."""
    count = min(layers, MOST_SLABS)
    edges = [layers * i // count for i in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def layout_of(tensors: Sequence[Any], facts: Facts, layers: range, *, whole: bool) -> forebay.Layout:
    """The layout of some layers' pages.

    Args:
        tensors: as for :func:`facts_of`.
        facts: of them.
        layers: which.
        whole: all of a rank's layers; a part of shared tensors is described as packed, for loads alone.
    """
    made = [
        forebay.Tensor(int(tensor.data_ptr()), facts.pages * facts.piece_bytes, facts.piece_bytes) for tensor in tensors
    ]
    keys = made[layers.start : layers.stop]
    values = [] if facts.is_shared else made[facts.layers + layers.start : facts.layers + layers.stop]
    kind = "split" if not facts.is_shared else "mla" if whole else "packed"
    return forebay.Layout(kind, len(layers), tuple(keys + values), facts.pages, facts.piece_bytes)
