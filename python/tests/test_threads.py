"""Threads: a counting thread goes on during every waiting call; calls from many threads; asyncio."""

from __future__ import annotations

import array
import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forebay
import pytest
from conftest import BLOCK_BYTES, PATIENT, TENTH, Maker, contents, fill, model, prompt

ENOUGH = 20_000  # counts that cannot happen while the interpreter's lock is held by somebody else


def count_then(act: Callable[[], Any]) -> threading.Thread:
    """A thread that counts, and then ends what another one waits for: a call that keeps the lock would never return."""

    def run() -> None:
        counted = 0
        while counted < ENOUGH:
            counted += 1
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def hanging(open_cache: Maker) -> tuple[forebay.Cache, forebay.Sequence]:
    cache = open_cache(store={"options": {"script": "get:*:hang"}}, prefetch=PATIENT)
    sequence = fill(cache, 4)
    cache.reset(TENTH)
    return cache, sequence


@pytest.mark.parametrize("in_thread", [False, True])
def test_others_count_while_one_waits_for_an_answer(
    hanging: tuple[forebay.Cache, forebay.Sequence], in_thread: bool
) -> None:
    cache, sequence = hanging
    session = cache.start(sequence)
    outcomes: list[forebay.Outcome] = []

    def wait() -> None:
        outcomes.append(session.wait().outcome)

    waiter = threading.Thread(target=wait)
    counter = count_then(session.stop)
    waiter.start() if in_thread else wait()
    if in_thread:
        waiter.join(TENTH)
    counter.join(TENTH)
    assert outcomes == [forebay.Outcome.ABORTED]


def test_others_count_while_one_waits_for_the_store(open_cache: Maker) -> None:
    cache = open_cache(store={"options": {"script": "put:*:hang"}}, prefetch=PATIENT)
    with cache.put(cache.sequence(prompt(2))) as put:
        put.copy_from(contents(2))
        put.commit()
        with pytest.raises(forebay.WaitTimeoutError):
            put.wait_store(0)
        counter = count_then(lambda: cache.close(1))
        with pytest.raises(forebay.ClosedError):
            put.wait_store()
        counter.join(TENTH)


def test_others_count_while_one_resets(open_cache: Maker) -> None:
    cache = open_cache()
    hold = cache.lookup(fill(cache, 2))
    assert cache.reset(0) is False
    counter = count_then(hold.release)
    assert cache.reset(TENTH)
    counter.join(TENTH)


def test_others_count_while_one_closes(open_cache: Maker) -> None:
    cache = open_cache(store={"options": {"script": "put:*:hang"}}, prefetch=PATIENT)
    put = cache.put(cache.sequence(prompt(2)))
    put.copy_from(contents(2))
    put.commit()
    counted = threading.Event()
    counter = count_then(counted.set)
    cache.close(0.5)
    counter.join(TENTH)
    assert counted.is_set()


def test_others_count_while_one_waits_for_events(open_cache: Maker) -> None:
    cache = open_cache()
    with cache.subscribe() as events:
        counter = count_then(lambda: fill(cache, 1))
        assert events.wait()
        counter.join(TENTH)


def test_others_count_while_one_waits_for_ranks_and_the_leader(open_served: Maker) -> None:
    cache = open_served()
    group = cache.join("alone", 0, 1, forebay.Card(0, 1).encode(), TENTH)
    counter = count_then(lambda: group.send(b"from the leader"))
    assert group.receive() == b"from the leader"
    counter.join(TENTH)
    counted = threading.Event()
    counter = count_then(counted.set)
    with pytest.raises(forebay.WaitTimeoutError):
        cache.join("pair", 0, 2, forebay.Card(0, 2).encode(), 0.5)
    counter.join(TENTH)
    assert counted.is_set()


def test_others_count_while_one_hashes_and_copies(open_cache: Maker) -> None:
    big = model(groups=[{"name": "kv", "payload_bytes": 8 << 20, "rule": "all"}])
    cache = open_cache(model=big, pool={"bytes": "64MiB"}, store={"write": "off"}, prefetch={"enabled": False})
    tokens, kv = array.array("q", range(1 << 20)), bytearray(32 << 20)
    sequence = cache.sequence(range(65))
    put = cache.put(sequence)
    put.copy_from(kv)
    progress, end = [0], threading.Event()

    def count() -> None:
        while not end.is_set():
            progress[0] += 1

    def goes_on_during(call: Callable[[], Any]) -> bool:
        for _ in range(50):
            before = progress[0]
            call()
            if progress[0] > before:
                return True
        return False

    counter = threading.Thread(target=count)
    counter.start()
    try:
        assert goes_on_during(lambda: cache.sequence(tokens))
        assert goes_on_during(lambda: put.copy_from(kv))
        put.commit()
        with cache.lookup(sequence) as hold, forebay.Rank.attach_cache(cache) as rank:
            assert goes_on_during(lambda: hold.copy_to(kv))
            rank.register(0, forebay.Layout("packed", 1, (forebay.Tensor(kv),), 4, 8 << 20), offset=0, size=8 << 20)
            places = hold.places()
            assert goes_on_during(lambda: rank.load(0, places, range(len(places))).wait())
    finally:
        end.set()
        counter.join(TENTH)


def test_many_threads_share_a_cache(open_cache: Maker) -> None:
    cache = open_cache()
    sequences = [fill(cache, 4, seed) for seed in range(8)]
    failures: list[BaseException] = []
    stale: list[int] = []

    def prefetch(seed: int) -> None:
        with cache.start(sequences[seed]) as session:
            session.poll()
            session.demand()
            size = session.wait(TENTH).delivered_blocks * BLOCK_BYTES
            target = bytearray(size)
            with session.take() as hold:
                hold.copy_to(target)
            assert target == contents(4, seed)[:size]

    def work(seed: int) -> None:
        for _ in range(100):
            try:
                prefetch(seed)
            except forebay.StaleError:  # a reset came in between
                stale.append(seed)
            except BaseException as failure:
                failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        cache.reset(0)
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(stale) < 800
    cache.check()


def test_threads_append_to_one_sequence_in_turns(open_cache: Maker) -> None:
    cache = open_cache()
    sequence, piece = cache.sequence([]), array.array("I", [7] * 4099)

    def append() -> None:
        for _ in range(50):
            sequence.append(piece)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        cache.start(sequence).release()
    for thread in threads:
        thread.join(TENTH)
    whole = cache.sequence(piece * 200)
    assert (sequence.tokens, sequence.blocks) == (whole.tokens, whole.blocks) == (819_800, 51_237)
    assert sequence.key(51_236) == whole.key(51_236)


def test_a_coroutine_waits_without_a_thread(open_cache: Maker) -> None:
    cache = open_cache(store={"options": {"latency_ms": 20}})
    sequences = [fill(cache, 4, seed) for seed in range(8)]
    cache.reset(TENTH)

    async def all_of_them() -> list[forebay.Snapshot]:
        sessions = [cache.start(sequence, policy="wait_complete") for sequence in sequences]
        threads = threading.active_count()
        answers = await asyncio.gather(*(session.wait_async(TENTH) for session in sessions))
        assert threading.active_count() == threads
        assert [await session.wait_async() for session in sessions] == [session.poll() for session in sessions]
        return answers

    files = len(list(Path("/proc/self/fd").iterdir()))
    answers = asyncio.run(all_of_them())
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert [answer.delivered_tokens for answer in answers] == [64] * 8


def test_a_coroutine_times_out_and_is_cancelled(hanging: tuple[forebay.Cache, forebay.Sequence]) -> None:
    cache, sequence = hanging

    async def story() -> None:
        session = cache.start(sequence)
        with pytest.raises(forebay.WaitTimeoutError):
            await session.wait_async(0.01)
        waiting = asyncio.create_task(session.wait_async())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        again = asyncio.create_task(session.wait_async())
        await asyncio.sleep(0)
        session.stop()
        assert (await again).outcome is forebay.Outcome.ABORTED
        closing = cache.start(sequence)
        end = asyncio.create_task(closing.wait_async())
        await asyncio.sleep(0)
        await asyncio.to_thread(cache.close, TENTH)
        with pytest.raises(forebay.ClosedError):
            await end

    asyncio.run(story())
