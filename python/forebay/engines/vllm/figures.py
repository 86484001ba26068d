"""Figures of the connector as vLLM's statistics carry them."""

from __future__ import annotations

from ..common.figures import CACHE_COUNTERS, CACHE_GAUGES, COUNTERS, GAUGES, add, cache_figures, differences

__all__ = ["CACHE_COUNTERS", "CACHE_GAUGES", "COUNTERS", "GAUGES", "add", "cache_figures", "differences"]
