"""Figures of a connector as engines' statistics carry them: counters since the last report, and gauges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Counters of the cache that are reported as differences: name here, name in the cache's statistics.
CACHE_COUNTERS: dict[str, str] = {
    "sessions": "sessions",
    "tokens_found": "tokens_found",
    "tokens_loaded": "tokens_loaded",
    "tokens_delivered": "tokens_delivered",
    "graphs": "graphs",
    "blocks_published": "blocks_published",
    "blocks_evicted": "blocks_evicted",
    "store_writes": "writes",
    "store_writes_failed": "writes_failed",
    "store_bytes_read": "bytes_read",
    "store_bytes_written": "bytes_written",
}
CACHE_GAUGES: dict[str, str] = {
    "sessions_running": "sessions_running_gauge",
    "resident_blocks": "resident_blocks_gauge",
    "pinned_bytes": "pinned_bytes_gauge",
    "reserved_bytes": "reserved_bytes_gauge",
}

COUNTERS: dict[str, str] = {
    "sessions": "prefetches started",
    "tokens_found": "tokens that index and store had",
    "tokens_loaded": "tokens read from the store and delivered",
    "tokens_delivered": "tokens delivered to the engine's match",
    "graphs": "graphs ended",
    "blocks_published": "blocks that became resident",
    "blocks_evicted": "blocks evicted",
    "store_writes": "objects that the store took",
    "store_writes_failed": "objects that it did not",
    "store_bytes_read": "bytes read from the store",
    "store_bytes_written": "bytes written to it",
    "rank_bytes_loaded": "bytes copied from the pool into the engine's blocks",
    "rank_bytes_saved": "bytes copied from the engine's blocks into the pool",
    "failed_blocks": "blocks of the engine that a load did not fill",
}
GAUGES: dict[str, str] = {
    "sessions_running": "prefetches running",
    "resident_blocks": "blocks resident in the pool",
    "pinned_bytes": "bytes that prefetches and leases protect",
    "reserved_bytes": "bytes of reads under way",
}


def cache_figures(stats: Mapping[str, int]) -> dict[str, int]:
    """What is reported of a cache's statistics: totals of counters, and gauges."""
    return {name: int(stats[theirs]) for name, theirs in (CACHE_COUNTERS | CACHE_GAUGES).items()}


def differences(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Counters as amounts added since ``before``, never negative, without those that stood; gauges as they are."""
    made = {name: value for name, value in now.items() if name in GAUGES}
    for name, value in now.items():
        added = max(0, value - before.get(name, 0))
        if name in COUNTERS and added > 0:
            made[name] = added
    return made


def add(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a later report to an earlier one, in place: counters sum up, the later gauge stands."""
    for name, value in other.items():
        one[name] = value if name in GAUGES else one.get(name, 0) + value
    return one
