"""Host pools as SGLang has them, over plain memory, and what its storage configuration says."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

ROWS, ROW_BYTES = 4, 64  # of a page, and bytes of K or V of a row


class Policy(str, Enum):
    """As SGLang names it."""

    ALL_PAGES = "all_pages"
    TRAILING_PAGES = "trailing_pages"
    BLOCK_GROUPS = "block_groups"


class ToyHostPool:
    """Pages of K and V that lie in two tensors, page first.

    Args:
        pages: how many.
        row_bytes: of K or V of one row.
    """

    layout, dtype, storage_format_tag = "page_first_direct", "torch.float32", None
    start_layer, end_layer, layer_num = 0, 2, 2

    def __init__(self, pages: int = 64, row_bytes: int = ROW_BYTES) -> None:
        self.page_size, self.pages, self._piece = ROWS, pages, ROWS * row_bytes
        self.memory = bytearray(2 * pages * self._piece)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def get_page_buffer_meta(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        pages = [indices[i] // ROWS for i in range(0, len(indices), ROWS)]
        pointers = [self._base + (half * self.pages + page) * self._piece for page in pages for half in (0, 1)]
        return pointers, [self._piece] * len(pointers)

    def page(self, page: int) -> bytes:
        """The bytes of a page."""
        return b"".join(self.memory[half + page * self._piece :][: self._piece] for half in self._halves())

    def fill(self, page: int, seed: int) -> bytes:
        """Gives a page bytes of its own, and returns them."""
        for number, half in enumerate(self._halves()):
            begin = half + page * self._piece
            self.memory[begin : begin + self._piece] = bytes(
                (seed * 37 + number * 11 + byte * 3) % 255 + 1 for byte in range(self._piece)
            )
        return self.page(page)

    def _halves(self) -> tuple[int, int]:
        return 0, self.pages * self._piece


class LogicalPool:
    """An anchor without bytes."""

    layout, page_size = "layer_first", ROWS

    def get_page_buffer_meta(self, indices: Sequence[int]) -> None:
        del indices


def rows(*pages: int) -> list[int]:
    """Indices of whole pages."""
    return [page * ROWS + row for page in pages for row in range(ROWS)]


def storage_config(**changes: Any) -> Any:
    """``HiCacheStorageConfig`` of one rank."""
    values = {
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "dp_rank": 0,
        "dcp_rank": 0, "dcp_size": 1, "is_mla_model": False, "model_name": "toy", "enable_storage_metrics": True,
        "extra_config": {},
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def transfer(
    name: str, keys: Sequence[str], policy: Policy = Policy.ALL_PAGES, indices: Any = None, **geometry: int
) -> Any:
    """``PoolTransfer``."""
    return SimpleNamespace(
        name=name, keys=list(keys), hit_policy=policy, host_indices=indices,
        block_pages=geometry.get("block_pages", 0), group_pages=geometry.get("group_pages", 0),
    )  # fmt: skip
