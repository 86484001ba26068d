#!/usr/bin/env python3
"""Many requests prefetch at once in one event loop: each waits for its answer without a thread of its own.

asyncio_prefetch.py [REQUESTS]      by default 16, from a store that takes 20 ms for every read
"""

from __future__ import annotations

import asyncio
import sys

import forebay

BLOCK_TOKENS, BLOCK_BYTES, BLOCKS = 16, 4096, 8
MODEL = {
    "id": "example",
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


def prompt(request: int) -> list[int]:
    """Tokens of a request; no two share a prefix."""
    return [request * 1000 + token for token in range(BLOCKS * BLOCK_TOKENS + 1)]


def content(request: int, block: int) -> bytes:
    """What a block of a request holds."""
    return bytes([request % 256, block]) * (BLOCK_BYTES // 2)


def fill(cache: forebay.Cache, request: int) -> None:
    """Stores a request's blocks."""
    with cache.put(cache.sequence(prompt(request))) as put:
        put.copy_from(b"".join(content(request, block) for block in range(BLOCKS)))
        put.commit()
        put.wait_store(30)


async def prefetch(cache: forebay.Cache, request: int) -> int:
    """One request's life: its KV is read while it waits, then copied to where the engine wants it.

    Returns:
        tokens that were delivered.
    """
    sequence = await asyncio.to_thread(cache.sequence, prompt(request))  # hashes: not in the loop's thread
    with cache.start(sequence, label=f"request-{request}") as session:
        answer = await session.wait_async(timeout=30)
        kv = bytearray(answer.delivered_blocks * BLOCK_BYTES)
        with session.take() as hold:
            hold.copy_to(kv)
    assert kv == b"".join(content(request, block) for block in range(BLOCKS)), f"request {request} is wrong"
    return answer.delivered_tokens


async def run(requests: int) -> int:
    """Prefetches all requests at once.

    Returns:
        tokens that were delivered to all of them.
    """
    with forebay.Cache(
        model=MODEL,
        pool={"bytes": "64MiB"},
        store={"driver": "mem", "options": {"latency_ms": 20}},
        log={"level": "warn"},
    ) as cache:
        for request in range(requests):
            fill(cache, request)
        cache.reset(30)
        return sum(await asyncio.gather(*(prefetch(cache, request) for request in range(requests))))


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    print(f"{number} requests, {asyncio.run(run(number))} tokens delivered, every byte as stored")
