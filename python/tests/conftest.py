"""What the stories share: a small model, caches on every kind of store, bytes that name their block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest

BLOCK_TOKENS, BLOCK_BYTES = 16, 1024
TENTH = 10.0  # seconds: longer than any wait here should take, short enough to fail soon

# What hangs stays so: no limit ends it before a test does. A stop is answered at once, also while something hangs.
PATIENT = {"io_timeout_s": 1000, "no_progress_timeout_s": 1000, "query_timeout_s": 1000, "drain_limit_s": 0}

Maker = Callable[..., forebay.Cache]


def model(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": "test",
        "revision": "1",
        "kv_dtype": "f16",
        "block_tokens": BLOCK_TOKENS,
        "layer_set": "all",
        "layout": "plain",
        "weights_epoch": 0,
        "tp_size": 1,
        "cp_size": 1,
        "pp_size": 1,
        "groups": [{"name": "kv", "payload_bytes": BLOCK_BYTES, "rule": "all"}],
    }
    return values | changes


def settings(**sections: Any) -> dict[str, Any]:
    """A whole configuration; each section that is named is laid over the usual one."""
    usual: dict[str, dict[str, Any]] = {
        "model": model(),
        "pool": {"bytes": "4MiB"},
        "store": {"driver": "mem"},
        "prefetch": {"enabled": True, "policy": "best_effort"},
        "log": {"level": "off"},
    }
    return usual | {name: usual.get(name, {}) | section for name, section in sections.items()}


def content(block: int, seed: int = 0) -> bytes:
    """The bytes of a block: no two alike, and no two bytes in a row."""
    return bytes((block * 37 + seed * 101 + byte * 7 + byte // 256) % 256 for byte in range(BLOCK_BYTES))


def contents(blocks: int, seed: int = 0) -> bytes:
    return b"".join(content(block, seed) for block in range(blocks))


def prompt(blocks: int, seed: int = 0) -> list[int]:
    """Tokens of so many whole blocks and one more, so that all of them may be delivered."""
    return [seed * 1_000_000 + token for token in range(blocks * BLOCK_TOKENS + 1)]


def fill(cache: forebay.Cache, blocks: int, seed: int = 0) -> forebay.Sequence:
    """Puts a prompt of so many blocks, waits until it is stored, and returns its sequence."""
    sequence = cache.sequence(prompt(blocks, seed))
    with cache.put(sequence) as put:
        assert (put.staged_from, put.staged_to) == (0, blocks)
        assert put.copy_from(contents(blocks, seed)) == blocks
        assert put.commit().published == blocks
        assert put.wait_store(TENTH) == (blocks, 0)
    return sequence


@pytest.fixture
def open_cache() -> Iterator[Maker]:
    """Opens caches, and closes what a test left open."""
    opened: list[forebay.Cache] = []

    def make(**sections: Any) -> forebay.Cache:
        cache = forebay.Cache(settings(**sections))
        opened.append(cache)
        return cache

    yield make
    for cache in opened:
        with contextlib.suppress(BufferError, forebay.AbandonedError):
            cache.close(TENTH)


@pytest.fixture(params=["mem", "mem-threads", "mem-agent", "file"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, open_cache: Maker) -> forebay.Cache:
    """One cache per kind of store and host."""
    stores: dict[str, dict[str, Any]] = {
        "mem": {"driver": "mem"},
        "mem-threads": {"driver": "mem", "host": "thread"},
        "mem-agent": {"driver": "mem", "host": "agent"},
        "file": {"driver": "file", "options": {"dir": str(tmp_path / "store"), "capacity": "64MiB"}},
    }
    return open_cache(store=stores[request.param])
