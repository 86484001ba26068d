#!/usr/bin/env python3
"""LMCache's StorageManager with Forebay as its second level, in one process: keep, drop, prefetch, compare.

    python engines/lmcache_manager.py STORY ADAPTER_JSON

    keep     chunks of two ranks go through the first level into the second, are dropped from the first and prefetched
    find     an earlier process's chunks are prefetched
    salted   an earlier process's chunks are not found under another salt
    hole     a chunk in the middle is damaged in a store: the prefix before it comes back
    stuck    a store answers nothing: the prefetch ends without a hit, and what comes after it works

The last two are on a store of their own, in the process.

Prints one JSON object, {"ok": true or false, "what": …}; exit 0 when ok. Run it with LMCache's interpreter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")

import torch
from forebay.engines.lmcache import ForebayL2
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import _object_key_to_string
from lmcache.v1.distributed.storage_manager import StorageManager

SHAPE = torch.Size([2, 4, 256, 64])  # K and V, layers, tokens, head: a chunk of 256 KiB in bfloat16
CHUNKS, RANKS = 12, (0, 1)
LIMIT_S = 60.0
LAYOUT = MemoryLayoutDesc([SHAPE], [torch.bfloat16])
CHUNK_BYTES = SHAPE.numel() * 2


def _row(rank: int, salt: str = "") -> list[ObjectKey]:
    hashes = [hashlib.sha256(f"chunk {chunk}".encode()).digest() for chunk in range(CHUNKS)]
    return [ObjectKey(one, "org/tiny", kv_rank=rank, cache_salt=salt) for one in hashes]


def _truth(key: ObjectKey) -> torch.Tensor:
    """A chunk's values, which follow from its key."""
    seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def _manager(adapter: str) -> StorageManager:
    memory = L1MemoryManagerConfig(size_in_bytes=64 << 20, use_lazy=False)
    adapters = parse_args_to_l2_adapters_config(argparse.Namespace(l2_adapter=[adapter]))
    return StorageManager(
        StorageManagerConfig(
            l1_manager_config=L1ManagerConfig(memory_config=memory),
            eviction_config=EvictionConfig("LRU"),
            l2_adapter_config=adapters,
        )
    )


def _adapter(manager: StorageManager) -> Any:
    (adapter,) = manager._l2_adapters.values()
    return adapter


def _wait(what: str, reached: Any) -> None:
    end = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {LIMIT_S} s")
        time.sleep(0.005)


def _keep(manager: StorageManager, rows: list[list[ObjectKey]]) -> None:
    """Into the first level, from there into the second, and out of the first."""
    keys = [key for row in rows for key in row]
    before = _adapter(manager).get_usage().total_bytes_used
    objects = manager.reserve_write(keys, LAYOUT)
    assert len(objects) == len(keys), f"the first level took {len(objects)} of {len(keys)} chunks"
    for key, chunk in objects.items():
        chunk.tensor.copy_(_truth(key))
    manager.finish_write(keys)
    whole = before + len(keys) * CHUNK_BYTES
    _wait("storing", lambda: bool(_adapter(manager).get_usage().total_bytes_used == whole))
    deleted = 0

    def gone() -> bool:
        nonlocal deleted
        deleted += int(manager.delete_l1_keys(keys)[0])
        return deleted == len(keys)

    _wait("dropping from the first level", gone)


def _prefetch(manager: StorageManager, rows: list[list[ObjectKey]]) -> list[int]:
    """Chunks per row that came from the second level; raises when one has a wrong value."""
    spec = PrefetchTaskSpec([GroupedObjectKeys(row, 0, LAYOUT) for row in rows])
    handle = manager.submit_prefetch_task(spec)
    assert manager.wait_prefetch_status(handle, LIMIT_S), f"a prefetch did not end within {LIMIT_S} s"
    result = manager.query_prefetch_status(handle)
    assert result is not None
    hits = [
        [key for i, key in enumerate(row) if cells.test(i)] for row, cells in zip(rows, result.hit_cells, strict=True)
    ]
    assert sum(row.popcount() for row in result.l1_hit_cells) == 0, "chunks came from the first level"
    wanted = [key for row in hits for key in row]
    if wanted:
        with manager.read_prefetched_results(wanted) as objects:
            assert objects is not None, "a prefetched chunk cannot be read"
            for key, chunk in zip(wanted, objects, strict=True):
                assert torch.equal(chunk.tensor, _truth(key)), f"wrong values under {key}"
        manager.finish_read_prefetched(wanted)
    return [len(row) for row in hits]


def keep(manager: StorageManager) -> tuple[list[int], list[int]]:
    """Two ranks' chunks, kept and prefetched."""
    rows = [_row(rank) for rank in RANKS]
    _keep(manager, rows)
    return _prefetch(manager, rows), [CHUNKS, CHUNKS]


def find(manager: StorageManager) -> tuple[list[int], list[int]]:
    """What the last process kept."""
    return _prefetch(manager, [_row(rank) for rank in RANKS]), [CHUNKS, CHUNKS]


def salted(manager: StorageManager) -> tuple[list[int], list[int]]:
    """Another salt's chunks."""
    return _prefetch(manager, [_row(rank, "somebody-else") for rank in RANKS]), [0, 0]


def _forget(manager: StorageManager) -> None:
    """Empties Forebay's pool: what is read next comes from the store."""
    assert _adapter(manager)._client.cache.reset(LIMIT_S), "Forebay's pool could not be emptied"


def hole(manager: StorageManager) -> tuple[list[int], list[int]]:
    """Chunk 5 cannot be read."""
    _keep(manager, [_row(0)])
    _forget(manager)
    return _prefetch(manager, [_row(0)]), [5]


def stuck(manager: StorageManager) -> tuple[list[int], list[int]]:
    """Nothing can be read; afterwards other chunks are kept and found in the pool."""
    _keep(manager, [_row(0)])
    _forget(manager)
    begin = time.monotonic()
    hits = _prefetch(manager, [_row(0)])
    assert time.monotonic() - begin < LIMIT_S / 2, "the prefetch took longer than the adapter's limits"
    _keep(manager, [_row(1)])
    return hits + _prefetch(manager, [_row(1)]), [0, CHUNKS]


def _script(story: str, params: dict[str, Any]) -> str:
    """What goes wrong in a store in the process."""
    if story == "stuck":
        return "get:*:hang"
    client = ForebayL2(**params | {"store": "mem"})
    try:  # an object's key is the same in every cache of this model
        sequence = client._place.sequence(_object_key_to_string(_row(0)[5]), 2)
        return f"get:{sequence.key(1)}:corrupt(7777)"
    finally:
        client.close()


STORIES = {story.__name__: story for story in (keep, find, salted, hole, stuck)}


def main() -> int:
    """The command."""
    story, adapter = sys.argv[1], json.loads(sys.argv[2])
    if story in ("hole", "stuck"):
        params = adapter["adapter_params"]
        params["store"] = f"mem:script={_script(story, params)}"
    manager = _manager(json.dumps(adapter))
    try:
        hits, wanted = STORIES[story](manager)
        ok, what = hits == wanted, f"{hits} chunks of each row, {wanted} expected"
    except (AssertionError, TimeoutError) as error:
        ok, what = False, str(error)
    manager.close()
    print(json.dumps({"ok": ok, "what": what}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
