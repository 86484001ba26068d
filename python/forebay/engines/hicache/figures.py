"""What became of pages, as SGLang's ``StorageMetrics`` wants it. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

MOST_KEPT = 4096
"""Calls that are remembered between two questions; beyond it the oldest are forgotten."""


class Figures(NamedTuple):
    """Since the last question, per call.

    Attributes:
        prefetch_pages: pages that came.
        backup_pages: pages that were stored.
        prefetch_gib_s: GiB per second of each call that had a page.
        backup_gib_s: likewise.
    """

    prefetch_pages: list[int]
    backup_pages: list[int]
    prefetch_gib_s: list[float]
    backup_gib_s: list[float]


class _Way:
    """Calls of one direction."""

    def __init__(self) -> None:
        self.pages: deque[int] = deque(maxlen=MOST_KEPT)
        self.rates: deque[float] = deque(maxlen=MOST_KEPT)


class Counter:
    """Pages and rates of calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prefetch, self._backup = _Way(), _Way()

    def add(self, pages: int, page_bytes: int, seconds: float, *, is_backup: bool) -> None:
        """Remembers a call."""
        if pages == 0:
            return
        way = self._backup if is_backup else self._prefetch
        with self._lock:
            way.pages.append(pages)
            way.rates.append(pages * page_bytes / 2**30 / max(seconds, 1e-9))

    def take(self) -> Figures:
        """What was remembered; it is forgotten."""
        with self._lock:
            prefetch, backup = self._prefetch, self._backup
            self._prefetch, self._backup = _Way(), _Way()
        return Figures(list(prefetch.pages), list(backup.pages), list(prefetch.rates), list(backup.rates))
