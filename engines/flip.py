"""Changes an object behind the back of the store's users: bit 6 of every fourth byte, in floats a bit of the exponent.

    flip.py redis PORT KEY BYTES          of the object whose key ends with KEY
    flip.py mooncake HOST:PORT KEY BYTES  of the master; run by the interpreter that has Mooncake's wheel

BYTES: how many of the first ones. Exit 0: changed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def _flipped(content: bytes, count: int) -> bytes:
    head = bytes(byte ^ 0x40 if place % 4 == 3 else byte for place, byte in enumerate(content[:count]))
    return head + content[count:]


def _in_redis(port: str, key: str, count: int) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/live"))
    from resp import Redis  # type: ignore[import-not-found]

    redis: Any = Redis(int(port))
    names = redis("KEYS", f"*{key}")
    if len(names) != 1:
        return 1
    redis("SET", names[0], _flipped(redis("GET", names[0]), count))
    return 0


def _in_mooncake(master: str, key: str, count: int) -> int:
    from mooncake.store import MooncakeDistributedStore  # type: ignore[import-not-found]

    store: Any = MooncakeDistributedStore()
    store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", master)
    content = bytes(store.get(key))
    if not content or store.remove(key, True) != 0 or store.put(key, _flipped(content, count)) != 0:
        return 1
    return 0


def main() -> None:
    """The command."""
    store, where, key, count = sys.argv[1:]
    code = (_in_redis if store == "redis" else _in_mooncake)(where, key, int(count))
    sys.stdout.flush()
    os._exit(code)  # Mooncake's client takes a second to close


if __name__ == "__main__":
    main()
