"""Ranks: exact bytes between slots and a rank's own memory, with every layout, in this process and in others."""

from __future__ import annotations

import array
import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import forebay
import pytest
from conftest import BLOCK_BYTES, TENTH, Maker, content, fill, in_child, model, prompt
from forebay import Layout, LayoutKind, Rank, Tensor

HERE = Path(__file__).resolve().parent
BLOCKS, LAYERS, ROWS = 6, 2, 4
DEVICE_BLOCKS = 8


class Shape(NamedTuple):
    """How a layout lies in tensors of a test, and where each piece of a shard goes."""

    layout: Layout
    memory: list[bytearray]
    starts: list[tuple[int, int, int, int]]  # per piece of the shard: tensor, start, block stride, row stride


def shape_of(kind: str, shard: int, dice: random.Random) -> Shape:
    """Tensors with random gaps for a shard of so many bytes."""
    pieces = LAYERS * (2 if kind == "split" else 1)
    row = shard // pieces // ROWS
    row_stride = row + 8 * dice.randrange(4)
    if kind == "block_first":
        layer = ROWS * row_stride + 16 * dice.randrange(3)
        block = LAYERS * layer + 32
        memory = [bytearray(b"\xee" * (DEVICE_BLOCKS * block))]
        tensors: tuple[Tensor, ...] = (Tensor(memory[0], None, block, row_stride),)
        starts = [(0, i * layer, block, row_stride) for i in range(LAYERS)]
        return Shape(Layout(kind, LAYERS, tensors, DEVICE_BLOCKS, row, ROWS, layer), memory, starts)
    block = ROWS * row_stride + 16 * dice.randrange(3)
    memory = [bytearray(b"\xee" * (DEVICE_BLOCKS * block)) for _ in range(pieces)]
    tensors = tuple(Tensor(one, None, block, row_stride) for one in memory)
    # In the shard layer by layer, K before V; among the tensors all K, then all V.
    order = [i + side * LAYERS for i in range(LAYERS) for side in range(pieces // LAYERS)]
    starts = [(one, 0, block, row_stride) for one in order]
    return Shape(Layout(kind, LAYERS, tensors, DEVICE_BLOCKS, row, ROWS), memory, starts)


def shard_in(shape: Shape, block: int) -> bytes:
    """The shard that lies in the tensors at a device block."""
    row = shape.layout.row_bytes
    return b"".join(
        bytes(shape.memory[tensor][at : at + row])
        for tensor, start, block_stride, row_stride in shape.starts
        for at in (start + block * block_stride + i * row_stride for i in range(ROWS))
    )


@pytest.mark.parametrize("kind", list(LayoutKind))
@pytest.mark.parametrize("seed", range(4))
def test_every_layout_copies_exact_bytes(open_cache: Maker, kind: LayoutKind, seed: int) -> None:
    dice = random.Random(seed)
    cache = open_cache()
    ranks = 1 if kind is LayoutKind.MLA else 2
    shard = BLOCK_BYTES // ranks
    shapes = [shape_of(kind, shard, dice) for _ in range(ranks)]
    blocks = dice.sample(range(DEVICE_BLOCKS), BLOCKS)
    sequence = fill(cache, BLOCKS)
    with cache.lookup(sequence) as hold:
        for number, shape in enumerate(shapes):
            with Rank.attach_cache(cache, number, ranks, threads=2) as rank:
                rank.register(0, shape.layout, offset=number * shard, size=shard)
                copy = rank.load(0, hold.places(), blocks, verify=True)
                status = copy.wait(TENTH)
                assert (status.error, status.blocks_failed, status.settled) == (0, 0, True)
                assert status.bytes == BLOCKS * shard
                assert copy.results == [0] * BLOCKS
                assert copy.poll() == status
            for i, block in enumerate(blocks):
                assert shard_in(shape, block) == content(i)[number * shard : (number + 1) * shard]
            untouched = set(range(DEVICE_BLOCKS)) - set(blocks)
            assert all(shard_in(shape, block) == b"\xee" * shard for block in untouched)
    other = cache.sequence(prompt(BLOCKS, seed=50))
    with cache.put(other) as put:  # and back, as blocks of another prompt
        for number, shape in enumerate(shapes):
            with Rank.attach_cache(cache, number, ranks) as rank:
                rank.register(0, shape.layout, offset=number * shard, size=shard)
                assert rank.save(0, put.places(), blocks).wait(TENTH).error == 0
        assert put.commit().published == BLOCKS
    with cache.lookup(other) as hold:
        target = bytearray(BLOCKS * BLOCK_BYTES)
        hold.copy_to(target)
        assert target == b"".join(content(i) for i in range(BLOCKS))


def packed(memory: Any, blocks: int, size: int = BLOCK_BYTES) -> Layout:
    return Layout("packed", 1, (Tensor(memory),), blocks, size)


def test_addresses_and_buffers_are_the_same(open_here: Maker) -> None:
    cache = open_here()
    sequence = fill(cache, 2)
    tensor = array.array("B", bytes(4 * BLOCK_BYTES))
    address, _ = tensor.buffer_info()  # as tensor.data_ptr() gives it
    with cache.lookup(sequence) as hold, Rank.attach(cache.pool(), 0, 1) as rank:
        rank.register(
            0, Layout("packed", 1, (Tensor(address, len(tensor)),), 4, BLOCK_BYTES), offset=0, size=BLOCK_BYTES
        )
        rank.load(0, hold.places(), [3, 1]).wait()
    assert tensor.tobytes() == bytes(BLOCK_BYTES) + content(1) + bytes(BLOCK_BYTES) + content(0)


def test_a_rank_keeps_the_buffers_that_it_copies_to(open_here: Maker) -> None:
    cache = open_here()
    rank = Rank.attach_cache(cache)
    memory = bytearray(BLOCK_BYTES)
    rank.register(0, packed(memory, 1), offset=0, size=BLOCK_BYTES)
    with pytest.raises(BufferError):
        memory.clear()
    rank.detach()
    memory.clear()


def test_places_are_offsets_in_the_pool(cache: forebay.Cache) -> None:
    sequence = fill(cache, 4)
    pool = cache.pool()
    with cache.lookup(sequence) as hold:
        places = hold.places()
        assert len(set(places)) == 4
        assert hold.places(0, 1, 3) == places[1:3]
        group = pool.groups[0]
        for block, place in enumerate(places):
            assert (place - group.offset) % group.slot_bytes == 0
            assert os.pread(pool.descriptor, group.payload_bytes, place) == content(block)
        assert (group.payload_bytes, group.slots) == (BLOCK_BYTES, cache.stats()["pool_blocks_gauge"])
        with pytest.raises(forebay.ArgumentError):
            hold.places(0, 3, 9)
        with pytest.raises(IndexError):
            hold.places(1)
    assert pool.fingerprint.hex() == cache.model.fingerprint
    assert len(os.pread(pool.descriptor, 1, pool.bytes - 1)) == 1
    with cache.put(cache.sequence(prompt(4))) as put:
        assert put.places() == []
    pool.close()


def test_a_trailing_group_has_no_place_where_it_has_no_slot(open_cache: Maker) -> None:
    groups = [
        {"name": "kv", "payload_bytes": BLOCK_BYTES, "rule": "all"},
        {"name": "state", "payload_bytes": 64, "rule": "trailing(1)"},
    ]
    cache = open_cache(model=model(groups=groups))
    with cache.put(cache.sequence(prompt(3))) as put:
        *ahead, last = put.places(1)
    assert ahead == [forebay.NO_PLACE] * 2
    assert last != forebay.NO_PLACE


def test_a_wrong_slot_is_found_and_named(open_here: Maker) -> None:
    cache = open_here()
    sequence = fill(cache, 3)
    memory = bytearray(3 * BLOCK_BYTES)
    with cache.lookup(sequence) as hold, Rank.attach_cache(cache) as rank:
        rank.register(0, packed(memory, 3), offset=0, size=BLOCK_BYTES, segment_bytes=BLOCK_BYTES)
        sums = rank.load(0, hold.places(), [0, 1, 2], sums=True)
        assert sums.wait().error == 0
        assert [len(row) for row in sums.sums] == [1, 1, 1]
        assert len({row[0] for row in sums.sums}) == 3
        ctypes.memset(hold.addresses()[1] + 9, 0x5A, 3)  # what no program should do
        copy = rank.load(0, hold.places(), [0, 1, 2], verify=True)
        status = copy.wait()
        assert (forebay.errname(status.error), status.blocks_failed, status.bytes) == ("CHECKSUM", 1, 2 * BLOCK_BYTES)
        assert [forebay.errname(code) if code else "" for code in copy.results] == ["", "CHECKSUM", ""]


def test_what_cannot_be_copied_is_refused(open_here: Maker) -> None:
    cache = open_here()
    sequence = fill(cache, 2)
    pool = cache.pool()
    memory = bytearray(2 * BLOCK_BYTES)
    with cache.lookup(sequence) as hold, Rank(pool, 0, 2) as rank:
        places = hold.places()
        with pytest.raises(forebay.ArgumentError, match="group"):
            rank.load(0, places, [0, 1])
        for layout, size, words in (
            (packed(memory, 3), BLOCK_BYTES, "bytes"),
            (packed(memory, 2), BLOCK_BYTES // 2, "bytes"),
            (Layout("packed", 1, (Tensor(0, BLOCK_BYTES),), 1, BLOCK_BYTES), BLOCK_BYTES, "base"),
        ):
            with pytest.raises(forebay.ArgumentError, match=words):
                rank.register(0, layout, offset=0, size=size)
        for wrong, words in (
            (Layout("loose", 1, (Tensor(memory),), 2, BLOCK_BYTES), "accepted: split, packed"),
            (Layout("packed", 1, (Tensor(4096),), 2, BLOCK_BYTES), "without a number of bytes"),
            (Layout("packed", 1, (Tensor(memory, 9999),), 2, BLOCK_BYTES), "buffer of 2048"),
        ):
            with pytest.raises(ValueError, match=words):
                rank.register(0, wrong, offset=0, size=BLOCK_BYTES)
        with pytest.raises((TypeError, BufferError)):
            rank.register(0, packed(bytes(memory), 2), offset=0, size=BLOCK_BYTES)
        rank.register(0, packed(memory, 2), offset=0, size=BLOCK_BYTES)
        with pytest.raises(OSError, match="has a layout"):
            rank.register(0, packed(memory, 2), offset=0, size=BLOCK_BYTES)
        with pytest.raises(ValueError, match="2 places and 1 device blocks"):
            rank.load(0, places, [0])
        for given, blocks in (([forebay.NO_PLACE], [0]), ([places[0] + 8], [0]), ([places[0]], [2])):
            with pytest.raises(forebay.ArgumentError):
                rank.load(0, given, blocks)
        assert memory == bytes(2 * BLOCK_BYTES)
        assert rank.load(0, [], []).wait() == (0, 0, 0, True)
        os.fstat(rank.event_fd())
        with rank._using(), pytest.raises(forebay.StateError, match="1 threads use the rank"):
            rank.detach()
    for call in (rank.event_fd, lambda: rank.load(0, places, [0, 1])):
        with pytest.raises(forebay.StateError, match="detached"):
            call()
    rank.detach()
    for changes, kind in (
        ({"rank": 2, "ranks": 2}, "rank"),
        ({"device": "abacus"}, "device"),
        ({"threads": 999}, "thr"),
    ):
        with pytest.raises(forebay.ArgumentError, match=kind):
            Rank(pool, **changes)
    pool.close()
    with pytest.raises(OSError, match="descriptor"):
        Rank(pool)
    with Path("/dev/null").open("rb") as null, pytest.raises(forebay.FormatError, match="descriptor"):
        Rank(pool.with_descriptor(null.fileno()))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_attaches_for_itself(open_here: Maker) -> None:
    cache = open_here()
    sequence, memory = fill(cache, 2), bytearray(2 * BLOCK_BYTES)
    pool, hold, rank = cache.pool(), cache.lookup(sequence), Rank.attach_cache(cache)
    rank.register(0, packed(memory, 2), offset=0, size=BLOCK_BYTES)
    places = hold.places()

    def story() -> None:
        for call in (lambda: rank.load(0, places, [0, 1]), rank.event_fd, rank.detach):
            with pytest.raises(forebay.ForkedError):
                call()
        with Rank(pool) as own:
            own.register(0, packed(memory, 2), offset=0, size=BLOCK_BYTES)
            assert own.load(0, places, [1, 0]).wait().error == 0
        assert memory == content(1) + content(0)

    assert in_child(story) == 0
    assert rank.load(0, places, [0, 1]).wait().error == 0
    assert memory == content(0) + content(1)
    rank.detach()
    pool.close()
    hold.release()


RANK = """
import json, sys, forebay
given = json.load(sys.stdin)
pool = forebay.Pool(given["descriptor"], given["bytes"], tuple(forebay.PoolGroup(*g) for g in given["groups"]),
    bytes.fromhex(given["fingerprint"]))
number, ranks, places = given["rank"], given["ranks"], given["places"]
shard = pool.groups[0].payload_bytes // ranks
memory = bytearray(len(places) * shard)
layout = forebay.Layout("packed", 1, (forebay.Tensor(memory),), len(places), shard)
with forebay.Rank(pool, number, ranks) as rank:
    pool.close()
    rank.register(0, layout, offset=number * shard, size=shard)
    if given["save"]:
        for block in range(len(places)):
            memory[block * shard : (block + 1) * shard] = bytes([number + 1, block]) * (shard // 2)
        status = rank.save(0, places, range(len(places))).wait(10)
    else:
        status = rank.load(0, places, range(len(places)), verify=True).wait(10)
print(json.dumps({"error": status.error, "bytes": bytes(memory).hex()}))
"""


def in_a_rank(pool: forebay.Pool, rank: int, places: list[int], *, save: bool) -> dict[str, Any]:
    """What a process of rank ``rank`` of 2 did with the places."""
    import json

    given = {
        "descriptor": pool.descriptor, "bytes": pool.bytes, "groups": [tuple(group) for group in pool.groups],
        "fingerprint": pool.fingerprint.hex(), "rank": rank, "ranks": 2, "places": places, "save": save,
    }  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", RANK], input=json.dumps(given), env=environment, pass_fds=[pool.descriptor],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_two_processes_share_every_slot(open_cache: Maker) -> None:
    cache = open_cache()
    pool, half = cache.pool(), BLOCK_BYTES // 2
    sequence = fill(cache, 3)
    with cache.lookup(sequence) as hold:
        places = hold.places()
        for rank in range(2):
            answer = in_a_rank(pool, rank, places, save=False)
            wanted = b"".join(content(block)[rank * half : (rank + 1) * half] for block in range(3))
            assert (answer["error"], answer["bytes"]) == (0, wanted.hex())
    other = cache.sequence(prompt(3, seed=5))
    with cache.put(other) as put:
        for rank in range(2):
            assert in_a_rank(pool, rank, put.places(), save=True)["error"] == 0
        assert put.commit().published == 3
    with cache.lookup(other) as hold:
        assert hold.slots() == [bytes([1, block]) * (half // 2) + bytes([2, block]) * (half // 2) for block in range(3)]
    pool.close()
