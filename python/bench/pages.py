#!/usr/bin/env python3
"""What 128 pages cost as values by key, one call of the store each, and as one chain, one call for all: JSON.

    pages.py [PAGE_BYTES] [ROUNDS]     by default 65536 and 7

Medians in milliseconds over stores that answer at once and after a millisecond; the latter also with 8 calls at once.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import forebay
from forebay.engines.common.keyed import Keyed, Piece, keyed_model

PAGES = 128
LIMIT_S = 30.0
FIELDS: dict[str, Any] = {
    "id": "bench", "revision": "1", "kv_dtype": "f16", "layer_set": "all", "layout": "plain", "weights_epoch": 0,
    "tp_size": 1, "cp_size": 1, "pp_size": 1,
}  # fmt: skip
STORES: dict[str, dict[str, Any]] = {
    "at_once": {"driver": "mem", "host": "thread"},
    "1ms": {"driver": "mem", "host": "thread", "options": {"latency_ms": "1"}},
    "1ms_8_lanes": {
        "driver": "mem", "host": "thread", "options": {"latency_ms": "1"}, "query_lanes": 8, "read_lanes": 8,
    },
}  # fmt: skip


def refuse(what: str, error: BaseException) -> None:
    """Nothing fails here."""
    raise SystemExit(f"{what}: {error}")


class Bench:
    """One store.

    Args:
        store: its section.
        page_bytes: of a page.
    """

    def __init__(self, store: dict[str, Any], page_bytes: int) -> None:
        self._bytes = page_bytes
        self._cache = forebay.Cache(
            model=keyed_model(FIELDS, page_bytes).section(),
            pool={"bytes": 10 * PAGES * (page_bytes + 4096)},
            store=store,
            prefetch={"max_sessions": 2048},
            log={"level": "off"},
        )
        self._view = Keyed(self._cache, "kv", complain=refuse)
        self._memory = ctypes.create_string_buffer(PAGES * page_bytes)
        begin = ctypes.addressof(self._memory)
        self._values: list[list[Piece]] = [[(begin + i * page_bytes, page_bytes)] for i in range(PAGES)]
        self._names = [str(i) for i in range(PAGES)]
        chain = b"".join(hashlib.sha256(name.encode()).digest() for name in self._names)
        self._chain = self._cache.sequence(chain + bytes(4))

    def fill(self) -> None:
        """Stores the pages both ways."""
        assert all(self._view.set(self._names, self._values, LIMIT_S))
        with self._cache.put(self._chain) as put:
            put.copy_from(self._memory)
            put.commit()
            assert put.wait_store(LIMIT_S).stored == PAGES

    def forget(self) -> None:
        """Empties the pool, not the store."""
        self._view.forget()
        assert self._cache.reset(LIMIT_S)

    def exists(self) -> None:
        """Asks for all pages, which begins to read them."""
        assert all(self._view.exists(self._names, self._bytes, LIMIT_S, leading=True))

    def get(self) -> None:
        """Reads all pages by key."""
        assert all(self._view.get(self._names, self._values, LIMIT_S, leading=True))

    def chain(self) -> None:
        """Reads all pages as one chain."""
        with self._cache.start(self._chain, policy="wait_complete") as session:
            session.wait(LIMIT_S)
            with session.take() as hold:
                assert hold.copy_to(self._memory, 0, 0, PAGES) == PAGES

    def close(self) -> None:
        """Ends it."""
        self._view.close(LIMIT_S)
        self._cache.close(LIMIT_S)


def median_ms(call: Callable[[], None], before: Callable[[], None], rounds: int) -> float:
    """Median time of a call in milliseconds."""
    found = []
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - began))
    return round(sorted(found)[rounds // 2], 2)


def main() -> None:
    """Measures and prints."""
    page_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 65536
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    rows = []
    for name, store in STORES.items():
        bench = Bench(store, page_bytes)
        bench.fill()
        for what, call, before in (
            ("pages_exist", bench.exists, bench.forget),
            ("pages_get", bench.get, bench.forget),
            ("pages_get_resident", bench.get, lambda: None),
            ("chain_get", bench.chain, bench.forget),
        ):
            rows.append({"name": f"{what}_{name}_ms", "value": median_ms(call, before, rounds), "unit": "ms"})
        bench.close()
    print(json.dumps({"bench": "pages", "pages": PAGES, "page_bytes": page_bytes, "figures": rows}, indent=2))


if __name__ == "__main__":
    main()
