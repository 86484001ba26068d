"""The class that LMCache's adapter type ``native_plugin`` makes and calls."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Sequence
from typing import Any

import forebay

from ..common.opening import open_cache
from .batches import Batch, Completion, Completions
from .complaints import complain, log, use_engine_log
from .lane import Lane
from .settings import Settings, read_settings, value_model
from .tasks import Exists, Get, Place, Set, Then
from .values import bytes_of
from .versions import check_version, installed_version

CLOSE_LIMIT_S = 5.0
"""How long the end waits for store writes that are under way."""

MOST_AT_ONCE = 512 << 20
"""Bytes that each thread keeps under way at most: what ``prefetch.max_reserved_bytes`` lets be read at once."""


def _place(settings: Settings, cache: forebay.Cache) -> Place:
    pool = cache.pool()
    pool.close()
    group = pool.groups[0]
    through = settings.server is not None or settings.config.get("store.write").value == "through"
    return Place(cache, group.payload_bytes, group.slot_bytes, group.slot_bytes * group.slots // 4, through)


def _shut(lanes: tuple[Lane, ...], completions: Completions, cache: forebay.Cache) -> None:
    """Ends the threads first: when it returns nothing of ours touches LMCache's memory any more."""
    for lane in lanes:
        lane.stop()
    completions.close()
    try:
        cache.close(CLOSE_LIMIT_S)
    except forebay.ForebayError as error:
        complain("closing the cache", error)


class ForebayL2:
    """Forebay as LMCache's second level. Thread-safe; submissions never wait.

    Two threads: one reads, one writes. Memory that LMCache hands in is read or written by them alone, and not any more
    once the batch's completion was collected or :meth:`close` has returned.

    Deleting is not offered: Forebay has no call that removes one key, so LMCache's own eviction of L2 does nothing. The
    store's capacity bounds it (docs/lmcache.md).

    Args:
        **adapter_params: ``store`` (text, docs/stores.md), ``pool_bytes``, ``block_bytes``, ``timeout_s``, ``config``
            (a path or a mapping: Forebay's configuration), ``server`` (socket of a server that has the cache).

    Raises:
        UnsupportedVersionError: the LMCache of this process is not one that this was tested with.
        ValueError: a parameter that is not known or not accepted.
        forebay.ForebayError: the configuration is wrong, or the cache cannot be opened.
    """

    def __init__(self, **adapter_params: Any) -> None:
        version = installed_version()
        if version is not None:
            check_version(version)
        use_engine_log()
        self._settings = read_settings(adapter_params)
        self.cache = open_cache(self._settings, value_model(self._settings), "lmcache")
        try:
            self._place = _place(self._settings, self.cache)
            self._completions = Completions()
        except BaseException:
            self.cache.close(0)
            raise
        budget = min(self._place.most, MOST_AT_ONCE)
        self._reader, self._writer = Lane("forebay-read", budget), Lane("forebay-write", budget)
        lanes = (self._reader, self._writer)
        self._finalizer = weakref.finalize(self, _shut, lanes, self._completions, self.cache)
        self._numbers = itertools.count()
        self._log_settings()

    def _log_settings(self) -> None:
        """One line with what is in force; defaults of the configuration are left out."""
        rows = [row for row in self._settings.effective() if row.origin != "default" and row.key[:9] != "prefetch."]
        said = ", ".join(f"{row.key}={row.value} ({row.origin})" for row in rows)
        own = f"block_bytes={self._settings.block_bytes}, timeout_s={self._settings.timeout_s}"
        log.info("forebay: %s", ", ".join(part for part in (own, said) if part))

    def event_fd(self) -> int:
        """The descriptor that is readable while completions wait; -1 after :meth:`close`. Do not read or close it."""
        return self._completions.descriptor

    def submit_batch_get(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Reads values into LMCache's memory.

        Args:
            keys: LMCache's texts.
            memoryviews: for each key a writable, contiguous view, as long as its value. One whose key ends as False was
                not touched.

        Returns:
            the batch's number.

        Raises:
            ValueError: not one view per key.
        """
        return self._submit_values(self._reader, Get, keys, memoryviews)

    def submit_batch_set(self, keys: Sequence[str], memoryviews: Sequence[Any]) -> int:
        """Keeps values. The batch goes well when the store has all of them.

        Args:
            keys: LMCache's texts.
            memoryviews: for each key a contiguous view of its value.

        Returns:
            the batch's number.

        Raises:
            ValueError: not one view per key.
        """
        return self._submit_values(self._writer, Set, keys, memoryviews)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Asks which keys have a value, and reads the first block of each that has.

        Returns:
            the batch's number.
        """
        number, deadline = next(self._numbers), time.monotonic() + self._settings.timeout_s
        batch = Batch(number, "exists", len(keys), self._completions.post)
        tasks = [Exists(self._place, key, deadline, _ender(batch, index)) for index, key in enumerate(keys)]
        self._reader.submit(tasks)
        return number

    def drain_completions(self) -> list[Completion]:
        """What has ended since the last call: number, ok, the first error, and one truth value per key."""
        return self._completions.drain()

    def close(self) -> None:
        """Ends everything, within seconds: keys without a result are misses, and completions can still be drained.

        When it returns nothing touches LMCache's memory any more. Idempotent.
        """
        self._finalizer()

    def _submit_values(
        self, lane: Lane, make: type[Get] | type[Set], keys: Sequence[str], memoryviews: Sequence[Any]
    ) -> int:
        if len(keys) != len(memoryviews):
            raise ValueError(f"{len(memoryviews)} memoryviews for {len(keys)} keys; accepted: one per key")
        views = [bytes_of(view) for view in memoryviews]
        number, deadline = next(self._numbers), time.monotonic() + self._settings.timeout_s
        batch = Batch(number, make.__name__.lower(), len(keys), self._completions.post, needs_all=lane is self._writer)
        lane.submit([make(self._place, key, views[i], deadline, _ender(batch, i)) for i, key in enumerate(keys)])
        return number


def _ender(batch: Batch, index: int) -> Then:
    return lambda ok, why: batch.end(index, ok, why)
