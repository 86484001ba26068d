"""LMCache's side of the adapter: a client that is polled and drained as LMCache does; values that name their key."""

from __future__ import annotations

import hashlib
import select
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from forebay.engines.lmcache import ForebayL2

LIMIT_S = 20.0  # longer than any wait here takes, short enough to fail soon
BLOCK = 4096
UNTOUCHED = 0xEE
AT_REST = {"pool_blocks_gauge", "free_blocks_gauge", "resident_blocks_gauge", "agents_gauge"}  # not 0 in a quiet cache
OURS = {"forebay-read", "forebay-write"}


def key(number: int, *, model: str = "org/model", rank: int = 0, group: int = 0, salt: str = "") -> str:
    """A key as LMCache writes it."""
    text = f"{model}@{rank:08x}@{group:x}@{hashlib.sha256(str(number).encode()).hexdigest()}"
    return f"{text}@{salt}" if salt else text


def value(text: str, length: int) -> bytearray:
    """Bytes that follow from a key: a wrong, stale or shifted byte is found by comparing."""
    return bytearray(hashlib.shake_128(text.encode()).digest(length))


def painted(values: Iterable[bytearray]) -> list[bytearray]:
    """Memory to read values into, as long as they are."""
    return [bytearray([UNTOUCHED]) * len(one) for one in values]


def untouched(memory: Iterable[bytearray]) -> bool:
    """Whether nothing was written there."""
    return all(set(one) <= {UNTOUCHED} for one in memory)


class Answer:
    """A completion.

    Attributes:
        ok: how the batch went.
        error: the first thing that went wrong.
        results: one per key.
    """

    def __init__(self, ok: bool, error: str, results: list[bool]) -> None:
        self.ok, self.error, self.results = ok, error, results


class Engine:
    """A client with a thread that polls its descriptor and drains it.

    Args:
        **params: ``adapter_params``; small blocks and a small pool where nothing is said.
    """

    def __init__(self, **params: Any) -> None:
        config = {"log": {"level": "off"}, **params.pop("config", {})}
        usual = {"block_bytes": BLOCK, "pool_bytes": "4MiB", "store": "mem"}
        self.client = ForebayL2(**(usual | params | {"config": config}))
        self._answers: dict[int, Answer] = {}
        self._arrived = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="demux", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        poller = select.poll()
        poller.register(self.client.event_fd(), select.POLLIN)
        while not self._ended.is_set():
            if poller.poll(100):
                self._collect()

    def _collect(self) -> None:
        drained = self.client.drain_completions()
        with self._arrived:
            for number, ok, error, results in drained:
                assert number not in self._answers
                self._answers[number] = Answer(ok, error, results)
            self._arrived.notify_all()

    def answer(self, number: int) -> Answer:
        """Waits for a batch."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: number in self._answers, LIMIT_S), f"batch {number} did not end"
            return self._answers.pop(number)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        answer = self.answer(self.client.submit_batch_exists(keys))
        assert answer.ok  # LMCache looks at the results of such batches only
        return answer.results

    def set(self, keys: Sequence[str], values: Sequence[bytearray]) -> Answer:
        return self.answer(self.client.submit_batch_set(keys, [memoryview(one) for one in values]))

    def get(self, keys: Sequence[str], memory: Sequence[bytearray]) -> Answer:
        return self.answer(self.client.submit_batch_get(keys, [memoryview(one) for one in memory]))

    def keep(self, keys: Sequence[str], length: int) -> list[bytearray]:
        """Sets values that name their keys, and returns them."""
        values = [value(one, length) for one in keys]
        answer = self.set(keys, values)
        assert (answer.ok, answer.error, answer.results) == (True, "", [True] * len(keys))
        return values

    def forget(self) -> None:
        """Empties the pool: what is read next comes from the store."""
        assert self.client.cache.reset(LIMIT_S)

    def quiet(self) -> dict[str, int]:
        """Waits until nothing of the cache is in use, checks its invariants and returns its counters."""
        end = time.monotonic() + LIMIT_S
        while True:
            stats = self.client.cache.stats()
            busy = {name: n for name, n in stats.items() if name.endswith("_gauge") and n and name not in AT_REST}
            if not busy:
                self.client.cache.check()
                return dict(stats)
            assert time.monotonic() < end, busy
            time.sleep(0.005)  # nothing says that all of it has ended

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.client.close()
        self._collect()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def store_in(directory: Path) -> str:
    """The name of a file store."""
    return f"file:dir={directory},capacity=64MiB,segment=1MiB"


def descriptors() -> int:
    """How many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def threads() -> int:
    """How many threads this process has, in all languages."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def our_threads() -> list[str]:
    """Names of the adapter's threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name in OURS)
