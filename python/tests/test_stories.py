"""The life of requests: put, lose, prefetch, take, copy; on every kind of store, with exact bytes."""

from __future__ import annotations

import os
import select
from pathlib import Path

import forebay
import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, PATIENT, TENTH, Maker, content, contents, fill, model, prompt
from forebay import EventType, Outcome, Policy, Reason, State, StopMode


def test_a_prefix_comes_back_from_the_store_byte_for_byte(cache: forebay.Cache) -> None:
    sequence = fill(cache, 32)
    assert cache.reset(TENTH)
    assert cache.lookup_advisory(sequence) == 0
    with cache.start(sequence, label="story") as session:
        answer = session.wait(TENTH)
        assert (answer.outcome, answer.reason) == (Outcome.COMPLETE, Reason.COMPLETE)
        assert (answer.delivered_tokens, answer.delivered_blocks) == (512, 32)
        assert (answer.loaded_tokens, answer.found_tokens, answer.planned_tokens) == (512, 512, 512)
        assert answer.answered is True
        assert answer.handle == session.handle
        hold = session.take()
    with hold:
        assert (hold.tokens, hold.blocks, hold.first_block) == (512, 32, 0)
        views = hold.slots()
        assert [bytes(view) for view in views if view is not None] == [content(block) for block in range(32)]
        target = bytearray(32 * BLOCK_BYTES + 5)
        assert hold.copy_to(target, offset=5) == 32
        assert target == bytes(5) + contents(32)
    assert cache.lookup_advisory(sequence) == 512
    cache.check()
    report = cache.close(TENTH)
    assert (report.sessions_aborted, report.operations_abandoned, report.bytes_abandoned) == (0, 0, 0)


def test_what_is_resident_needs_no_store(open_cache: Maker) -> None:
    cache = open_cache(store={"write": "off"})
    sequence = cache.sequence(prompt(4))
    with cache.put(sequence) as put:
        for block, view in enumerate(put.slots()):
            assert view is not None
            view[:] = content(block)
        assert put.commit() == (4, 0, 0, 0, 64)
    with cache.lookup(sequence) as hold:
        assert hold.tokens == 64
        assert hold.slots(0, 2, 3) == [content(2)]
        assert hold.trim(40) == 32
        assert hold.blocks == 2
    assert cache.stats()["writes"] == 0


def test_a_put_says_what_became_of_every_block(cache: forebay.Cache) -> None:
    sequence = cache.sequence(prompt(8))
    put = cache.put(sequence, 0, 4)
    assert (put.first_missing, put.staged_from, put.staged_to) == (0, 0, 4)
    put.copy_from(contents(4))
    assert put.commit(3 * BLOCK_TOKENS + 5) == (3, 0, 1, 0, 48)
    with pytest.raises(forebay.StateError):
        put.commit()
    with pytest.raises(forebay.StateError):
        put.slots()
    put.next(sequence, 3)
    assert (put.first_missing, put.staged_from, put.staged_to) == (3, 3, 8)
    put.copy_from(contents(8), offset=3 * BLOCK_BYTES)
    assert put.commit().published == 5
    assert put.wait_store(TENTH) == (8, 0)
    again = cache.put(sequence)
    assert again.staged_from == again.staged_to
    assert again.slots() == []
    again.abort()
    again.abort()
    put.release()
    with pytest.raises(forebay.StaleError):
        put.slots()
    with cache.lookup(sequence) as hold:
        target = bytearray(8 * BLOCK_BYTES)
        hold.copy_to(target)
        assert target == contents(8)


def test_a_put_that_fails_in_its_block_is_aborted(cache: forebay.Cache) -> None:
    sequence = cache.sequence(prompt(2))
    with pytest.raises(ZeroDivisionError), cache.put(sequence) as put:  # noqa: PT012
        put.copy_from(contents(2))
        raise ZeroDivisionError
    assert cache.lookup_advisory(sequence) == 0
    assert cache.stats()["puts_gauge"] == 0


def test_demand_stops_best_effort_between_chunks(open_cache: Maker) -> None:
    cache = open_cache(prefetch={"chunk_max_blocks": 1, "max_inflight_chunks": 1})
    sequence = fill(cache, 8)
    cache.reset(TENTH)
    with cache.start(sequence, policy="best_effort", stop_mode=StopMode.DRAIN) as session:
        session.demand()
        answer = session.wait(TENTH)
        assert answer.submitted == answer.sealed_submit_seq
        assert answer.reason in (Reason.DEMAND, Reason.COMPLETE)
        with session.take() as hold:
            assert hold.tokens == answer.delivered_tokens
            for block, view in enumerate(hold.slots()):
                assert view == content(block)


def test_a_whole_pass_in_one_call(cache: forebay.Cache) -> None:
    sequences = [fill(cache, 4, seed) for seed in range(5)]
    cache.reset(TENTH)
    sessions = [cache.start(sequence, policy=Policy.WAIT_COMPLETE) for sequence in sequences]
    first = cache.progress(sessions)
    assert [snapshot.handle for snapshot in first] == [session.handle for session in sessions]
    for session in sessions:
        session.wait(TENTH)
    answers = cache.progress(sessions, [True, False, True, False, True])
    assert [answer.delivered_tokens for answer in answers] == [64] * 5
    assert cache.progress([]) == []
    with pytest.raises(ValueError, match="one item for each"):
        cache.progress(sessions, [True])
    cache.reset(TENTH)
    gone = cache.progress(sessions)
    assert {snapshot.state for snapshot in gone} == {State.EXPIRED}
    assert {forebay.errname(snapshot.error) for snapshot in gone} == {"STALE"}


def test_options_reach_the_session(open_cache: Maker) -> None:
    cache = open_cache()
    sequence = fill(cache, 8)
    cache.reset(TENTH)
    short = cache.start(sequence, min_tokens=1000)
    assert short.wait(TENTH).reason is Reason.BELOW_THRESHOLD
    late = cache.start(sequence, policy="timeout", timeout_budget_s=0)
    assert late.wait(TENTH).reason is Reason.DEADLINE
    ahead = cache.start(sequence, policy="wait_complete", have_blocks=6, candidate_start_token=96, predictive=False)
    answer = ahead.wait(TENTH)
    assert (answer.start_blocks, answer.delivered_blocks, answer.loaded_tokens) == (6, 8, 32)
    with ahead.take() as hold:
        assert (hold.first_block, hold.blocks) == (6, 8)
        assert hold.slots() == [content(6), content(7)]
    for wrong in (
        {"policy": "eager"},
        {"stop_mode": "never"},
        {"timeout_budget_s": -1.0},
        {"timeout_budget_s": float("nan")},
    ):
        with pytest.raises(ValueError, match="accepted"):
            cache.start(sequence, **wrong)


def test_stop_release_take_and_what_follows(open_cache: Maker) -> None:
    cache = open_cache(store={"options": {"script": "get:*:hang"}}, prefetch=PATIENT)
    sequence = fill(cache, 4)
    cache.reset(TENTH)
    session = cache.start(sequence)
    with pytest.raises(forebay.StateError):
        session.take()
    with pytest.raises(forebay.WaitTimeoutError):
        session.wait(0)
    assert not session.poll().answered
    session.stop()
    session.stop()
    answer = session.wait(TENTH)
    assert (answer.outcome, answer.reason, answer.delivered_tokens) == (Outcome.ABORTED, Reason.ABORT, 0)
    with pytest.raises(forebay.StaleError):
        session.take()
    session.release()
    session.release()
    with cache.subscribe() as events:
        dropped = cache.start(sequence)
        handle = dropped.handle
        del dropped
        ended: list[int] = []
        while handle not in ended and events.wait(TENTH):
            ended += [event.session for event in events]
        assert handle in ended


def test_a_store_that_fails_is_an_answer_and_no_exception(open_cache: Maker) -> None:
    cache = open_cache(store={"options": {"script": "get:*:err(CHECKSUM)"}})
    sequence = fill(cache, 4)
    cache.reset(TENTH)
    with cache.start(sequence) as session:
        answer = session.wait(TENTH)
        assert (answer.outcome, answer.reason, answer.delivered_tokens) == (Outcome.EMPTY, Reason.PARTIAL_READ, 0)
        assert forebay.errname(answer.error) == "CHECKSUM"
        with session.take() as hold:
            assert (hold.tokens, hold.slots()) == (0, [])
    stats = cache.stats()
    assert stats["fail_checksum"] >= 1
    assert stats.sessions_by_reason[Reason.PARTIAL_READ] == 1
    assert sum(stats.sessions_by_reason.values()) == 1


def test_descriptors_tell_of_the_answer(cache: forebay.Cache) -> None:
    sequence = fill(cache, 4)
    cache.reset(TENTH)
    session = cache.start(sequence)
    mine = session.event_fd()
    assert mine != session.fileno() == session.fileno()
    assert select.select([mine, session.fileno()], [], [], TENTH)[0]
    assert session.wait(TENTH).answered
    assert session.poll().answered
    after = session.event_fd()
    assert select.select([after], [], [], 0)[0] == [after]
    os.close(mine)
    os.close(after)
    kept = session.fileno()
    session.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(kept)


def test_events_name_blocks_and_sessions(cache: forebay.Cache) -> None:
    with cache.subscribe() as events:
        assert events.next() is None
        assert not events.wait(0)
        sequence = fill(cache, 3)
        assert events.wait(TENTH)
        published = list(events)
        assert [event.type for event in published] == [EventType.PUBLISHED] * 3
        assert [event.block for event in published] == [0, 1, 2]
        assert [sequence.key(i).startswith(event.hash.hex()) for i, event in enumerate(published)] == [True] * 3
        cache.reset(TENTH)
        assert [event.type for event in events] == [EventType.RESET] + [EventType.REMOVED] * 3
        with cache.start(sequence) as session:
            session.wait(TENTH)
            ended = None
            while ended is None and events.wait(TENTH):
                ended = next((event for event in events if event.type is EventType.SESSION), None)
            assert ended is not None
            assert ended.session == session.handle
            assert ended.result is not None
            assert ended.result.delivered_tokens == 48
    with pytest.raises(forebay.StaleError):
        events.next()
    with pytest.raises(forebay.StaleError):
        events.fileno()
    events.unsubscribe()
    with cache.subscribe(2) as few:
        fill(cache, 4, seed=1)
        kinds = [event.type for event in few]
        assert EventType.LOST in kinds
    with pytest.raises(forebay.ArgumentError):
        cache.subscribe(0)


def test_readers_share_a_hold(open_cache: Maker) -> None:
    cache = open_cache()
    sequence = fill(cache, 2)
    hold = cache.lookup(sequence)
    hold.readers(2)
    views = hold.slots()
    hold.release()
    hold.release()
    assert views[0] == content(0)
    assert cache.stats()["holds_gauge"] == 1
    hold.release()
    assert cache.stats()["holds_gauge"] == 0
    with pytest.raises(ValueError, match="released"):
        bytes(views[0] or b"")
    with pytest.raises(forebay.StaleError):
        hold.slots()


def test_groups_have_payloads_of_their_own(open_cache: Maker) -> None:
    groups = [
        {"name": "kv", "payload_bytes": BLOCK_BYTES, "rule": "all"},
        {"name": "state", "payload_bytes": 64, "rule": "trailing(1)"},
    ]
    cache = open_cache(model=model(groups=groups))
    assert [(group.name, group.payload_bytes, group.trailing) for group in cache.model.groups] == [
        ("kv", BLOCK_BYTES, 0),
        ("state", 64, 1),
    ]
    sequence = cache.sequence(prompt(4))
    with cache.put(sequence) as put:
        put.copy_from(contents(4))
        *ahead, last = put.slots(1)  # only the end's state is needed to resume there
        assert ahead == [None] * 3
        assert last is not None
        last[:] = bytes([3]) * 64
        assert put.commit().published == 4
        assert put.wait_store(TENTH).failed == 0
    cache.reset(TENTH)
    with cache.start(sequence) as session:
        session.wait(TENTH)
        with session.take() as hold:
            assert hold.tokens == 64
            assert hold.slots(1) == [None, None, None, bytes([3]) * 64]
            target = bytearray(b"\xff" * 256)
            assert hold.copy_to(target, group=1) == 1
            assert target == b"\xff" * 192 + bytes([3]) * 64
            assert [address != 0 for address in hold.addresses(1)] == [False, False, False, True]
            with pytest.raises(IndexError):
                hold.slots(2)


def test_an_epoch_makes_old_sequences_stale(cache: forebay.Cache) -> None:
    sequence = fill(cache, 2)
    before = cache.epoch
    assert cache.reset(TENTH, bump_epoch=True)
    assert cache.epoch == before + 1
    with pytest.raises(forebay.StaleError, match="epoch"):
        cache.start(sequence)
    with pytest.raises(forebay.StaleError):
        cache.lookup(sequence)
    with cache.start(cache.sequence(prompt(2))) as session:
        assert session.wait(TENTH).delivered_tokens == 0


def test_a_file_store_outlives_the_cache(tmp_path: Path, open_here: Maker) -> None:
    store = {"driver": "file", "options": {"dir": str(tmp_path / "store"), "capacity": "64MiB"}}
    with open_here(store=store) as first:
        fill(first, 16, seed=3)
        with pytest.raises(forebay.BusyError, match="store"):
            open_here(store=store)
    assert first.closed
    with open_here(store=store) as second, second.start(second.sequence(prompt(16, seed=3))) as session:
        assert session.wait(TENTH).delivered_tokens == 256
        target = bytearray(16 * BLOCK_BYTES)
        with session.take() as hold:
            hold.copy_to(target)
        assert target == contents(16, seed=3)


def test_a_closed_cache_answers_every_call(cache: forebay.Cache) -> None:
    sequence = fill(cache, 2)
    session, hold, put, events = cache.start(sequence), cache.lookup(sequence), cache.put(sequence), cache.subscribe()
    views = hold.slots()
    report = cache.close(TENTH)
    assert cache.close() == report
    with pytest.raises(ValueError, match="released"):
        bytes(views[0] or b"")
    for call in (
        session.poll, session.demand, session.stop, session.wait, session.take, session.event_fd, hold.slots, put.slots,
        put.commit, put.wait_store, events.next, cache.stats, cache.health, cache.check, cache.reset, cache.subscribe,
        lambda: hold.trim(0), lambda: cache.start(sequence), lambda: cache.lookup(sequence),
        lambda: cache.put(sequence), lambda: cache.progress([session]), lambda: cache.sequence([1]), cache.metrics,
    ):  # fmt: skip
        with pytest.raises(forebay.ClosedError):
            call()
    for end in (session.release, hold.release, put.release, events.unsubscribe, put.abort):
        end()
    assert cache.epoch == 0
    assert (sequence.tokens, sequence.blocks) == (33, 2)


def test_health_and_stats_are_whole(cache: forebay.Cache) -> None:
    health = cache.health()
    assert (health.healthy, health.message, health.breaker) == (True, "", forebay.Breaker.CLOSED)
    stats = cache.stats()
    assert stats["pool_blocks_gauge"] == stats["free_blocks_gauge"] > 0
    assert set(stats.sessions_by_reason) == set(Reason)
    assert "reserved0" not in stats
    assert cache.metrics().startswith("# HELP forebay_")
