#!/usr/bin/env python3
"""Forebay in a Python program: store a prefix, lose it from CPU memory, prefetch it back, check every byte.

quickstart.py [DIRECTORY]       the store's directory; by default one that is removed at the end
"""

from __future__ import annotations

import sys
import tempfile

import forebay

BLOCK_TOKENS, BLOCK_BYTES, BLOCKS = 16, 4096, 32
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


def content(block: int) -> bytes:
    """What a block of KV holds in this example."""
    return bytes((block * 31 + byte * 7 + byte // 256) % 256 for byte in range(BLOCK_BYTES))


def run(directory: str) -> None:
    """Puts a prompt's blocks into a file store, and reads them back through a session.

    Args:
        directory: of the store; made when it is not there.
    """
    prompt = [token * 17 + 3 for token in range(BLOCKS * BLOCK_TOKENS + 1)]
    with forebay.Cache(
        model=MODEL,
        pool={"bytes": "16MiB"},
        store={"driver": "file", "options": {"dir": directory}},
        prefetch={"enabled": True, "policy": "best_effort"},
        log={"level": "warn"},
    ) as cache:
        sequence = cache.sequence(prompt)

        with cache.put(sequence) as put:  # what an engine does after a prefill
            for block, slot in enumerate(put.slots(), start=put.staged_from):
                assert slot is not None
                slot[:] = content(block)
            put.commit()
            print(f"stored {put.wait_store(30).stored} blocks")
        cache.reset(30)  # CPU memory is empty now

        with cache.start(sequence) as session:  # while the request waits in its queue ...
            answer = session.wait(30)
            with session.take() as hold:
                kv = bytearray(answer.delivered_blocks * BLOCK_BYTES)
                hold.copy_to(kv)  # or hold.slots(): a view of every block, without a copy
        assert kv == b"".join(content(block) for block in range(answer.delivered_blocks)), "bytes are wrong"
        print(f"prefetched {answer.delivered_tokens} of {len(prompt)} tokens, every byte as stored")
        assert answer.delivered_blocks == BLOCKS


def main() -> None:
    """Runs in the directory that was named, or in one of its own."""
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    with tempfile.TemporaryDirectory(prefix="forebay-quickstart-") as directory:
        run(directory)


if __name__ == "__main__":
    main()
