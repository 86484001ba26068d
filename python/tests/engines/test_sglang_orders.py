"""The SGLang connector in rare orders of calls and with rare faults: nothing stays, nothing old is kept, none waits."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.sglang import leader
from forebay.engines.sglang.ranks import Ranks
from forebay.engines.sglang.requests import Entry
from rank_stories import in_threads
from sglang_toy import FULL, HYBRID, PAGE, Engine, Make, _Held, played
from test_sglang_stories import TOKENS, alone, ask, computed_before, computed_before_ranks, kept, slow

# ---- New weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_pages_that_the_device_still_has_of_old_weights_are_never_kept_as_new_ones(tmp_path: Path, ranks: int) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        one.run(ask("old"))
        one.connector.new_weights()  # without a flush: the tree keeps its pages
        assert one.run(ask("late", [*TOKENS, 7, 8, 9])) == (28, 0, 0)
        one.evict(ask("late", [*TOKENS, 7, 8, 9]))
        assert one.run(ask("again")) == (0, 0, 0)  # the pool has nothing, and nothing was written
        one.flush()
        assert one.run(ask("new")) == (0, 0, 0)
        one.flush()
        assert one.run(ask("kept")) == (0, 28, 0)
        one.quiet()

    played(ranks, story)


# ---- Copies and puts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pages", "lock"])
def test_a_save_whose_pages_cannot_be_named_gives_back_its_slots(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such node")

    monkeypatch.setattr(_Held, what, broken)

    def story(make: Make) -> None:
        one = make()
        cold = ask("cold")
        one.arrive(cold)
        one.until_ready(cold)
        one.admit(cold)
        one.compute(cold)
        one.end(cold)
        one.quiet()

    alone(story)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("tokens", [1, 3, 4, 9])
def test_a_request_that_never_came_into_the_queue_is_kept_all_the_same(tokens: int, ranks: int) -> None:
    def story(make: Make) -> None:
        one = make()
        stray = ask("stray", TOKENS[:tokens])
        one.compute(stray, 3)  # checkpoints in the middle of a page, before the first is whole
        one.end(stray)
        one.evict(stray)
        assert one.run(ask("again", TOKENS[:tokens])) == (0, 0, (tokens - 1) // PAGE * PAGE)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_new_request_of_the_same_name_is_not_kept_as_a_part_of_the_old_one(ranks: int) -> None:
    def story(make: Make) -> None:
        one = make()
        old, new = ask("x", TOKENS[:14]), ask("x", list(range(600, 630)))
        mixed = ask("mixed", [*old.tokens, *new.tokens[14:]])
        for each in (old, new):  # the old one was aborted and its last batch still runs
            one.arrive(each)
            one.until_ready(each)
            one.admit(each)
            one.compute(each)
        one.end(old)
        one.end(new)
        assert one.run(mixed) == (12, 0, 0)
        one.evict(mixed)
        one.evict(new)
        assert one.run(ask("again", mixed.tokens)) == (0, 0, 28)
        assert one.run(ask("new", new.tokens)) == (0, 0, 0)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_fetched_for_an_old_request_is_not_given_to_a_new_one_of_its_name(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        old, new = ask("x"), ask("x", list(range(600, 630)))
        one.arrive(old)
        one.arrive(new)
        for each in (old, new):
            one.until_ready(each)
            assert one.admit(each) == (0, 0, 0)
            one.compute(each)
            one.end(each)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("size", [1, 2])
def test_more_failed_blocks_than_a_report_holds_are_a_failure_of_all(size: int) -> None:
    def run(ranks: Ranks) -> Any:
        ranks.agree({})
        load = forebay.Decision(forebay.DecisionKind.LOAD, tokens=4)
        (decision,) = ranks.decide([load] if ranks.is_leader else None)
        return ranks.conclude(decision.number, 0, [(0, block) for block in range(500)]).ok

    assert in_threads(size, run) == [False] * size


def test_a_take_that_is_refused_leaves_no_lease(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        warm = ask("warm")
        one.arrive(warm)

        def refused(_session: forebay.Session) -> Any:
            raise forebay.CapacityError(-errno.ENOSPC, "no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forebay.Session, "take", refused)
            one.until_ready(warm)
        assert one.admit(warm) == (0, 0, 0)
        one.end(warm)
        one.quiet()

    alone(story)


# ---- Waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_tree_is_asked_once_for_a_request_that_waits(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(slow(tmp_path, 100))
        asked: list[str] = []
        own = one._device_of

        def counted(entry: Entry) -> int:
            asked.append(entry.name)
            return own(entry)

        one._device_of = counted  # type: ignore[method-assign]
        waiting = [ask(f"r{i}") for i in range(5)]
        for each in waiting:
            one.arrive(each)
        for each in waiting:
            one.until_ready(each)
        assert sorted(asked) == [each.name for each in waiting]
        for each in waiting:
            one.end(each)
        one.quiet()

    played(ranks, story)


def test_nobody_waits_for_ranks_that_are_gone(tmp_path: Path) -> None:
    computed_before_ranks(tmp_path, 2)

    def story(make: Make) -> None:
        one = make(slow(tmp_path, 200))
        warm = ask("warm")
        one.arrive(warm)
        assert not one.candidate(warm)
        one.ranks.lost = "a rank is gone"
        one.turn()
        assert one.candidate(warm)
        assert one.connector.match(warm.handle, 0, warm.limit).end == 0
        one.end(warm)
        assert not one.connector._entries

    played(2, story)


def test_a_server_that_hangs_is_looked_for_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def renew() -> bool:
        now[0] += 0.2
        return False

    def story(make: Make) -> None:
        mine = make().connector._leader
        assert mine is not None
        monkeypatch.setattr(mine.published, "renew", renew)
        looked = 0
        while now[0] < 42:  # ten seconds of a scheduler's passes, and what it waited
            before = now[0]
            assert not mine.found_again()
            looked += now[0] > before
            now[0] += 0.01
        assert looked == 10

    alone(story)


# ---- Anything in any order -------------------------------------------------------------------------------------------


def _some_life(one: Engine, dice: random.Random, name: str, *, has_windows: bool) -> None:
    """A request that is let go at any stage, some twice, some asked for again afterwards."""
    tokens = [*TOKENS[: dice.randrange(1, 30)], *(dice.randrange(9) for _ in range(dice.randrange(12)))]
    warm = ask(name, tokens)
    stage = dice.randrange(7)
    if stage > 0 and dice.random() < 0.9:
        one.arrive(warm)
        one.arrive(warm)
    if stage > 1:
        one.turn()
        one.candidate(warm)
    if stage > 2:
        one.until_ready(warm)
    if stage > 3:
        one.connector.match(warm.handle, one.on_device(warm), warm.limit)
    if stage > 4:
        one.admit(warm)
    if stage > 5:
        one.compute(warm, dice.choice([None, 3, 4, 9]))
    elif warm.pages:
        one.insert(warm, len(warm.pages))
    one.end(warm)
    one.end(warm)
    one.candidate(warm)
    one.connector.admitted(warm.handle)
    if has_windows:  # the toy's tree does not know which of its pages have a window
        one.evict(warm)
    elif dice.random() < 0.3:
        one.evict(warm, dice.randrange(3))
    if dice.random() < 0.02:
        one.flush()


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize(("ranks", "lives"), [(1, 1000), (2, 200)])
def test_a_thousand_requests_that_end_anywhere_leave_nothing(
    tmp_path: Path, groups: Any, ranks: int, lives: int
) -> None:
    def story(make: Make) -> None:
        one = make(slow(tmp_path, 0) | {"policy": "timeout", "timeout_budget_s": 5, "chunk_max_blocks": 2}, groups)
        dice = random.Random(1)
        for i in range(lives):
            _some_life(one, dice, f"r{i}", has_windows=groups is HYBRID)
            if len(one._free) < 24:
                one.flush()
        assert not one.connector._entries
        assert not one.connector._asked
        one.quiet()

    played(ranks, story)
