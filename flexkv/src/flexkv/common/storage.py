"""How a rank's KV tensors lie, as the integration describes them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class KVCacheLayoutType(enum.Enum):
    """The order of layers and blocks."""

    LAYERFIRST = "LAYERFIRST"
    BLOCKFIRST = "BLOCKFIRST"


@dataclass(frozen=True)
class KVCacheLayout:
    """One rank's tensors.

    Attributes:
        type: a tensor per layer, or one for all.
        num_layer: layers of this rank.
        num_block: pages.
        tokens_per_block: tokens of a page.
        num_head: heads of this rank.
        head_size: values per head.
        is_mla: K and V are one tensor, the same on all ranks.
    """

    type: KVCacheLayoutType
    num_layer: int
    num_block: int
    tokens_per_block: int
    num_head: int
    head_size: int
    is_mla: bool = False
