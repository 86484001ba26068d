"""The vLLM connector's two sides, played through a toy engine: what is restored, and that its bytes are right."""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.common import commits
from toy import BLOCK_TOKENS, FULL, HYBRID, LAYER_BYTES, Engine, group, request

Maker = Callable[..., Engine]
TOKENS = list(range(100, 130))  # 30 tokens: 7 blocks and 2 more
IDLE = SimpleNamespace(num_scheduled_tokens={}, total_num_scheduled_tokens=0)


@pytest.fixture
def engine() -> Iterator[Maker]:
    opened: list[Engine] = []

    def make(extra: dict[str, Any] | None = None, **changes: Any) -> Engine:
        opened.append(Engine(dict(extra or {}), **changes))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def store(path: Path) -> dict[str, Any]:
    return {"store": f"file:dir={path},capacity=16MiB"}


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("chunk", [None, 3, BLOCK_TOKENS, 9])
def test_what_one_engine_computed_another_restores(
    tmp_path: Path, engine: Maker, groups: Any, ranks: int, chunk: int | None
) -> None:
    first = engine(store(tmp_path / "s"), groups=groups, ranks=ranks)
    assert first.run(request("cold", TOKENS), chunk) == 0
    first.quiet()
    first.close()
    second = engine(store(tmp_path / "s"), groups=groups, ranks=ranks)
    assert second.run(request("warm", TOKENS)) == 28
    assert second.run(request("again", TOKENS)) == 28
    second.quiet()


@pytest.mark.parametrize("tokens", [0, 1, 3, 4, 5, 8, 9, 27, 28, 29])
def test_the_last_token_is_left_to_the_engine(engine: Maker, tokens: int) -> None:
    one = engine()
    prompt = TOKENS[:tokens] or [7]
    assert one.run(request("cold", prompt)) == 0
    assert one.run(request("warm", prompt)) == (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    one.quiet()


def test_the_answer_stands_until_it_is_allocated(engine: Maker) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, True)
    assert [one.scheduler.match(again, 0) for _ in range(3)] == [(28, True)] * 3
    assert one.scheduler.match(again, 8) == (20, True)
    assert one.scheduler.match(again, 28) == (0, False)
    assert one.scheduler.cache.stats()["holds_gauge"] == 1
    one.scheduler.finished(again)
    one.quiet()


def test_a_prefetch_that_was_answered_and_forgotten_meanwhile_is_looked_up(
    engine: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    late = request("late", TOKENS)
    one.scheduler.begin(late)

    def forgotten(_: forebay.Session) -> forebay.Snapshot:
        raise forebay.StaleError(-errno.ESTALE, "its place has been given to others")

    monkeypatch.setattr(forebay.Session, "poll", forgotten)
    assert one.ask(late) == (28, True)
    assert one.load(late, 28, True)
    one.check(late, 7)
    one.scheduler.finished(late)
    one.quiet()


def test_only_what_the_engine_lacks_is_loaded(engine: Maker) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again, computed=8) == (20, True)
    one.tables["again"] = one.allocate(8)
    one.scheduler.allocated(again, one.tables["again"], 20)
    one.fill(again, 0, 2)
    assert one.step() == {"again"}
    one.check(again, 7)
    assert one.scheduler.cache.stats()["tokens_consumed"] == 20
    one.scheduler.finished(again)
    one.quiet()


def test_sync_loads_end_within_their_step(engine: Maker) -> None:
    one = engine({"sync_load": True})
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, False)
    assert one.load(again, 28, False)
    one.check(again, 7)
    one.scheduler.finished(again)
    one.quiet()


@pytest.mark.parametrize(
    "when", ["queued", "asked", "matched", "loading", "loaded", "computing", "preempted", "matched again"]
)
def test_an_abort_in_any_state_leaves_nothing(engine: Maker, when: str) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    again = request("again", [*TOKENS, *range(200, 220)])
    one.scheduler.begin(again)
    if when != "queued":
        one.scheduler.match(again, 0)
    if when not in ("queued", "asked"):
        assert one.ask(again) == (28, True)
    has_computed = when in ("computing", "preempted", "matched again")
    if has_computed or when in ("loading", "loaded"):
        one.tables["again"] = one.allocate(13)
        one.scheduler.allocated(again, one.tables["again"], 28)
    if has_computed or when == "loaded":
        assert one.step() == {"again"}
    if has_computed:
        again.num_computed_tokens = 28
        one.fill(again, 7, 9)
        one.step({"again": 8})
    if when in ("preempted", "matched again"):
        again.num_computed_tokens = 0  # its blocks are gone
    if when == "matched again":
        assert one.ask(again) == (36, True)
    one.scheduler.finished(again)
    assert one.step() == ({"again"} if when == "loading" else set())
    one.quiet()


def test_a_preempted_request_finds_what_it_saved(engine: Maker) -> None:
    one = engine()
    first = request("r", TOKENS)
    one.scheduler.begin(first)
    assert one.ask(first) == (0, False)
    one.load(first, 0, False)
    one.compute(first, 0)
    first.all_token_ids += range(300, 310)
    one.tables["r"] = one.allocate(10)
    one.fill(first, 0, 10)
    one.step({"r": 10})
    first.num_computed_tokens = 0  # preempted: its blocks are gone, its tokens are known
    assert one.ask(first) == (36, True)
    assert one.load(first, 36, True)
    one.check(first, 9)
    one.scheduler.finished(first)
    one.quiet()


def test_blocks_are_saved_as_they_fill_also_while_decoding(engine: Maker) -> None:
    one = engine()
    first = request("r", TOKENS[:5])
    one.scheduler.begin(first)
    one.ask(first)
    one.tables["r"] = one.allocate(8)
    published = []
    first.num_computed_tokens = 0
    for step, tokens in enumerate([5, 1, 1, 1, 1, 1, 1, 1]):
        one.fill(first, 0, (first.num_computed_tokens + tokens) // BLOCK_TOKENS)
        one.step({"r": tokens})
        first.num_computed_tokens += tokens
        first.all_token_ids.append(500 + step)
        published.append(one.scheduler.cache.stats()["blocks_published"])
    assert published == [1, 1, 1, 2, 2, 2, 2, 3]
    one.scheduler.finished(first)
    one.quiet()


def test_drafts_are_no_tokens(engine: Maker) -> None:
    one = engine()
    first = request("r", TOKENS[:7])
    one.scheduler.begin(first)
    one.ask(first)
    one.tables["r"] = one.allocate(8)
    one.step({"r": 12})  # seven tokens and five drafts
    assert one.scheduler.cache.stats()["blocks_published"] == 1


def test_the_store_has_a_block_before_its_request_ends(tmp_path: Path, engine: Maker) -> None:
    one = engine(store(tmp_path / "s"))
    first = request("r", TOKENS)
    one.scheduler.begin(first)
    one.ask(first)
    one.tables["r"] = one.allocate(9)
    written = []
    for tokens in (8, 8, 14):
        full = (first.num_computed_tokens + tokens) // BLOCK_TOKENS
        one.fill(first, 0, full)
        one.step({"r": tokens})
        first.num_computed_tokens += tokens
        limit = time.monotonic() + 20
        while one.scheduler.cache.stats()["writes"] < full:
            assert time.monotonic() < limit
        written.append(one.scheduler.cache.stats()["writes"])
    assert written == [2, 4, 7]
    one.scheduler.finished(first)
    one.quiet()


def test_what_is_in_force_is_logged_once_with_where_it_came_from(
    engine: Maker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREBAY_PREFETCH_STOP_MODE", "detach")
    with caplog.at_level(logging.INFO, "vllm.forebay"):
        one = engine({"policy": "timeout", "config": {"prefetch.timeout_budget_s": 7}})
        one.run(request("a", TOKENS))
        one.run(request("b", TOKENS))
    lines = [record.message for record in caplog.records if "prefetch.policy" in record.message]
    assert len(lines) == 1
    for row in (
        "prefetch.policy=timeout (engine)",
        "prefetch.stop_mode=detach (environment)",
        "prefetch.timeout_budget_s=7 (file)",
        "prefetch.enabled=true (follows from policy timeout)",
    ):
        assert row in lines[0]


def test_windows_are_kept_at_checkpoints_only(engine: Maker) -> None:
    one = engine(groups=HYBRID)
    first = request("r", TOKENS)
    one.scheduler.begin(first)
    one.ask(first)
    one.tables["r"] = one.allocate(8)
    one.compute(first, 0)
    one.scheduler.finished(first)
    info = one.scheduler.cache.pool()
    info.close()
    warm = request("w", TOKENS)
    one.scheduler.begin(warm)
    assert one.ask(warm) == (28, True)
    hold = one.scheduler._entries["w"].hold
    assert hold is not None
    trailing = next(index for index, group in enumerate(one.model.groups) if group.trailing)
    assert [place == forebay.NO_PLACE for place in hold.places(trailing)] == [True] * 6 + [False]
    one.scheduler.finished(warm)


def test_a_hybrid_prompt_that_leaves_another_in_the_middle_gets_the_last_checkpoint(engine: Maker) -> None:
    one = engine(groups=HYBRID)
    one.run(request("cold", TOKENS), chunk=8)  # checkpoints at 2, 4, 6 and 7 blocks
    other = [*TOKENS[:21], *range(700, 720)]  # shares 5 blocks
    assert one.run(request("other", other)) == 16
    one.quiet()


def test_salts_never_share_and_the_same_salt_does(engine: Maker) -> None:
    one = engine()
    assert one.run(request("a", TOKENS, cache_salt="x")) == 0
    assert one.run(request("b", TOKENS, cache_salt="y")) == 0
    assert one.run(request("c", TOKENS)) == 0
    assert one.run(request("d", TOKENS, cache_salt="x")) == 28
    assert one.run(request("e", TOKENS, params={"forebay": {"tenant": "x"}})) == 0


def test_a_load_that_fails_is_reported_once_and_then_a_miss(engine: Maker) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, True)
    one.workers[0].close()  # the rank cannot copy any more
    assert not one.load(again, 28, True)
    assert one.failed_blocks == set(one.tables["again"][0][:7])
    assert one.scheduler.match(again, 0) == (0, False)
    one.scheduler.finished(again)
    one.quiet()


def test_with_several_groups_the_request_is_reported(engine: Maker) -> None:
    one = engine(groups=HYBRID)
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, True)
    one.workers[0].close()
    assert not one.load(again, 28, True)
    assert (one.failed_blocks, one.failed_requests) == (set(), {"again"})
    assert one.scheduler.match(again, 0) == (0, False)


def test_what_followed_from_a_failed_sync_load_is_not_kept(engine: Maker) -> None:
    one = engine({"sync_load": True})
    one.run(request("cold", TOKENS))
    before = one.scheduler.cache.stats()["blocks_published"]
    again = request("again", [*TOKENS, *range(200, 220)])
    one.scheduler.begin(again)
    assert one.ask(again) == (28, False)
    one.tables["again"] = one.allocate(13)
    one.scheduler.allocated(again, one.tables["again"], 28)
    again.num_computed_tokens = 28
    rank, one.workers[0]._rank = one.workers[0]._rank, None
    one.step({"again": 20})
    one.workers[0]._rank = rank
    assert one.failed_blocks == set(one.tables["again"][0][:7])
    assert one.scheduler.cache.stats()["blocks_published"] == before


def test_a_promise_that_cannot_be_kept_becomes_a_failed_load(engine: Maker) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, True)
    assert one.scheduler.reset()
    assert not one.load(again, 28, True)
    assert one.failed_blocks == set(one.tables["again"][0][:7])


def test_ranks_that_differ_turn_the_cache_off_and_say_in_what(engine: Maker, caplog: pytest.LogCaptureFixture) -> None:
    one = engine(ranks=2)
    one.workers[1]._model = engine(ranks=2, groups=HYBRID).model
    one.scheduler.begin(request("r", TOKENS))
    assert one.ask(request("r", TOKENS)) == (0, False)
    assert "group a0 is 'nothing' on rank 1 and '2 layers, 128 bytes, rule 0' in the scheduler's process" in caplog.text
    assert one.run(request("s", TOKENS)) == 0
    assert one.scheduler.cache.stats()["blocks_published"] == 0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock on."""
    real, moved = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + moved[0])

    def move(seconds: float) -> None:
        moved[0] += seconds

    return move


def test_an_engine_that_idles_before_its_first_request_restores_all_the_same(
    engine: Maker, later: Callable[[float], None]
) -> None:
    one = engine()
    later(3600)
    assert one.run(request("cold", TOKENS)) == 0
    later(3600)
    assert one.run(request("warm", TOKENS)) == 28
    one.quiet()


def test_workers_that_never_come_turn_the_cache_off(
    engine: Maker, later: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    one = engine()
    waiting = request("r", TOKENS)
    one.scheduler.begin(waiting)
    one.workers.clear()
    while one.scheduler.match(waiting, 0)[0] is None:
        one.scheduler.plan(IDLE)
        later(7)
    assert one.scheduler.match(waiting, 0) == (0, False)
    assert "is off, the engine computes alone: 0 of 1 workers came for the pool in 60 s" in caplog.text


def test_a_reset_forgets_and_the_store_still_has_it(tmp_path: Path, engine: Maker) -> None:
    one = engine(store(tmp_path / "s"))
    one.run(request("cold", TOKENS))
    assert one.scheduler.reset()
    assert one.scheduler.cache.stats()["resident_blocks_gauge"] == 0
    assert one.run(request("warm", TOKENS)) == 28
    assert one.scheduler.cache.stats()["tokens_loaded"] == 28


def test_a_reset_may_reach_the_store_too(tmp_path: Path, engine: Maker) -> None:
    one = engine(store(tmp_path / "s") | {"reset_bumps_epoch": True})
    one.run(request("cold", TOKENS))
    assert one.scheduler.reset()
    assert one.run(request("warm", TOKENS)) == 0


def test_the_journal_says_what_became_of_a_prefetch(tmp_path: Path, engine: Maker) -> None:
    journal = tmp_path / "journal"
    one = engine(store(tmp_path / "s") | {"journal": str(journal)})
    one.run(request("cold", TOKENS))
    one.scheduler.reset()
    one.run(request("warm", TOKENS))
    cold, warm = (json.loads(line) for line in journal.read_text().splitlines())
    assert (cold["outcome"], cold["matched"]) == ("empty", 0)
    assert warm == {
        "request": "warm", "policy": "wait_complete", "stop_mode": "drain", "outcome": "complete", "reason": "complete",
        "found": 28, "planned": 28, "loaded": 28, "delivered": 28, "graphs": 1, "matched": 28, "async": True,
        "failed": 0,
    }  # fmt: skip


def test_best_effort_stops_at_the_first_question(engine: Maker, tmp_path: Path) -> None:
    first = engine(store(tmp_path / "s"))
    first.run(request("cold", TOKENS))
    first.close()
    slow = {"store": f"fault:file:dir={tmp_path}/s,capacity=16MiB,latency_ms=20", "policy": "best_effort"}
    one = engine(slow | {"chunk_max_blocks": 1, "max_inflight_chunks": 1})
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    tokens, _ = one.ask(again)
    answer = one.scheduler._entries["again"].answer
    assert answer is not None
    assert (answer.reason, tokens) == (forebay.Reason.DEMAND, answer.delivered_tokens)
    assert tokens < 28
    one.scheduler.finished(again)
    one.quiet()


def test_requests_that_say_so_are_neither_restored_nor_kept(engine: Maker) -> None:
    one = engine()
    assert one.run(request("a", TOKENS, params={"forebay": {"save": False}})) == 0
    assert one.run(request("b", TOKENS)) == 0
    assert one.run(request("c", TOKENS, params={"load": False})) == 0
    assert one.run(request("d", TOKENS)) == 28


def test_roles(engine: Maker) -> None:
    reader = engine(save=False)
    reader.run(request("a", TOKENS))
    assert reader.scheduler.cache.stats()["blocks_published"] == 0
    writer = engine(load=False)
    writer.run(request("a", TOKENS))
    assert writer.run(request("b", TOKENS)) == 0
    assert writer.scheduler.cache.stats()["blocks_published"] == 7


def threads() -> set[str]:
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


@pytest.mark.parametrize(("policy", "runs"), [(None, False), ("wait_complete", False), ("timeout", True)])
def test_the_whole_plan_is_one_graph_and_needs_no_chunk_runtime(
    tmp_path: Path, engine: Maker, policy: str | None, runs: bool
) -> None:
    chosen = {"policy": policy} if policy else {}
    one = engine(store(tmp_path / "s") | chosen | {"chunk_max_blocks": 2})
    one.run(request("cold", TOKENS))
    assert one.scheduler.reset()
    warm = request("warm", TOKENS)
    one.scheduler.begin(warm)
    assert one.ask(warm) == (28, True)
    answer = one.scheduler._entries["warm"].answer
    assert answer is not None
    assert answer.submitted == (4 if runs else 1)
    assert ("fby-control" in threads()) is runs
    one.scheduler.finished(warm)


def test_blocks_are_announced_by_the_engine_s_hashes(engine: Maker) -> None:
    made = (lambda *stored: ("stored", *stored), lambda own: ("removed", own))
    one = engine(event_makers=made)
    hashes = [f"h{i}" for i in range(7)]
    one.run(request("cold", TOKENS, block_hashes=hashes))
    events = list(one.scheduler.take_events())
    assert [event[:3] for event in events] == [
        ("stored", own, parent) for own, parent in zip(hashes, [None, *hashes], strict=False)
    ]
    assert events[1][3:] == (TOKENS[4:8], None)
    assert list(one.scheduler.take_events()) == []
    assert one.scheduler.reset()
    assert sorted(one.scheduler.take_events()) == [("removed", own) for own in hashes]


def test_figures_are_reported_as_what_was_added(engine: Maker) -> None:
    one = engine()
    one.run(request("cold", TOKENS))
    one.run(request("warm", TOKENS))
    made = one.scheduler.take_figures()
    assert (made["sessions"], made["blocks_published"], made["tokens_delivered"]) == (2, 7, 28)
    assert made["rank_bytes_saved"] == made["rank_bytes_loaded"] == 7 * 2 * LAYER_BYTES
    assert "failed_blocks" not in made
    waiting = request("next", TOKENS)
    one.scheduler.begin(waiting)
    assert one.scheduler.take_figures() == {}  # not twice in a second
    one.scheduler.finished(waiting)
    assert one.scheduler.take_figures()["sessions"] == 1  # an engine that idles makes no step that could tell later


def test_a_step_with_nothing_to_run_waits_for_a_prefetch(engine: Maker, tmp_path: Path) -> None:
    first = engine(store(tmp_path / "s"))
    first.run(request("cold", TOKENS))
    first.close()
    slow = {"store": f"fault:file:dir={tmp_path}/s,capacity=16MiB,latency_ms=50", "idle_wait_ms": 10_000}
    one = engine(slow)
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    one.step()
    assert one.scheduler.match(again, 0) == (None, False)
    one.step()  # comes back when the answer is there, not before and not ten seconds later
    assert one.scheduler.match(again, 0) == (28, True)
    one.scheduler.finished(again)


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
def test_big_puts_are_committed_beside_the_scheduler_and_in_order(
    engine: Maker, groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "INLINE_BYTES", 0)
    one = engine(groups=groups)
    assert "forebay-commit" not in {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    for i in range(20):
        name, prompt = f"r{i}", [1000 * i + token for token in range(30)]
        assert one.run(request(name, prompt), chunk=5) == 0
    assert "forebay-commit" in {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    while one.scheduler.has_work():
        one.step()
    assert one.scheduler.cache.stats()["blocks_published"] == 20 * 7
    for i in range(20):
        assert one.run(request(f"again{i}", [1000 * i + token for token in range(30)])) == 28
    while one.scheduler.has_work():
        one.step()
    one.quiet()


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
def test_what_had_no_room_is_saved_later_or_not_at_all_and_never_wrong(engine: Maker, groups: Any) -> None:
    one = engine({"config": {"pool.write_pinned_bytes": "20KiB", "store.write": "off"}}, groups=groups)
    long = list(range(900, 990))
    first = request("long", long)
    one.scheduler.begin(first)
    assert one.ask(first) == (0, False)
    one.tables["long"] = one.allocate(30)
    one.compute(first, 0)
    for i in range(12):  # decodes three more blocks
        first.all_token_ids.append(2000 + i)
        one.fill(first, 22, first.num_tokens // BLOCK_TOKENS)
        gone = max(0, first.num_computed_tokens - 4) // BLOCK_TOKENS
        for made in one.model.groups:
            if made.trailing:  # the window has left these
                one.tables["long"][made.index][:gone] = [0] * gone
        one.step({"long": 1})
        first.num_computed_tokens += 1
    one.scheduler.finished(first)
    one.quiet()
    assert 4 <= one.scheduler.cache.stats()["blocks_published"] <= 25
    assert one.run(request("again", first.all_token_ids)) > 0


@pytest.mark.parametrize("window", [2, 5, 9, 13, 200])
@pytest.mark.parametrize("tokens", [8, 12, 27, 28, 29, 32])
@pytest.mark.parametrize("chunk", [None, 4, 10])
def test_a_hybrid_prompt_that_comes_again_is_restored_as_far_as_can_be(
    engine: Maker, window: int, tokens: int, chunk: int | None
) -> None:
    one = engine(groups=[group(["l0"], window=window), group(["l1"])])
    prompt = list(range(100, 100 + tokens))
    assert one.run(request("cold", prompt), chunk) == 0
    assert one.run(request("warm", prompt)) == (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    one.quiet()


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
def test_a_block_that_is_wrong_in_its_slot_is_found_when_a_rank_copies_it(engine: Maker, groups: Any) -> None:
    one = engine({"config": {"store.verify": "on_load"}}, groups=groups)
    one.run(request("cold", TOKENS))
    again = request("again", TOKENS)
    one.scheduler.begin(again)
    assert one.ask(again) == (28, True)
    hold = one.scheduler._entries["again"].hold
    assert hold is not None
    address = hold.addresses(0, 3, 4)[0]
    ctypes.memmove(address, bytes([ctypes.string_at(address, 1)[0] ^ 1]), 1)
    assert not one.load(again, 28, True)
    if len(groups) == 1:
        assert (one.failed_blocks, one.failed_requests) == ({one.tables["again"][0][3]}, set())
    else:
        assert (one.failed_blocks, one.failed_requests) == (set(), {"again"})
    assert one.scheduler.match(again, 0) == (0, False)
    one.scheduler.finished(again)
    one.quiet()
