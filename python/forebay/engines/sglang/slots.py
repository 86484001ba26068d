"""Slots of SGLang's device pools: allocated for a load, freed, and as pages of each payload group. Imports SGLang."""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import EvictParams  # type: ignore[import-not-found, unused-ignore]
from sglang.srt.mem_cache.unified_cache.components import (  # type: ignore[import-not-found, unused-ignore]
    ComponentType,
)


class Slots:
    """Slots where every layer keeps every token.

    Args:
        allocator: SGLang's.
        page_tokens: of a page.

    Attributes:
        window: tokens that layers with a sliding window keep; 0: there are none.
    """

    window = 0

    def __init__(self, allocator: Any, page_tokens: int) -> None:
        self._allocator, self._page = allocator, page_tokens

    def allocate(self, cache: Any, tokens: int) -> Any:
        """Slots of whole pages, for which the cache evicts; None: there are none to be had."""
        missing = tokens - self._allocator.available_size()
        if missing > 0:
            cache.evict_for_alloc(EvictParams(num_tokens=missing))
        return self._allocator.alloc(tokens)

    def free(self, slots: Any) -> None:
        """Gives back what :meth:`allocate` gave."""
        self._allocator.free(slots)

    def pages(self, slots: Any) -> list[list[int]]:
        """Per group the page of each ``page_tokens`` slots."""
        return [[slot // self._page for slot in slots[:: self._page].tolist()]]

    def window_ends(self, tokens: int, end: int) -> dict[Any, int]:
        """For an insertion of so many tokens up to ``end``: up to where layers with a window have nothing."""
        del tokens, end
        return {}

    def window_from(self, slots: Any) -> int:
        """The first page from which on layers with a window have all."""
        del slots
        return 0


class WindowSlots(Slots):
    """Slots where layers with a sliding window have a pool of their own, which keeps the newest tokens.

    Args:
        allocator: SGLang's.
        page_tokens: of a page.
        window: tokens of whole pages that resuming needs.
    """

    def __init__(self, allocator: Any, page_tokens: int, window: int) -> None:
        super().__init__(allocator, page_tokens)
        self.window = window

    def allocate(self, cache: Any, tokens: int) -> Any:
        """See :meth:`Slots.allocate`; of the window's pool only for the last tokens."""
        allocator, tail = self._allocator, min(tokens, self.window)
        missing = max(0, tokens - allocator.full_available_size())
        missing_tail = max(0, tail - allocator.swa_available_size())
        if missing or missing_tail:
            cache.evict_for_alloc(EvictParams(num_tokens=missing, swa_num_tokens=missing_tail))
        slots = allocator.full_attn_allocator.alloc(tokens)
        if slots is None:
            return None
        allocator.clear_full_to_swa_mapping(slots)
        tails = allocator.swa_attn_allocator.alloc(tail)
        if tails is None:
            allocator.free_full(slots)
            return None
        allocator.set_full_to_swa_mapping(slots[-tail:], tails)
        return slots

    def free(self, slots: Any) -> None:
        """See :meth:`Slots.free`."""
        tail = min(len(slots), self.window)
        self._allocator.free(slots[-tail:])
        self._allocator.free_full(slots[:-tail])

    def _in_window(self, slots: Any) -> list[int]:
        """Per page the slot in the window's pool; 0: none."""
        return [int(slot) for slot in self._allocator.translate_loc_from_full_to_swa(slots[:: self._page]).tolist()]

    def pages(self, slots: Any) -> list[list[int]]:
        """See :meth:`Slots.pages`; page 0, which is nobody's, where the window's pool has none."""
        return [*super().pages(slots), [max(0, slot) // self._page for slot in self._in_window(slots)]]

    def window_ends(self, tokens: int, end: int) -> dict[Any, int]:
        """See :meth:`Slots.window_ends`."""
        return {ComponentType.SWA: end - min(tokens, self.window)}

    def window_from(self, slots: Any) -> int:
        """See :meth:`Slots.window_from`."""
        found = self._in_window(slots)
        return next((i + 1 for i in range(len(found) - 1, -1, -1) if found[i] <= 0), 0)


def slots_of(allocator: Any, page_tokens: int, window: int) -> Slots:
    """Slots of an allocator; with a window's tokens, of one that has a pool for it."""
    return WindowSlots(allocator, page_tokens, window) if window else Slots(allocator, page_tokens)
