"""What tensor-parallel ranks do together, as one rank tells it: for threads with queues and for processes with gloo.

A rank's KV cache is memory whose bytes follow from block and rank, so a shard that went astray is found by comparing.
"""

from __future__ import annotations

import ctypes
import errno
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import forebay
from forebay.engines.common.attach import PublishedPool
from forebay.engines.common.model import EngineGroup, EngineModel
from forebay.engines.common.opening import open_cache
from forebay.engines.common.settings import COMMON, CommonSettings, read_keys
from forebay.engines.sglang.ranks import Attached, Ranks, RanksError, attach_all

BLOCK_TOKENS, BLOCKS, PAGES, SHARD = 4, 5, 16, 96
LIMIT_S = 20.0


class Room:
    """A carrier between threads: what one gives all get. It counts, and can lose a rank."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lost = threading.Event()
        self.carried = 0
        self._boxes = [[queue.Queue[bytes]() for _ in range(size)] for _ in range(size)]
        self._absent: set[int] = set()

    def carriers(self) -> list[RoomCarrier]:
        return [RoomCarrier(self, rank) for rank in range(self.size)]

    def without(self, rank: int) -> None:
        self._absent.add(rank)
        self.lost.set()

    def put(self, source: int, target: int, message: bytes) -> None:
        self._boxes[source][target].put(message)

    def get(self, source: int, target: int, limit_s: float = LIMIT_S) -> bytes:
        if source in self._absent or target in self._absent:
            raise ConnectionError(f"rank {source} is gone")
        return self._boxes[source][target].get(timeout=limit_s)


class RoomCarrier:
    """One rank's end of a room."""

    def __init__(self, room: Room, rank: int) -> None:
        self._room, self.rank, self.size = room, rank, room.size

    def exchange(self, card: bytes, limit_s: float) -> list[bytes | None]:
        for target in range(self.size):
            self._room.put(self.rank, target, card)
        cards: list[bytes | None] = []
        for source in range(self.size):
            try:
                cards.append(self._room.get(source, self.rank, limit_s))
            except queue.Empty:
                cards.append(None)
        return cards

    def broadcast(self, message: bytes | None) -> bytes:
        if self.rank == 0:
            self._room.carried += 1
            for target in range(self.size):
                self._room.put(0, target, message or b"")
        return self._room.get(0, self.rank)

    def gather(self, message: bytes) -> list[bytes]:
        for target in range(self.size):
            self._room.put(self.rank, target, message)
        return [self._room.get(source, self.rank) for source in range(self.size)]


def in_threads(size: int, story: Callable[[Ranks], Any], room: Room | None = None) -> list[Any]:
    """What each rank's story gave, or the exception it ended with."""
    results: list[Any] = [None] * size

    def run(carrier: RoomCarrier) -> None:
        try:
            results[carrier.rank] = story(Ranks(carrier))
        except BaseException as error:
            results[carrier.rank] = error

    carriers = (room or Room(size)).carriers()
    threads = [threading.Thread(target=run, args=(carrier,), daemon=True) for carrier in carriers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT_S)
        assert not thread.is_alive()
    return results


def model(ranks: int) -> EngineModel:
    fields = {
        "id": "toy", "revision": "1", "kv_dtype": "f16", "layer_set": "all", "layout": "toy", "weights_epoch": 0,
        "tp_size": ranks, "cp_size": 1, "pp_size": 1,
    }  # fmt: skip
    return EngineModel(fields, BLOCK_TOKENS, (EngineGroup(0, "kv", ("l0",), 0, SHARD, False),), ranks)


def settings(**extra: Any) -> CommonSettings:
    found = read_keys("a story", {"store": "mem", "pool_bytes": "4MiB", "config": {"log.level": "off"}} | extra, COMMON)
    return CommonSettings(found.config, found.origins, **found.own)


def content(block: int, rank: int) -> bytes:
    return bytes((block * 37 + rank * 101 + byte * 7) % 256 for byte in range(SHARD))


class Toy:
    """A rank with its KV tensor; the leader with its cache."""

    def __init__(self, ranks: Ranks, **extra: Any) -> None:
        self.ranks, self.model = ranks, model(ranks.size)
        self.memory = ctypes.create_string_buffer(PAGES * SHARD)
        self.cache: forebay.Cache | None = None
        published = None
        if ranks.is_leader:
            self.cache = open_cache(settings(**extra), self.model, "toy")
            published = PublishedPool(self.cache, self.model, server=None, verify=True)
        ranks.agree(self.model.digest(), limit_s=LIMIT_S)
        self.attached: Attached = attach_all(ranks, published, self.model, self.register)

    def register(self, rank: forebay.Rank) -> None:
        tensor = forebay.Tensor(ctypes.addressof(self.memory), len(self.memory), SHARD)
        layout = forebay.Layout("packed", 1, (tensor,), PAGES, SHARD)
        rank.register(0, layout, offset=self.ranks.rank * SHARD, size=SHARD)

    def write(self, page: int, data: bytes) -> None:
        ctypes.memmove(ctypes.addressof(self.memory) + page * SHARD, data, SHARD)

    def read(self, page: int) -> bytes:
        return ctypes.string_at(ctypes.addressof(self.memory) + page * SHARD, SHARD)

    def sequence(self, seed: int = 0) -> forebay.Sequence:
        assert self.cache is not None
        return self.cache.sequence([seed * 1000 + token for token in range(BLOCKS * BLOCK_TOKENS + 1)])

    def save(self, pages: list[int], seed: int = 0, spoiled: int | None = None) -> forebay.Result | None:
        """Puts the blocks in these pages; a rank may be spoiled. None: nothing to put."""
        put, made = None, []
        if self.cache is not None:
            put = self.cache.put(self.sequence(seed))
            blocks = range(put.staged_from, put.staged_to)
            ranges = (forebay.BlockRange(0, blocks.start, len(blocks), put.places(), [pages[i] for i in blocks]),)
            made = [forebay.Decision("save", object=put.handle, ranges=ranges)] if blocks else []
        result = None
        for decision in self.ranks.decide(None if self.cache is None else made):
            (one,) = decision.ranges
            assert one.places is not None
            own = [pages[i] for i in range(one.first_block, one.first_block + one.blocks)]
            status = self.attached.rank.save(0, one.places, own).wait(LIMIT_S)
            code = -errno.EIO if spoiled == self.ranks.rank else status.error
            result = self.ranks.conclude(decision.number, code)
        if put is not None:
            if result is not None and result.ok:
                put.commit()
            else:
                put.abort()
            put.release()
        return result

    def load(self, pages: list[int], seed: int = 0, failed: tuple[int, ...] = ()) -> forebay.Result | None:
        """Loads what the leader finds into these pages; ranks may fail. None: there is nothing."""
        hold, made = None, []
        if self.cache is not None:
            hold = self.cache.lookup(self.sequence(seed))
            if hold.blocks:
                ranges = (forebay.BlockRange(0, 0, hold.blocks, hold.places(), pages[: hold.blocks]),)
                made = [forebay.Decision("load", object=hold.handle, tokens=hold.tokens, ranges=ranges)]
        result = None
        for decision in self.ranks.decide(None if self.cache is None else made):
            (one,) = decision.ranges
            assert one.places is not None
            status = self.attached.rank.load(0, one.places, pages[: one.blocks], verify=True).wait(LIMIT_S)
            code = -errno.ENOMEM - self.ranks.rank if self.ranks.rank in failed else status.error
            result = self.ranks.conclude(decision.number, code)
        if hold is not None:
            hold.release()
        return result

    def close(self) -> None:
        self.attached.close()
        if self.cache is not None:
            self.cache.close(LIMIT_S)


def round_trip(ranks: Ranks) -> list[Any]:
    """Saved from some pages on all ranks, loaded into others; then nothing is left to save."""
    toy = Toy(ranks)
    for block in range(BLOCKS):
        toy.write(1 + block, content(block, ranks.rank))
    saved = toy.save(list(range(1, 1 + BLOCKS)))
    again = toy.save(list(range(1, 1 + BLOCKS)))
    loaded = toy.load(list(range(8, 8 + BLOCKS)))
    missed = toy.load(list(range(8, 8 + BLOCKS)), seed=1)
    right = [toy.read(8 + block) == content(block, ranks.rank) for block in range(BLOCKS)]
    toy.close()
    assert saved is not None
    assert loaded is not None
    return [saved.ok, again is None, loaded.ok, missed is None, all(right), ranks.messages]


def failures(ranks: Ranks) -> list[Any]:
    """A save that fails on the last rank stores nothing; a load that fails on two has one verdict everywhere."""
    toy = Toy(ranks)
    pages, last = list(range(1, 1 + BLOCKS)), ranks.size - 1
    spoiled = toy.save(pages, spoiled=last)
    missed = toy.load(pages)
    saved = toy.save(pages)
    failed = toy.load(pages, failed=(last - 1, last) if last > 1 else (last,))
    good = toy.load(pages)
    toy.close()
    assert spoiled is not None
    assert failed is not None
    assert saved is not None
    assert good is not None
    return [spoiled.code, missed is None, saved.ok, (failed.code, failed.rank, failed.failed), good.ok]


def deadlines(ranks: Ranks) -> list[Any]:
    """The leader's answers come to all in one order, numbered, at most one message a step, none in an idle one."""
    ranks.agree({"model": "toy"}, limit_s=LIMIT_S)
    before, seen = ranks.messages, []
    answers: Iterator[list[tuple[int, int]]] = iter([[], [(7, 48), (3, 0)], [], [(5, 16)]])
    waiting = {3, 5, 7}
    steps = 0
    while waiting:
        polled = next(answers) if ranks.is_leader else []
        made = [forebay.Decision("stop", tag=tag, tokens=tokens) for tag, tokens in polled]
        for decision in ranks.decide(made if ranks.is_leader else None):
            waiting.remove(decision.tag)
            seen.append((decision.number, decision.tag, decision.tokens))
        steps += 1
    busy = ranks.messages - before
    for _ in range(100):
        if waiting:
            ranks.decide([])
    return [seen, steps, busy, ranks.messages - before]


def disagreement(ranks: Ranks) -> str:
    """Their configurations differ: the text of the refusal."""
    fields = {"kv_dtype": "bf16" if ranks.is_leader else "f16", "page size": "16"}
    try:
        ranks.agree(fields, limit_s=LIMIT_S)
    except RanksError as error:
        return str(error)
    return "started"


def start_problem(ranks: Ranks) -> str:
    """The last one cannot start: the text that each raises."""
    try:
        ranks.agree({}, problem="no memory" if ranks.rank == ranks.size - 1 else None, limit_s=LIMIT_S)
    except RanksError as error:
        return str(error)
    return "started"


STORIES: dict[str, Callable[[Ranks], Any]] = {
    "round_trip": round_trip,
    "failures": failures,
    "deadlines": deadlines,
    "disagreement": disagreement,
    "start_problem": start_problem,
}
