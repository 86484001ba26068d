"""Values through the LMCache adapter: kept, found, read back, and never wrong, whatever the store does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.engines.lmcache import ForebayL2
from lmcache_rig import (
    BLOCK,
    LIMIT_S,
    Engine,
    descriptors,
    key,
    our_threads,
    painted,
    store_in,
    threads,
    untouched,
    value,
)

LENGTHS = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 64, 3 * BLOCK + 65, 10 * BLOCK + 7]


@pytest.fixture(params=["mem", "file", "file@agent", "server"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    name = request.param
    if name == "server":
        yield from _served(tmp_path)
        return
    file = store_in(tmp_path)
    with Engine(store={"mem": "mem", "file": file, "file@agent": file.replace(":", "@agent:", 1)}[name]) as made:
        yield made


def _server(path: Path, **changes: Any) -> forebay.Cache:
    """A server's cache, with the model that docs/lmcache.md gives."""
    model = {
        "id": "lmcache", "revision": "unnamed", "kv_dtype": "bytes", "block_tokens": 1, "layer_set": "value",
        "layout": "lmcache-value-1", "weights_epoch": 0, "tp_size": 1, "cp_size": 1, "pp_size": 1,
        "groups": [{"name": "value", "payload_bytes": BLOCK + 64, "rule": "all"}],
    }  # fmt: skip
    return forebay.Cache(
        model=model | changes,
        pool={"bytes": "4MiB"},
        store={"driver": "mem"},
        log={"level": "off"},
        server={"listen": str(path / "socket"), "allow_check": True},
    )


def _served(path: Path) -> Iterator[Engine]:
    """The cache is a server's."""
    with _server(path), Engine(server=str(path / "socket")) as made:
        yield made


def test_values_of_every_length_come_back_from_the_store(engine: Engine) -> None:
    keys = [key(length) for length in LENGTHS]
    assert engine.exists(keys) == [False] * len(keys)
    values = [value(one, length) for one, length in zip(keys, LENGTHS, strict=True)]
    answer = engine.set(keys, values)
    assert (answer.ok, answer.error, answer.results) == (True, "", [True] * len(keys))

    engine.forget()
    assert engine.exists(keys) == [True] * len(keys)
    memory = painted(values)
    answer = engine.get(keys, memory)
    assert (answer.ok, answer.error, answer.results) == (True, "", [True] * len(keys))
    assert memory == values
    engine.quiet()


def test_some_of_a_batch_are_there(engine: Engine) -> None:
    keys = [key(number) for number in range(8)]
    engine.keep(keys[1::2], 2 * BLOCK)
    engine.forget()
    wanted = [False, True] * 4
    assert engine.exists(keys) == wanted
    values = [value(one, 2 * BLOCK) for one in keys]
    memory = painted(values)
    answer = engine.get(keys, memory)
    assert (answer.ok, answer.error, answer.results) == (True, "", wanted)
    assert memory[1::2] == values[1::2]
    assert untouched(memory[0::2])


def test_a_batch_without_keys_ends(engine: Engine) -> None:
    assert engine.exists([]) == []
    assert engine.set([], []).ok
    assert engine.get([], []).results == []


def test_the_same_key_twice_in_a_batch(engine: Engine) -> None:
    values = engine.keep([key(1)], 3 * BLOCK)
    engine.forget()
    memory = painted(values * 3)
    assert engine.get([key(1)] * 3, memory).results == [True] * 3
    assert memory == values * 3
    assert engine.set([key(1)] * 2, values * 2).results == [True, True]


@pytest.mark.parametrize(
    "other",
    [
        {"model": "org/other"},
        {"rank": 1},
        {"group": 1},
        {"salt": "a"},
        {"salt": "b"},
        {"model": "org/model@00000000"},
        {"rank": 16, "group": 0},
    ],
)
def test_keys_that_differ_share_nothing(other: dict[str, str]) -> None:
    with Engine() as engine:
        mine, theirs = key(1), key(1, **other)  # type: ignore[arg-type]
        kept = engine.keep([mine], BLOCK)
        assert engine.exists([theirs]) == [False]
        kept += engine.keep([theirs], BLOCK)
        engine.forget()
        memory = painted(kept)
        assert engine.get([mine, theirs], memory).results == [True, True]
        assert memory == kept
        assert kept[0] != kept[1]


def test_no_text_of_a_key_reaches_the_store(tmp_path: Path) -> None:
    with Engine(store=store_in(tmp_path)) as engine:
        engine.keep([key(1, salt="our-secret-tenant")], BLOCK)
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"our-secret-tenant" not in held
    assert b"org/model" not in held


def test_another_length_than_was_kept_is_a_miss() -> None:
    with Engine() as engine:
        engine.keep([key(1)], 3 * BLOCK)
        for length in (3 * BLOCK - 1, 3 * BLOCK + 1, BLOCK, 9 * BLOCK):
            memory = painted([bytearray(length)])
            assert engine.get([key(1)], memory).results == [False]
            assert untouched(memory)


def test_views_as_lmcache_makes_them() -> None:
    """Its views are of C arrays, with the format ``<B``."""
    import ctypes

    with Engine() as engine:
        source, target = ((ctypes.c_ubyte * (2 * BLOCK))() for _ in range(2))
        source[:] = list(value(key(1), 2 * BLOCK))
        assert engine.answer(engine.client.submit_batch_set([key(1)], [memoryview(source)])).ok
        assert engine.answer(engine.client.submit_batch_get([key(1)], [memoryview(target)])).results == [True]
        assert bytes(source) == bytes(target)
        kept = value(key(2), 5 * BLOCK)
        assert engine.answer(engine.client.submit_batch_set([key(2)], [memoryview(bytes(kept))])).ok
        memory = painted([kept])
        assert engine.get([key(2)], memory).results == [True]
        assert memory == [kept]


# ---- Restarts and damage ---------------------------------------------------------------------------------------------


def test_a_restarted_adapter_finds_what_the_last_one_kept(tmp_path: Path) -> None:
    keys = [key(number) for number in range(4)]
    with Engine(store=store_in(tmp_path)) as engine:
        values = engine.keep(keys, 2 * BLOCK)
    with Engine(store=store_in(tmp_path)) as engine:
        assert engine.exists([*keys, key(9)]) == [True] * 4 + [False]
        memory = painted(values)
        assert engine.get(keys, memory).results == [True] * 4
        assert memory == values


def test_another_revision_of_the_model_finds_nothing(tmp_path: Path) -> None:
    with Engine(store=store_in(tmp_path), config={"model": {"revision": "1"}}) as engine:
        engine.keep([key(1)], BLOCK)
    with Engine(store=store_in(tmp_path), config={"model": {"revision": "2"}}) as engine:
        assert engine.exists([key(1)]) == [False]
    with Engine(store=store_in(tmp_path), config={"model": {"revision": "1"}}) as engine:
        assert engine.exists([key(1)]) == [True]


def test_a_byte_that_changed_on_disk_is_a_miss(tmp_path: Path) -> None:
    keys = [key(1), key(2)]
    with Engine(store=store_in(tmp_path)) as engine:
        values = engine.keep(keys, 2 * BLOCK)
    spot = bytes(values[0][BLOCK + 100 : BLOCK + 200])
    hurt = [path for path in tmp_path.rglob("*") if path.is_file() and spot in path.read_bytes()]
    assert len(hurt) == 1
    held = bytearray(hurt[0].read_bytes())
    held[held.index(spot)] ^= 1
    hurt[0].write_bytes(held)
    with Engine(store=store_in(tmp_path)) as engine:
        memory = painted(values)
        answer = engine.get(keys, memory)
        assert answer.results == [False, True]
        assert answer.error.startswith("partial_read: ")
        assert untouched(memory[:1])
        assert memory[1] == values[1]
        assert engine.quiet()["fail_checksum"] == 1


@pytest.mark.parametrize("fault", ["corrupt(99)", "short(100)", "zero", "miss", "err(CONNECTION)", "not_ready"])
def test_what_a_store_does_wrong_is_a_miss(fault: str) -> None:
    """Of three values the store fails one block; the others arrive whole."""
    with Engine(store="mem") as probe:  # the key of a block is the same in every cache of this model
        hurt = probe.client._place.sequence(key(1), 3).key(2)
    with Engine(store=f"mem:script=get:{hurt}:{fault}", config={"store": {"negative_ttl_s": 0}}) as engine:
        keys = [key(number) for number in range(3)]
        values = engine.keep(keys, 3 * BLOCK)
        engine.forget()
        memory = painted(values)
        answer = engine.get(keys, memory)
        assert answer.results == [True, False, True]
        assert answer.error != ""
        assert untouched(memory[1:2])
        assert [memory[0], memory[2]] == [values[0], values[2]]
        engine.quiet()


def test_a_store_that_is_full_fails_the_set() -> None:
    with Engine(store="mem:script=put:*:at=rest:full") as engine:
        values = [value(key(number), 3 * BLOCK) for number in range(2)]
        answer = engine.set([key(0), key(1)], values)
        assert (answer.ok, answer.results) == (False, [False, False])
        assert answer.error.startswith("the store did not take ")
        engine.forget()
        memory = painted(values)
        assert engine.get([key(0), key(1)], memory).results == [False, False]
        assert untouched(memory)
        engine.quiet()


def test_an_object_that_is_no_value_does_not_exist() -> None:
    with Engine() as engine:
        place = engine.client._place
        sequence = place.sequence(key(1), 1)
        with place.cache.put(sequence, 0, 1) as put:
            put.copy_from(bytes(place.payload))
            put.commit(1)
        assert engine.exists([key(1)]) == [False]


# ---- Time ------------------------------------------------------------------------------------------------------------


def test_a_store_that_hangs_costs_the_limit_and_touches_nothing() -> None:
    """The reads end later, in Forebay's slots: LMCache's memory keeps its bytes, and the slots come back."""
    with Engine(store="mem:script=get:*:times=4:delay(700)", timeout_s=0.2) as engine:
        keys = [key(number) for number in range(4)]
        values = engine.keep(keys, BLOCK // 2)
        engine.forget()
        memory = painted(values)
        begin = time.monotonic()
        answer = engine.get(keys, memory)
        assert answer.results == [False] * 4
        assert answer.error == "no answer of the store within timeout_s"
        assert time.monotonic() - begin >= 0.2
        engine.quiet()  # waits for the reads
        assert untouched(memory)
        assert engine.get(keys, memory).results == [True] * 4
        assert memory == values


def test_a_limit_of_years_is_one() -> None:
    store = "fault:mem:script=get:*:delay(100)"
    with Engine(store=store, timeout_s=1e9) as engine:
        keys = [key(1)]
        values = engine.keep(keys, 3 * BLOCK)
        engine.forget()
        memory = painted(values)
        assert engine.get(keys, memory).results == [True]
        assert memory == values


def test_a_question_that_is_late_is_a_miss() -> None:
    with Engine(store="mem:overwrite=0,script=exists:*:times=1:delay(700)", timeout_s=0.2) as engine:
        engine.keep([key(1)], BLOCK)
        engine.forget()
        answer = engine.answer(engine.client.submit_batch_exists([key(1), key(2)]))
        assert (answer.ok, answer.results) == (True, [False, False])
        assert answer.error == "no answer of the store within timeout_s"
        engine.quiet()
        assert engine.exists([key(1), key(2)]) == [True, False]


def test_a_write_that_is_late_fails_and_ends_well() -> None:
    """What LMCache does with the memory of a failed set is its own business: the slots have the bytes."""
    with Engine(store="mem:overwrite=0,script=put:*:times=1:delay(700)", timeout_s=0.2) as engine:
        kept = value(key(1), 3 * BLOCK)
        given = bytearray(kept)
        answer = engine.set([key(1)], [given])
        assert (answer.ok, answer.results) == (False, [False])
        assert answer.error == "no answer of the store within timeout_s"
        given[:] = bytes(len(given))
        engine.quiet()  # waits for the write
        engine.forget()
        memory = painted([kept])
        assert engine.get([key(1)], memory).results == [True]
        assert memory == [kept]


def test_keys_behind_a_stuck_store_end_with_their_batch() -> None:
    """More keys than are begun at once: those that were not begun end at the same time."""
    with Engine(store="mem:script=exists:*:delay(900)", timeout_s=0.2, config={"store": {"query_lanes": 1}}) as engine:
        answer = engine.answer(engine.client.submit_batch_exists([key(number) for number in range(200)]))
        assert answer.results == [False] * 200
        engine.quiet()


def test_closing_while_the_store_hangs() -> None:
    engine = Engine(store="mem:script=get:*:hang;put:*:call=5-:hang", timeout_s=1000)
    keys = [key(number) for number in range(4)]
    values = engine.keep(keys, BLOCK)
    engine.forget()
    memory = painted(values)
    batches = [engine.client.submit_batch_get(keys, [memoryview(one) for one in memory]) for _ in range(40)]
    batches += [engine.client.submit_batch_exists(keys) for _ in range(40)]
    batches += [engine.client.submit_batch_set([key(50 + n)], [memoryview(bytearray(BLOCK))]) for n in range(4)]
    engine.close()
    answers = [engine.answer(number) for number in batches]
    assert not any(any(answer.results) for answer in answers[:80])
    assert {answer.error for answer in answers} <= {"the adapter was closed", ""}
    assert untouched(memory)
    assert our_threads() == []


def test_a_closed_adapter_answers_misses() -> None:
    engine = Engine()
    engine.close()
    engine.close()
    assert engine.client.event_fd() == -1
    batches = [engine.client.submit_batch_exists([key(1)]), engine.client.submit_batch_set([key(1)], [bytearray(8)])]
    for number in batches:
        engine._collect()
        answer = engine.answer(number)
        assert (answer.results, answer.error) == ([False], "the adapter is closed")


def test_a_dropped_adapter_is_closed() -> None:
    before = descriptors()
    client = ForebayL2(store="mem", pool_bytes="1MiB", block_bytes=BLOCK, config={"log": {"level": "off"}})
    assert our_threads() == ["forebay-read", "forebay-write"]
    del client
    assert our_threads() == []
    assert descriptors() == before


# ---- Servers ---------------------------------------------------------------------------------------------------------


def test_a_server_with_another_model_is_refused(tmp_path: Path) -> None:
    with _server(tmp_path, revision="2"), pytest.raises(ValueError, match="has another model") as refused:
        Engine(server=str(tmp_path / "socket"))
    assert '"payload_bytes": 4160' in str(refused.value)


def test_a_server_that_goes_away_means_misses_until_it_is_back(tmp_path: Path) -> None:
    server = _server(tmp_path)
    with Engine(server=str(tmp_path / "socket"), timeout_s=LIMIT_S) as engine:
        values = engine.keep([key(1)], 3 * BLOCK)
        server.close()
        memory = painted(values)
        assert engine.exists([key(1)]) == [False]
        assert engine.get([key(1)], memory).results == [False]
        assert untouched(memory)
        answer = engine.set([key(2)], values)
        assert (answer.ok, answer.results) == (False, [False])
        assert "the server is away" in answer.error
        with _server(tmp_path):
            end = time.monotonic() + LIMIT_S
            while not engine.set([key(1)], values).ok:  # it tries to connect once a second
                assert time.monotonic() < end
            assert engine.get([key(1)], memory).results == [True]
            assert memory == values


# ---- Room ------------------------------------------------------------------------------------------------------------


def test_more_than_the_pool_holds_goes_through_it(tmp_path: Path) -> None:
    with Engine(store=store_in(tmp_path), pool_bytes="1MiB") as engine:
        keys = [key(number) for number in range(150)]
        values = engine.keep(keys, 5 * BLOCK)
        assert engine.exists(keys) == [True] * len(keys)
        memory = painted(values)
        assert engine.get(keys, memory).results == [True] * len(keys)
        assert memory == values
        assert engine.quiet()["blocks_evicted"] > 0


def test_a_value_that_is_too_long_for_the_pool_says_so() -> None:
    with Engine(pool_bytes="1MiB") as engine:
        long = value(key(1), 100 * BLOCK)
        answer = engine.set([key(1), key(2)], [long, value(key(2), BLOCK)])
        assert (answer.ok, answer.results) == (False, [False, True])
        assert "raise pool_bytes" in answer.error
        memory = painted([long])
        answer = engine.get([key(1)], memory)
        assert answer.results == [False]
        assert "raise pool_bytes" in answer.error


SLOT = BLOCK + 128  # header and trailer


def test_room_that_others_have_is_waited_for() -> None:
    """A lease of somebody else covers most of what may be pinned: keys wait until it goes."""
    config = {"prefetch": {"max_pinned_bytes": 5 * SLOT}}
    with Engine(pool_bytes="256KiB", timeout_s=LIMIT_S, config=config) as engine:
        keys = [key(number) for number in range(5)]
        values = engine.keep(keys, 3 * BLOCK)
        cache = engine.client.cache
        other = cache.start(engine.client._place.sequence(keys[4], 3))
        assert other.wait(LIMIT_S).delivered_tokens == 3
        memory = painted(values[:4])
        batch = engine.client.submit_batch_get(keys[:4], [memoryview(one) for one in memory])
        end = time.monotonic() + LIMIT_S
        while cache.stats()["sessions"] < 5:  # all of them have begun
            assert time.monotonic() < end
            time.sleep(0.005)
        assert untouched(memory)
        other.release()
        assert engine.answer(batch).results == [True] * 4
        assert memory == values[:4]
        engine.quiet()


def test_room_that_never_comes_is_a_miss() -> None:
    """Less may be pinned than a value has: it is tried again until the limit."""
    config = {"prefetch": {"max_pinned_bytes": 2 * SLOT}}
    with Engine(pool_bytes="256KiB", timeout_s=0.2, config=config) as engine:
        values = engine.keep([key(1)], 3 * BLOCK)
        memory = painted(values)
        answer = engine.get([key(1)], memory)
        assert (answer.results, answer.error) == ([False], "not begun within timeout_s")
        assert untouched(memory)
        assert engine.quiet()["sessions"] > 1


# ---- Many ------------------------------------------------------------------------------------------------------------


def test_a_thousand_batches_leave_nothing_behind() -> None:
    with Engine() as engine:
        keys = [key(number) for number in range(4)]
        values = engine.keep(keys, BLOCK)
        memory = painted(values)
        for turn in range(250):
            if turn % 50 == 0:
                engine.forget()
            if turn == 1:
                before = descriptors(), threads()
            assert engine.exists([*keys, key(99)]) == [True] * 4 + [False]
            assert engine.get(keys, memory).results == [True] * 4
            assert engine.set(keys, values).ok
            assert engine.get([key(99)], memory[:1]).results == [False]
        assert memory == values
        engine.quiet()
        # The library makes lanes when it first needs them: a few, not one for each of a thousand.
        assert descriptors() < before[0] + 20
        assert threads() < before[1] + 20


def test_threads_that_submit_at_once() -> None:
    """Four engines' threads keep, ask and read their own and each other's keys; every answer is right."""
    with Engine() as engine:
        failures: list[str] = []

        def work(me: int) -> None:
            for turn in range(25):
                keys = [key(turn * 10 + i, rank=me) for i in range(3)]
                values = [value(one, 2 * BLOCK + me) for one in keys]
                if not engine.set(keys, values).ok:
                    failures.append(f"set {me} {turn}")
                memory = painted(values)
                if engine.exists(keys) != [True] * 3 or not all(engine.get(keys, memory).results) or memory != values:
                    failures.append(f"get {me} {turn}")

        workers = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert failures == []
        engine.quiet()
