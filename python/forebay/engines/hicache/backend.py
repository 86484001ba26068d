"""The backend without SGLang: pools' pages by hash, over one cache per pool. Any thread; no call raises."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import forebay

from ..common.keyed import Keyed, keyed_model
from ..common.opening import open_cache
from ..common.settings import CommonSettings
from .complaints import complain, log
from .config import Settings, has_files, pool_settings
from .figures import Counter, Figures
from .hits import Hits, find_hits, leading_run
from .naming import Facts, fields_of, is_replicated, is_stored_by_all, part_name, place_name
from .pools import HostPool, PoolError

LEAST_PAGES = 16
"""Fewer pages in the pool of a cache than this are refused: one batch could not be on its way."""

_NEWEST_EPOCH = re.compile(r"weights epoch \d+ is below (\d+)")

CLOSE_LIMIT_S = 10.0
RESET_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the pages of one host pool are.

    Attributes:
        pool: of SGLang's host memory.
        cache: Forebay's.
        pages: its view by hash.
    """

    pool: HostPool
    cache: forebay.Cache
    pages: Keyed


class Backend:
    """Pages of all host pools of one rank.

    Args:
        settings: of the backend.
        config: ``HiCacheStorageConfig``.
        facts: of the model.
        indices: makes ``[0, n)`` as host pools want their indices.
    """

    def __init__(self, settings: Settings, config: Any, facts: Facts, indices: Callable[[int], Any]) -> None:
        self._settings, self._config, self._facts, self._indices = settings, config, facts, indices
        self._pools: dict[str, HostPool] = {}
        self._shelves: dict[str, Shelf] = {}
        self._is_open = False
        self._counter = Counter()

    # ---- Pools ----

    def add_pool(self, name: str, host: Any) -> None:
        """Takes a host pool; once the backend is open, a cache for it too.

        Raises:
            ValueError: its pages have no addresses, or no cache is to be had for it.
            forebay.ForebayError: likewise.
        """
        known = self._pools.get(name)
        if known is not None and known.host is host:
            return
        self._pools[name] = HostPool(name, host, self._indices)
        if self._is_open:
            self._open(name, self._share(name))

    def open(self) -> None:
        """Opens a cache for every pool.

        Raises:
            ValueError: a pool that cannot be served, or a server of another model.
            forebay.ForebayError: a cache cannot be opened.
        """
        try:
            for name in self._pools:
                self._open(name, self._share(name))
        except BaseException:
            self.close()
            raise
        self._is_open = True

    def _share(self, name: str) -> float:
        """Of the pool's bytes: all; of several, half for KV, and the rest equally for the others."""
        others = [one.name for one in self._pools.values() if one.sizes and one.name != "kv"]
        has_kv = bool(self._pools["kv"].sizes) if "kv" in self._pools else False
        if not others or (name != "kv" and not has_kv and len(others) == 1):
            return 1.0
        if name == "kv":
            return 0.5
        return (0.5 if has_kv else 1.0) / len(others)

    def _refuse(self, name: str) -> None:
        bytes_of_pools = [one.name for one in self._pools.values() if one.sizes]
        if self._settings.server is not None and len(bytes_of_pools) > 1:
            raise PoolError(
                f"a server has pages of one size, and this model has pools {', '.join(bytes_of_pools)}; "
                "accepted: caches of this process (no server)"
            )
        if self._config.tp_size == 1:
            return
        if not is_replicated(self._config, name, self._pools[name].host):
            if not is_stored_by_all(self._config, name):
                log.warning("forebay: host pool %s differs between ranks, and SGLang stores one rank's: no hits", name)
            return
        checked = pool_settings(self._settings, 1.0, "unused")
        if has_files(checked):
            raise PoolError(
                f"pool {name} is the same on all {self._config.tp_size} ranks, one of which writes it, and the store "
                f"{checked.config.get('store.driver').value} belongs to one process; accepted: a server, or a store "
                "that processes share (redis, mooncake)"
            )

    def _open(self, name: str, share: float) -> None:
        pool = self._pools[name]
        if not pool.sizes:
            return
        self._refuse(name)
        cache, settings = self._open_cache(pool, share)
        try:
            self._check_room(pool, cache)
            pages = Keyed(
                cache,
                part_name(self._config, name, pool.host),
                complain=complain,
                window=self._settings.window,
                read_ahead=self._settings.read_ahead,
                write_back=settings.config.get("store.write").value == "back",
                verify=settings.config.get("store.verify").value == "on_load",
            )
        except BaseException:
            cache.close(0)
            raise
        self._shelves[name] = Shelf(pool, cache, pages)
        log.info("forebay: host pool %s: pages of %d bytes, %s", name, pool.page_bytes, cache)

    def _open_cache(self, pool: HostPool, share: float) -> tuple[forebay.Cache, CommonSettings]:
        """A cache at the store's epoch: each :meth:`clear` raised it, and a store refuses lower ones."""
        fields = fields_of(self._facts, self._config, pool.name, pool.host, pool.sizes)
        part = part_name(self._config, pool.name, pool.host)
        place = place_name(self._config, pool.name, pool.host)
        settings = pool_settings(self._settings, share, place)
        try:
            return open_cache(settings, keyed_model(fields, pool.page_bytes), f"hicache {part}"), settings
        except forebay.StaleError as error:
            newest = _NEWEST_EPOCH.search(str(error))
            if newest is None:
                raise
            fields["weights_epoch"] = int(newest[1])
        settings = pool_settings(self._settings, share, place)
        return open_cache(settings, keyed_model(fields, pool.page_bytes), f"hicache {part}"), settings

    def _check_room(self, pool: HostPool, cache: forebay.Cache) -> None:
        with contextlib.closing(cache.pool()) as room:
            slots, slot_bytes = room.groups[0].slots, room.groups[0].slot_bytes
        if slots < LEAST_PAGES:
            raise PoolError(
                f"pool_bytes holds {slots} pages of host pool {pool.name}; accepted: at least {LEAST_PAGES}, "
                f"{LEAST_PAGES * slot_bytes} bytes for this pool"
            )

    # ---- Pages ----

    def _present(self, until: float, questions: int) -> Callable[[str, Sequence[str], bool], list[bool]]:
        """Asks ``questions`` times, each in an equal part of what time is left: a prefix needs all answers."""
        following = iter(range(questions, 0, -1))

        def present(name: str, keys: Sequence[str], leading: bool) -> list[bool]:
            shelf = self._shelves.get(name)
            left = (until - time.monotonic()) / next(following, 1)
            if shelf is None or left <= 0:
                return [False] * len(keys)
            return shelf.pages.exists(keys, shelf.pool.page_bytes, left, leading=leading)

        return present

    def hits(self, keys: Sequence[str], transfers: Sequence[Any]) -> Hits:
        """How far the pages reach, in ``query_limit_s``."""
        try:
            kv = self._pools.get("kv")
            has_kv = kv is None or bool(kv.sizes)
            present = self._present(time.monotonic() + self._settings.query_limit_s, len(transfers) + has_kv)
            return find_hits(keys, transfers, present, has_kv=has_kv)
        except Exception as error:
            complain("asking for pages", error)
            return Hits()

    def get(self, name: str, keys: Sequence[str], indices: Any, until: float | None = None) -> list[bool]:
        """Reads pages into host memory, in ``get_limit_s``. Behind the first that is not there none is."""
        return self._move(name, keys, indices, until, is_backup=False)

    def set(self, name: str, keys: Sequence[str], indices: Any, until: float | None = None) -> list[bool]:
        """Stores pages of host memory, in ``set_limit_s``."""
        return self._move(name, keys, indices, until, is_backup=True)

    def _move(
        self, name: str, keys: Sequence[str], indices: Any, until: float | None, *, is_backup: bool
    ) -> list[bool]:
        try:
            if name in self._pools and not self._pools[name].sizes:
                return [True] * len(keys)  # an anchor without bytes: the pages are those of other pools
            shelf = self._shelves[name]
            began = time.monotonic()
            limit = self._settings.set_limit_s if is_backup else self._settings.get_limit_s
            left = limit if until is None else max(0.0, until - began)
            values = shelf.pool.values(indices, len(keys))
            if is_backup:
                done = shelf.pages.set(keys, values, left)
            else:
                done = shelf.pages.get(keys, values, left, leading=True)
        except Exception as error:
            complain("storing pages" if is_backup else "reading pages", error)
            return [False] * len(keys)
        moved = sum(done) if is_backup else leading_run(done)
        self._counter.add(moved, shelf.pool.page_bytes, time.monotonic() - began, is_backup=is_backup)
        return done

    def move_all(self, transfers: Sequence[Any], *, is_backup: bool) -> dict[Any, list[bool]]:
        """The pages of several pools, in one limit together. Keys of the answer are the transfers' names."""
        limit = self._settings.set_limit_s if is_backup else self._settings.get_limit_s
        until = time.monotonic() + limit
        move = self.set if is_backup else self.get
        return {one.name: move(str(one.name), one.keys or [], one.host_indices, until) for one in transfers}

    # ---- The whole ----

    def figures(self) -> Figures:
        """Pages and rates since the last call."""
        return self._counter.take()

    def clear(self) -> None:
        """Makes every stored page unreachable: what was stored before belongs to an older epoch.

        Raises:
            forebay.ForebayError: a cache could not; SGLang tells that nothing is cleared by the exception alone.
        """
        until, failed = time.monotonic() + RESET_LIMIT_S, None
        for shelf in self._shelves.values():
            try:
                shelf.pages.forget()
                shelf.cache.reset(max(0.0, until - time.monotonic()), bump_epoch=True)
            except forebay.ForebayError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Ends all calls and closes the caches. Idempotent. What is still in use stays until the process ends."""
        shelves, self._shelves = self._shelves, {}
        until = time.monotonic() + CLOSE_LIMIT_S
        for shelf in shelves.values():
            try:
                if shelf.pages.close(max(0.0, until - time.monotonic())):
                    shelf.cache.close(max(0.0, until - time.monotonic()))
            except (forebay.ForebayError, BufferError) as error:
                complain(f"closing the cache of host pool {shelf.pool.name}", error)
