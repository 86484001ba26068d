#!/usr/bin/env python3
"""One cache for several processes: a server has pool, index and store; this process is its client.

served.py                       starts a server of its own, as below, and ends it
served.py serve SOCKET          a server alone, until its standard input ends; `forebay serve` does the same from a file
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def serve(path: str) -> None:
    """A cache that answers on a socket for as long as it is open."""
    with forebay.Cache(
        model=MODEL,
        pool={"bytes": "16MiB"},
        store={"driver": "mem", "options": {"latency_ms": 1}},
        prefetch={"enabled": True, "policy": "best_effort"},
        server={"listen": path},
        log={"level": "warn"},
    ):
        print("ready", flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def server(path: Path) -> Iterator[int]:
    """A server in a process of its own.

    Yields:
        the id of that process.
    """
    with subprocess.Popen(
        [sys.executable, __file__, "serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the server did not start"
        yield process.pid  # leaving `with` closes its input


def content(block: int) -> bytes:
    """What a block of KV holds in this example."""
    return bytes((block * 31 + byte * 7 + byte // 256) % 256 for byte in range(BLOCK_BYTES))


def use(path: Path) -> None:
    """What an engine does: the calls are those of a cache of its own, and blocks are read where they lie."""
    prompt = [token * 17 + 3 for token in range(BLOCKS * BLOCK_TOKENS + 1)]
    with forebay.connect(path, name="example") as cache:
        sequence = cache.sequence(prompt)  # hashes here
        with cache.put(sequence) as put:
            put.copy_from(b"".join(content(block) for block in range(BLOCKS)))
            put.commit()
            put.wait_store(30)
        cache.reset(30)  # CPU memory is empty now
        with cache.start(sequence) as session:
            answer = session.wait(30)
            with session.take() as hold:
                slots = hold.slots()  # in the server's pool, which is mapped here
                right = sum(slot is not None and bytes(slot) == content(block) for block, slot in enumerate(slots))
        assert right == BLOCKS, f"{BLOCKS - right} blocks are wrong"
        names = [client.name for client in cache.server_info().clients]
        print(f"process {cache.server_info().pid} delivered {answer.delivered_tokens} tokens to {names[0]}")


def main() -> None:
    """Serves when that was asked for, else shows both sides."""
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
        return
    with tempfile.TemporaryDirectory(prefix="forebay-served-") as directory:
        path = Path(directory) / "socket"
        with server(path) as pid:
            use(path)
        print(f"server {pid} has ended")


if __name__ == "__main__":
    main()
