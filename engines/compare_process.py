"""What a server's processes hold, seen from outside."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

POOL_MAPPING_BYTES = 256 << 20
"""Larger mappings are pools and weights: touching a pool for the first time is no leak."""


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def mapped_bytes(smaps: str, largest: int = POOL_MAPPING_BYTES) -> int:
    """Resident bytes of a process by its /proc/PID/smaps, shared ones in equal parts; no mapping above `largest`."""
    total, counts = 0, False
    for line in smaps.splitlines():
        words = line.split()
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", words[0]):
            begin, end = (int(word, 16) for word in words[0].split("-"))
            counts = end - begin <= largest
        elif counts and words[0] == "Pss:":
            total += int(words[1]) << 10
    return total


def process_totals(pid: int) -> tuple[int, int, int]:
    """Resident bytes outside of pools, threads and descriptors of a process and all below it."""
    rss = threads = descriptors = 0
    left = [pid]
    while left:
        one = left.pop()
        with contextlib.suppress(OSError, ValueError):
            found = Path(f"/proc/{one}")
            left += _children(one)
            threads += len(list((found / "task").iterdir()))
            descriptors += len(list((found / "fd").iterdir()))
            rss += mapped_bytes((found / "smaps").read_text())
    return rss, threads, descriptors
