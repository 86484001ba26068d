"""Values by key: one block each, bounded in time, verified, copied by the caller's own thread."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import forebay
import pytest
from conftest import PATIENT, TENTH, Maker, until
from forebay.engines.common.keyed import Keyed, Piece, keyed_model, piece_of, size_of

BYTES = 1024
FIELDS = {
    "id": "keyed", "revision": "1", "kv_dtype": "f16", "layer_set": "all", "layout": "plain", "weights_epoch": 0,
    "tp_size": 1, "cp_size": 1, "pp_size": 1,
}  # fmt: skip
MODEL = keyed_model(FIELDS, BYTES).section()
SHORT_S = 0.3  # a limit that ends a call on a store that hangs; nothing else would


class Memory:
    """An engine's memory: values of some pieces each, one after the other."""

    def __init__(self, values: int, seed: int | None = None, size: int = BYTES) -> None:
        fill = bytes(values * size) if seed is None else b"".join(_content(i, seed, size) for i in range(values))
        self.bytes, self._size = bytearray(fill), size
        self._address, _ = piece_of(self.bytes)

    def value(self, index: int) -> list[Piece]:
        """Two pieces."""
        begin, first = self._address + index * self._size, self._size // 4
        return [(begin, first), (begin + first, self._size - first)]

    def values(self, *indices: int) -> list[list[Piece]]:
        return [self.value(index) for index in indices]

    def at(self, index: int) -> bytes:
        return bytes(self.bytes[index * self._size : (index + 1) * self._size])


def _content(index: int, seed: int, size: int = BYTES) -> bytes:
    return bytes((index * 31 + seed * 97 + byte * 5 + byte // 251) % 255 + 1 for byte in range(size))


def keys(n: int, seed: int = 0) -> list[str]:
    return [f"{seed}-{i}" for i in range(n)]


class Log:
    """What a view complained of."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, what: str, error: BaseException) -> None:
        self.lines.append(f"{what}: {error}")


def view_of(cache: forebay.Cache, log: Log | None = None, name: str = "kv", **options: Any) -> Keyed:
    return Keyed(cache, name, complain=log or Log(), **options)


def store_of(script: str, **options: Any) -> dict[str, Any]:
    return {"driver": "mem", "options": {"script": script} | options}


def assert_nothing_is_left(cache: forebay.Cache) -> None:
    """No session, lease, hold or put of a call that ended; what hangs is let go of by a thread of its own."""
    names = [f"{name}_gauge" for name in ("sessions_running", "leases", "holds", "puts")]
    until(lambda: not any(cache.stats()[name] for name in names))


def in_time(call: Callable[[], list[bool]]) -> list[bool]:
    """The answer of a call that must end by its own limit; every other limit is far away."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.extend(call()), daemon=True)
    thread.start()
    thread.join(TENTH)
    assert not thread.is_alive()
    return answers


def leave(cache: forebay.Cache) -> None:
    """Closes a cache whose store hangs for good."""
    with contextlib.suppress(forebay.AbandonedError):
        cache.close(0)


@pytest.fixture
def cache(open_cache: Maker) -> forebay.Cache:
    return open_cache(model=MODEL)


def test_values_come_back_wherever_in_a_batch_they_stand(cache: forebay.Cache) -> None:
    view, source, target = view_of(cache), Memory(8, 1), Memory(8)
    names = keys(8)
    assert view.set(names, source.values(*range(8)), TENTH) == [True] * 8
    assert cache.reset(TENTH)
    assert view.get(names[5:7], target.values(5, 6), TENTH) == [True] * 2
    assert cache.reset(TENTH)
    assert view.get(names, target.values(*range(8)), TENTH) == [True] * 8
    assert target.bytes == source.bytes
    assert view.get([names[3], names[3]], target.values(0, 1), TENTH) == [True] * 2
    assert (target.at(0), target.at(1)) == (source.at(3), source.at(3))
    assert_nothing_is_left(cache)


def test_names_and_sizes_share_nothing(cache: forebay.Cache) -> None:
    view, other, source = view_of(cache), view_of(cache, name="swa"), Memory(1, 1)
    half = Memory(1, 2, BYTES // 2)
    assert view.set(["k"], source.values(0), TENTH) == [True]
    assert other.get(["k"], Memory(1).values(0), TENTH) == [False]
    assert view.get(["k"], half.values(0), TENTH) == [False]
    assert half.at(0) == _content(0, 2, BYTES // 2)
    assert view.set(["k"], half.values(0), TENTH) == [True]
    target, whole = Memory(1, None, BYTES // 2), Memory(1)
    assert view.get(["k", "k"], [target.value(0), whole.value(0)], TENTH) == [True, True]
    assert (target.bytes, whole.bytes) == (half.bytes, source.bytes)


def test_the_rest_of_a_slot_holds_nothing_of_its_former_value(cache: forebay.Cache) -> None:
    view, half = view_of(cache), Memory(1, 2, BYTES // 2)
    with cache.put(view.sequence("first", BYTES)) as put:  # a slot with old bytes, which goes back
        put.copy_from(b"\xff" * BYTES)
    assert view.set(["k"], half.values(0), TENTH) == [True]
    with cache.lookup(view.sequence("k", BYTES // 2)) as hold:
        slot = hold.slots()[0]
        assert slot is not None
        assert bytes(slot) == half.at(0) + bytes(BYTES // 2)
        del slot


def test_a_size_that_no_slot_has_is_refused(cache: forebay.Cache) -> None:
    view = view_of(cache)
    with pytest.raises(ValueError, match=f"{BYTES + 1} bytes; accepted: 1 to {BYTES}"):
        view.get(["k"], [[(1, BYTES + 1)]], TENTH)
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        view.set(["k", "l"], [[(1, 1)]], TENTH)
    assert size_of([(1, 3), (9, 4)]) == 7


def test_what_is_not_there_is_absent_and_ends_a_leading_run(cache: forebay.Cache) -> None:
    view, source, target = view_of(cache), Memory(4, 1), Memory(4)
    names = keys(4)
    assert view.set(names[:1] + names[2:], source.values(0, 2, 3), TENTH) == [True] * 3
    assert cache.reset(TENTH)
    assert view.exists(names, BYTES, TENTH) == [True, False, True, True]
    assert view.exists(names, BYTES, TENTH, leading=True) == [True, False, False, False]
    assert view.get(names, target.values(*range(4)), TENTH, leading=True) == [True, False, False, False]
    assert target.bytes[BYTES:] == bytes(3 * BYTES)
    assert view.get(names, target.values(*range(4)), TENTH) == [True, False, True, True]
    assert target.at(1) == bytes(BYTES)


def test_a_question_reads_ahead_and_the_get_reads_nothing_twice(open_here: Maker) -> None:
    cache = open_here(model=MODEL)
    view, source, target = view_of(cache), Memory(40, 1), Memory(40)
    assert view.set(keys(40), source.values(*range(40)), TENTH) == [True] * 40
    assert cache.reset(TENTH)
    assert view.exists(keys(40), BYTES, TENTH, leading=True) == [True] * 40
    assert view.get(keys(40), target.values(*range(40)), TENTH) == [True] * 40
    assert target.bytes == source.bytes
    assert cache.stats()["graphs"] == 40  # one read each


def test_behind_the_first_absent_value_nothing_is_asked(open_here: Maker) -> None:
    cache = open_here(model=MODEL)
    view = view_of(cache)
    assert view.exists(keys(500), BYTES, TENTH, leading=True) == [False] * 500
    assert cache.stats()["queries"] <= 2 * view.window


def test_a_question_reads_nothing_where_that_is_not_wanted(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("get:*:hang"), prefetch=PATIENT)
    view = view_of(cache, read_ahead=False)
    assert view.set(["k"], Memory(1, 1).values(0), TENTH) == [True]
    assert cache.reset(TENTH)
    assert view.exists(["k"], BYTES, TENTH) == [True]
    assert len(view._ahead) == 0


def test_what_is_read_ahead_protects_an_eighth_of_the_pool(open_here: Maker) -> None:
    cache = open_here(model=MODEL, pool={"bytes": "64KiB"})
    view, source = view_of(cache), Memory(30, 1)
    with cache.lookup(view.sequence("none", BYTES)) as hold:
        assert hold.tokens == 0
    assert view.set(keys(30), source.values(*range(30)), TENTH) == [True] * 30
    assert cache.reset(TENTH)
    assert view.exists(keys(30), BYTES, TENTH) == [True] * 30
    assert len(view._ahead) == view.window <= 7
    view.forget()
    assert len(view._ahead) == 0


def test_reads_ahead_leave_handles_for_others(open_here: Maker) -> None:
    cache = open_here(model=MODEL, pool={"bytes": "32MiB"})
    view, source = view_of(cache), Memory(1100, 1)
    assert all(view.set(keys(1100), source.values(*range(1100)), TENTH))
    assert cache.reset(TENTH)
    assert view.exists(keys(1100), BYTES, TENTH) == [True] * 1100
    assert len(view._ahead) == 1024


def test_a_reset_between_question_and_get_costs_a_read(cache: forebay.Cache) -> None:
    view, source, target = view_of(cache), Memory(2, 1), Memory(2)
    assert view.set(keys(2), source.values(0, 1), TENTH) == [True] * 2
    assert cache.reset(TENTH)
    assert view.exists(keys(2), BYTES, TENTH) == [True] * 2
    cache.reset()  # what was found is forgotten, its leases are stale
    until(lambda: cache.reset(TENTH))
    assert view.get(keys(2), target.values(0, 1), TENTH) == [True] * 2
    assert target.bytes == source.bytes


def test_a_damaged_value_is_absent_and_touches_nothing(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("get:*:times=1:corrupt(77)"))
    view, source, target = view_of(cache), Memory(2, 1), Memory(2)
    assert view.set(keys(2), source.values(0, 1), TENTH) == [True] * 2
    assert cache.reset(TENTH)
    first = view.get(keys(1), target.values(0), TENTH)
    assert first == [False]
    assert target.bytes == bytes(2 * BYTES)
    assert cache.stats()["fail_checksum"] == 1
    assert view.get(keys(2)[1:], target.values(1), TENTH) == [True]


def test_bytes_that_changed_in_the_pool_are_noticed_where_that_is_wanted(cache: forebay.Cache) -> None:
    view, trusting, target = view_of(cache, verify=True), view_of(cache), Memory(2)
    source = Memory(2, 1)
    assert view.set(keys(2), source.values(0, 1), TENTH) == [True] * 2
    assert view.get(keys(2), target.values(0, 1), TENTH) == [True] * 2
    assert target.bytes == source.bytes
    with cache.lookup(view.sequence(keys(2)[0], BYTES)) as hold, contextlib.closing(cache.pool()) as pool:
        os.pwrite(pool.descriptor, b"wild", hold.places()[0])  # as a store that wrote where it must not
    target = Memory(2)
    assert view.get(keys(2), target.values(0, 1), TENTH) == [False, True]
    assert target.at(0) == bytes(BYTES)
    assert trusting.get(keys(2), target.values(0, 1), TENTH) == [True, True]
    assert target.at(0)[:4] == b"wild"
    assert view.close(TENTH)


@pytest.mark.parametrize("host", ["inline", "thread", "agent"])
def test_a_read_that_hangs_is_absent_in_time(open_here: Maker, host: str) -> None:
    log = Log()
    cache = open_here(model=MODEL, store=store_of("get:*:hang") | {"host": host}, prefetch=PATIENT)
    view, target = view_of(cache, log), Memory(3)
    assert view.set(keys(3), Memory(3, 1).values(0, 1, 2), TENTH) == [True] * 3
    assert cache.reset(TENTH)
    assert view.exists(keys(3), BYTES, TENTH) == [True] * 3
    assert in_time(lambda: view.get(keys(3), target.values(0, 1, 2), SHORT_S, leading=True)) == [False] * 3
    view.forget()  # what the get did not come to
    assert target.bytes == bytes(3 * BYTES)
    assert_nothing_is_left(cache)
    assert log.lines == []
    leave(cache)


def test_a_question_that_hangs_is_no_in_time(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("exists:*:hang"), prefetch=PATIENT)
    view = view_of(cache)
    assert in_time(lambda: view.exists(keys(3), BYTES, SHORT_S, leading=True)) == [False] * 3
    assert in_time(lambda: view.exists(keys(200), BYTES, SHORT_S)) == [False] * 200
    leave(cache)


def test_what_ends_late_is_never_written(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("get:*:delay(400)"), prefetch=PATIENT)
    view, target = view_of(cache), Memory(2)
    assert view.set(keys(2), Memory(2, 1).values(0, 1), TENTH) == [True] * 2
    assert cache.reset(TENTH)
    assert view.get(keys(2), target.values(0, 1), 0.05) == [False] * 2
    until(lambda: cache.health().oldest_operation_ns == 0 and cache.stats()["inflight_graphs_gauge"] == 0)
    assert target.bytes == bytes(2 * BYTES)


def test_without_time_nothing_is_copied(cache: forebay.Cache) -> None:
    view, target = view_of(cache), Memory(2)
    assert view.set(keys(2), Memory(2, 1).values(0, 1), TENTH) == [True] * 2
    assert view.get(keys(2), target.values(0, 1), 0) == [False] * 2
    assert view.set(keys(2, 2), Memory(2, 1).values(0, 1), 0) == [False] * 2
    assert target.bytes == bytes(2 * BYTES)


def test_a_long_question_ends_in_time_also_where_all_is_resident(
    cache: forebay.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, asked = view_of(cache), [0]
    assert view.set(keys(8), Memory(8, 1).values(*range(8)), TENTH) == [True] * 8
    names = keys(8) * 1000
    look = type(cache).lookup_advisory

    def slowly(self: forebay.Cache, sequence: forebay.Sequence) -> int:
        asked[0] += 1
        time.sleep(0.01)
        return look(self, sequence)

    monkeypatch.setattr(type(cache), "lookup_advisory", slowly)
    there = view.exists(names, BYTES, 0.1, leading=True)
    assert 0 < sum(there) == asked[0] <= 10


def test_what_came_behind_one_that_hangs_counts(open_here: Maker) -> None:
    cache = open_here(model=MODEL, prefetch=PATIENT)
    view, source = view_of(cache), Memory(3, 1)
    key = view.sequence(keys(3)[1], BYTES).key(0)
    store = store_of(f"get:{key}:hang")
    cache = open_here(model=MODEL, store=store, prefetch=PATIENT)
    view, target = view_of(cache), Memory(3)
    assert view.set(keys(3), source.values(0, 1, 2), TENTH) == [True] * 3
    assert cache.reset(TENTH)
    assert view.get(keys(3), target.values(0, 1, 2), 5 * SHORT_S) == [True, False, True]
    assert (target.at(0), target.at(1), target.at(2)) == (source.at(0), bytes(BYTES), source.at(2))


def test_out_of_time_no_read_is_begun(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("get:*:hang"), prefetch=PATIENT)
    view, source, target = view_of(cache), Memory(200, 1), Memory(200)
    assert view.set(keys(200), source.values(*range(200)), TENTH) == [True] * 200
    until(lambda: cache.reset(TENTH))
    assert in_time(lambda: view.get(keys(200), target.values(*range(200)), SHORT_S)) == [False] * 200
    assert cache.stats()["sessions"] == view.window
    leave(cache)


def test_writes_that_hang_are_not_set_in_time_and_fill_no_more_than_their_share(open_here: Maker) -> None:
    log = Log()
    cache = open_here(model=MODEL, pool={"bytes": "64KiB"}, store=store_of("put:*:hang"), prefetch=PATIENT)
    view, source = view_of(cache, log), Memory(60, 1)
    for seed in (1, 2):
        names = keys(60, seed)
        assert in_time(lambda names=names: view.set(names, source.values(*range(60)), SHORT_S)) == [False] * 60  # type: ignore[misc]
    free = cache.stats()["free_blocks_gauge"]
    assert free >= 30  # write_pinned_bytes: a quarter
    assert_nothing_is_left(cache)
    assert log.lines == []
    leave(cache)


def test_a_write_that_fails_is_not_set(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("put:*:full"))
    view = view_of(cache)
    assert view.set(keys(2), Memory(2, 1).values(0, 1), TENTH) == [False, False]


def test_more_values_than_the_pool_holds_are_set_in_turn(open_here: Maker) -> None:
    cache = open_here(model=MODEL, pool={"bytes": "64KiB"})
    view, source, target = view_of(cache), Memory(300, 1), Memory(300)
    assert view.set(keys(300), source.values(*range(300)), TENTH) == [True] * 300
    assert view.exists(keys(300), BYTES, TENTH, leading=True) == [True] * 300
    assert view.get(keys(300), target.values(*range(300)), TENTH) == [True] * 300
    assert target.bytes == source.bytes


def test_with_write_back_the_pool_counts(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store={"driver": "mem", "write": "back"})
    view = view_of(cache, write_back=True)
    assert view.set(keys(2), Memory(2, 1).values(0, 1), TENTH) == [True, True]
    assert view.set(keys(2), Memory(2, 1).values(0, 1), TENTH) == [True, True]


def test_three_threads_at_once(cache: forebay.Cache) -> None:
    view, failures = view_of(cache, window=8), list[str]()

    def work(seed: int) -> None:
        source, target = Memory(20, seed), Memory(20)
        for turn in range(5):
            names = keys(20, seed * 10 + turn)
            if view.exists(names, BYTES, TENTH) != [False] * 20:
                failures.append("there before it was set")
            if view.set(names, source.values(*range(20)), TENTH) != [True] * 20:
                failures.append("not set")
            if not all(view.exists(names, BYTES, TENTH, leading=True)):
                failures.append("not there")
            if not all(view.get(names, target.values(*range(20)), TENTH)) or target.bytes != source.bytes:
                failures.append("other bytes")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_closing_waits_for_calls_and_then_nobody_gets_in(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("get:*:delay(200)"), prefetch=PATIENT)
    view, source, target, answers = view_of(cache), Memory(1, 1), Memory(1), list[bool]()
    assert view.set(["k"], source.values(0), TENTH) == [True]
    assert cache.reset(TENTH)
    caller = threading.Thread(target=lambda: answers.extend(view.get(["k"], target.values(0), TENTH)))
    caller.start()
    until(lambda: view._door._inside == 1)
    assert not view.close(0)
    assert view.close(TENTH)
    caller.join()
    assert answers == [True]
    assert target.bytes == source.bytes
    assert view.get(["k"], target.values(0), TENTH) == [False]
    assert view.set(["k"], source.values(0), TENTH) == [False]
    assert view.exists(["k"], BYTES, TENTH) == [False]


def test_a_question_that_outlasts_the_end_leaves_nothing_behind(open_here: Maker) -> None:
    cache = open_here(model=MODEL, store=store_of("exists:*:delay(200)"), prefetch=PATIENT)
    view, answers = view_of(cache), list[bool]()
    assert view.set(keys(3), Memory(3, 1).values(0, 1, 2), TENTH) == [True] * 3
    until(lambda: cache.reset(TENTH))
    caller = threading.Thread(target=lambda: answers.extend(view.exists(keys(3), BYTES, TENTH)))
    caller.start()
    until(lambda: view._door._inside == 1)
    assert not view.close(0)
    caller.join()
    assert answers == [True] * 3
    assert_nothing_is_left(cache)


def test_a_cache_that_ended_is_a_complaint(open_here: Maker) -> None:
    cache, log = open_here(model=MODEL), Log()
    view, target = view_of(cache, log), Memory(1)
    cache.close(TENTH)
    calls: list[Callable[[], list[bool]]] = [
        lambda: view.exists(["k"], BYTES, TENTH),
        lambda: view.get(["k"], target.values(0), TENTH),
        lambda: view.set(["k"], target.values(0), TENTH),
    ]
    assert [call() for call in calls] == [[False]] * 3
    assert [line.partition(":")[0] for line in log.lines] == ["asking for values", "reading values", "storing values"]


def test_pieces_are_addresses_of_writable_memory() -> None:
    memory = bytearray(b"abc")
    address, size = piece_of(memory)
    assert (ctypes.string_at(address, size), size) == (b"abc", 3)
    assert piece_of(bytearray()) == (0, 0)
    with pytest.raises(TypeError):
        piece_of(b"abc")
