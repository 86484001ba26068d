"""The SGLang connector, played through a toy engine: what is restored, and that its bytes are right, on every rank."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.common import commits
from forebay.engines.sglang.copying import Copier, Running, Streams
from forebay.engines.sglang.ranks import RanksError
from sglang_toy import FULL, HYBRID, PAGE, Make, Request, played
from toy import LAYER_BYTES

TOKENS = list(range(100, 130))  # 30 tokens: 7 pages and 2 more


def ask(name: str, tokens: list[int] | None = None, **changes: Any) -> Request:
    return Request(name, list(TOKENS if tokens is None else tokens), **changes)


def kept(path: Path) -> dict[str, Any]:
    return {"store": f"file:dir={path}/s,capacity=16MiB"}


def slow(path: Path, ms: int = 20) -> dict[str, Any]:
    return {"store": f"fault:file:dir={path}/s,capacity=16MiB,latency_ms={ms}"}


def alone(story: Callable[[Make], Any]) -> Any:
    return played(1, story)[0]


def computed_before(path: Path, tokens: list[int] | None = None) -> None:
    """A prompt is in the store."""

    def story(make: Make) -> None:
        one = make(kept(path))
        assert one.run(ask("cold", tokens)) == (0, 0, 0)
        one.quiet()

    alone(story)


# ---- Restoring -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("chunk", [None, 3, PAGE, 9])
def test_what_one_engine_computed_another_restores(tmp_path: Path, groups: Any, ranks: int, chunk: int | None) -> None:
    def story(make: Make) -> None:
        first = make(kept(tmp_path), groups=groups)
        assert first.run(ask("cold"), chunk) == (0, 0, 0)
        first.quiet()
        first.connector.close()
        second = make(kept(tmp_path), groups=groups)
        assert second.run(ask("warm")) == (0, 28, 0)
        assert second.run(ask("again")) == (28, 0, 0)
        second.quiet()

    played(ranks, story)


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 8, 9, 27, 28, 29])
def test_the_last_token_is_left_to_the_engine(tmp_path: Path, tokens: int) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        one.run(ask("cold", TOKENS[:tokens]))
        one.flush()
        assert one.run(ask("warm", TOKENS[:tokens])) == (0, (tokens - 1) // PAGE * PAGE, 0)
        one.quiet()

    alone(story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_device_pool_and_store_give_one_prefix(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        short = ask("short", TOKENS[:14])
        assert one.run(short) == (0, 12, 0)  # device and pool have three pages
        one.evict(short, 2)
        assert one.run(ask("whole")) == (8, 16, 4)
        one.quiet()

    played(ranks, story)


def computed_before_ranks(path: Path, ranks: int) -> None:
    def story(make: Make) -> None:
        one = make(kept(path))
        one.run(ask("cold"))
        one.quiet()

    played(ranks, story)


def test_what_the_device_has_is_not_read_again(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        with_save_off = ask("mine", TOKENS[:21], params={"save": False, "load": False})
        assert one.run(with_save_off) == (0, 0, 0)  # five pages on the device, none in the pool
        before = one.connector.cache.stats()["bytes_read"]
        assert one.run(ask("whole")) == (20, 8, 0)
        slot = one.connector.cache.model.groups[0].slot_bytes
        assert one.connector.cache.stats()["bytes_read"] - before == 2 * slot
        one.quiet()

    alone(story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_the_device_evicts_while_the_request_waits_is_fetched_after_all(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        own = ask("mine", TOKENS[:21], params={"save": False, "load": False})
        one.run(own)
        whole = ask("whole")
        one.arrive(whole)  # counts on five pages of the device
        one.evict(own)
        one.until_ready(whole)
        assert one.admit(whole) == (0, 28, 0)
        one.end(whole)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_was_on_the_device_at_arrival_and_is_evicted_comes_from_the_pool(ranks: int) -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("cold"))
        again = ask("again")
        one.arrive(again)
        one.evict(again)
        assert one.until_ready(again) == 0
        assert one.admit(again) == (0, 0, 28)
        one.end(again)
        one.quiet()

    played(ranks, story)


def test_what_the_device_evicts_after_the_answer_is_a_miss_behind_it(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        own = ask("mine", TOKENS[:21], params={"save": False, "load": False})
        one.run(own)
        whole = ask("whole")
        one.arrive(whole)
        one.until_ready(whole)
        one.evict(own, 3)
        assert one.admit(whole) == (12, 0, 0)
        one.end(whole)
        one.quiet()

    alone(story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_equal_prompts_at_once_are_counted_once(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        all_of_them = [ask(f"r{i}") for i in range(5)]
        for each in all_of_them:
            one.arrive(each)
        for each in all_of_them:
            one.until_ready(each)
        assert [one.admit(each) for each in all_of_them] == [(0, 28, 0)] + [(28, 0, 0)] * 4
        for each in all_of_them:
            one.end(each)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_what_was_read_only_what_the_device_has_not_got_since_counts(tmp_path: Path, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        short, whole = ask("short", TOKENS[:14]), ask("whole")
        for each in (short, whole):
            one.arrive(each)
        for each in (short, whole):
            one.until_ready(each)
        assert [one.admit(short), one.admit(whole)] == [(0, 12, 0), (12, 16, 0)]
        for each in (short, whole):
            one.end(each)
        one.quiet()

    played(ranks, story)


def test_a_prompt_that_leaves_another_in_the_middle_of_its_windows_gets_the_last_checkpoint() -> None:
    def story(make: Make) -> None:
        one = make(groups=HYBRID)
        one.run(ask("cold"), chunk=12)  # checkpoints at 3, 6 and 7 pages
        one.evict(ask("cold"))
        other = ask("other", [*TOKENS[:21], *range(700, 720)])  # shares 5 pages
        one.arrive(other)
        one.until_ready(other)
        assert sum(one.admit(other)) == 12
        one.end(other)
        one.quiet()

    alone(story)


@pytest.mark.parametrize("tokens", [8, 12, 27, 28, 29, 32])
@pytest.mark.parametrize("chunk", [None, 4, 10])
def test_a_prompt_with_windows_that_comes_again_is_restored_as_far_as_can_be(tokens: int, chunk: int | None) -> None:
    def story(make: Make) -> None:
        one = make(groups=HYBRID)
        prompt = list(range(100, 100 + tokens))
        one.run(ask("cold", prompt), chunk)
        one.evict(ask("cold", prompt))
        assert sum(one.run(ask("warm", prompt))) == (tokens - 1) // PAGE * PAGE
        one.quiet()

    alone(story)


def test_a_window_that_the_device_has_left_is_not_kept_and_nothing_behind_it_is_restored_wrong() -> None:
    def story(make: Make) -> None:
        one = make(groups=HYBRID)
        cold = ask("cold")
        cold.window_from = 6  # of the two pages that resuming at 7 needs the first is gone
        one.run(cold)
        one.evict(cold)
        assert one.run(ask("warm")) == (0, 0, 0)
        one.quiet()

    alone(story)


# ---- The scheduler's questions ---------------------------------------------------------------------------------------


def test_the_span_is_told_once_and_the_answer_stays_true(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        assert one.connector.span(warm.handle) == (28, 0)
        for _ in range(3):  # it is not admitted: there is no room
            one.turn()
            assert one.candidate(warm)
            assert one.connector.span(warm.handle) == (0, None)
            assert one.connector.match(warm.handle, 0, warm.limit).end == 28
        assert one.connector.has_work()
        assert one.admit(warm)[0] == 0
        assert warm.computed == 28
        one.end(warm)
        one.quiet()

    alone(story)


def test_false_while_it_drains(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(slow(tmp_path, 50))
        warm, other = ask("warm"), ask("other", [7, 8, 9])
        one.arrive(warm)
        one.arrive(other)
        assert [one.candidate(warm), one.candidate(warm)] == [False, False]
        assert one.candidate(other)  # others overtake it
        assert one.connector.has_work()
        one.until_ready(warm)
        assert one.admit(warm) == (0, 28, 0)

    alone(story)


def test_best_effort_stops_at_the_first_question(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> Any:
        one = make(slow(tmp_path) | {"policy": "best_effort", "chunk_max_blocks": 1, "max_inflight_chunks": 1})
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        answer = one.connector._entries[warm.handle].answer
        given = one.admit(warm)
        one.end(warm)
        one.quiet()
        return answer, given

    answer, given = alone(story)
    assert (answer.reason, sum(given)) == (forebay.Reason.DEMAND, answer.delivered_tokens)
    assert sum(given) < 28


def threads() -> set[str]:
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}


@pytest.mark.parametrize(("policy", "runs"), [(None, False), ("wait_complete", False), ("timeout", True)])
def test_the_whole_plan_is_one_graph_and_needs_no_chunk_runtime(tmp_path: Path, policy: str | None, runs: bool) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make(kept(tmp_path) | ({"policy": policy} if policy else {}) | {"chunk_max_blocks": 2})
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        answer = one.connector._entries[warm.handle].answer
        assert answer is not None
        assert answer.submitted == (4 if runs else 1)
        assert ("fby-control" in threads()) is runs
        one.end(warm)

    alone(story)


def test_an_idle_step_and_a_poll_cost_no_message(tmp_path: Path) -> None:
    computed_before_ranks(tmp_path, 2)

    def story(make: Make) -> list[int]:
        one = make(kept(tmp_path))
        ranks = one.ranks
        counts = [ranks.messages]
        for _ in range(100):
            one.turn()
        counts.append(ranks.messages)
        warm = ask("warm")
        one.arrive(warm)
        one.turn()
        counts.append(ranks.messages)
        for _ in range(5):
            assert not one.candidate(warm)
        counts.append(ranks.messages)
        one.until_ready(warm)
        one.admit(warm)
        one.end(warm)
        after = ranks.messages
        for _ in range(100):
            one.turn()
        return [*counts, ranks.messages - after]

    for start, *rest, end in played(2, story):
        assert rest == [start] * 3
        assert end == 0


# ---- Namespaces and requests' own options ----------------------------------------------------------------------------


def test_salts_and_extra_keys_never_share_and_the_same_ones_do() -> None:
    def story(make: Make) -> None:
        one = make()
        namespaces: list[dict[str, Any]] = [
            {}, {"salt": "x"}, {"salt": "y"}, {"extra_key": "x"}, {"extra_key": "x", "salt": "x"}, {"extra_key": ""},
        ]  # fmt: skip
        for i, own in enumerate(namespaces):
            assert one.run(ask(f"cold{i}", **own)) == (0, 0, 0)
        assert one.connector.cache.stats()["blocks_published"] == 7 * len(namespaces)
        one._free.extend(one.tree.values())
        one.tree.clear()
        for i, own in enumerate(namespaces):
            assert sum(one.run(ask(f"warm{i}", **own))) == 28
        assert sum(one.run(ask("tenant", params={"tenant": "x"}))) == 28  # of the device

    alone(story)


def test_tenants_share_nothing_behind_the_device() -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("a", params={"tenant": "x"}))
        one.evict(ask("a"))
        assert one.run(ask("b")) == (0, 0, 0)
        one.evict(ask("b"))
        assert sum(one.run(ask("c", params={"tenant": "x"}))) == 28

    alone(story)


def test_requests_that_say_so_are_neither_restored_nor_kept() -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("a", params={"save": False}))
        one.evict(ask("a"))
        assert one.run(ask("b")) == (0, 0, 0)
        one.evict(ask("b"))
        assert one.run(ask("c", params={"load": False})) == (0, 0, 0)
        one.evict(ask("c"))
        assert sum(one.run(ask("d"))) == 28

    alone(story)


def test_an_engine_that_does_not_save_keeps_nothing() -> None:
    def story(make: Make) -> None:
        one = make({"save": False})
        one.run(ask("a"))
        assert one.connector.cache.stats()["blocks_published"] == 0
        one.quiet()

    alone(story)


# ---- Ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("when", ["never", "queued", "asked", "ready", "loaded", "computing"])
def test_an_abort_in_any_state_leaves_nothing(tmp_path: Path, when: str, ranks: int) -> None:
    computed_before_ranks(tmp_path, ranks)

    def story(make: Make) -> None:
        one = make(slow(tmp_path) if when in ("queued", "asked") else kept(tmp_path))
        warm = ask("warm", [*TOKENS, *range(200, 220)])
        if when != "never":
            one.arrive(warm)
        if when == "asked":
            one.candidate(warm)
        if when in ("ready", "loaded", "computing"):
            one.until_ready(warm)
        if when in ("loaded", "computing"):
            assert one.admit(warm) == (0, 28, 0)
        if when == "computing":
            one.compute(warm, 8)
        one.end(warm)
        one.end(warm)
        assert not one.connector._entries
        assert not one.connector.has_work()
        one.quiet()

    played(ranks, story)


def test_a_retracted_request_finds_what_it_saved() -> None:
    def story(make: Make) -> None:
        one = make()
        first = ask("r")
        one.arrive(first)
        one.until_ready(first)
        one.admit(first)
        one.compute(first)
        first.tokens += range(300, 310)
        one.compute(first)
        one.end(first)  # its pages are released
        one.evict(first)
        assert sum(one.run(first)) == 36
        one.quiet()

    alone(story)


def test_blocks_are_kept_at_checkpoints_from_the_first_that_is_missing() -> None:
    def story(make: Make) -> list[int]:
        one = make()
        first = ask("r", list(range(900, 960)))
        one.arrive(first)
        one.until_ready(first)
        one.admit(first)
        published = []
        save = one.connector.save

        def counted(*arguments: Any, **keywords: Any) -> None:
            save(*arguments, **keywords)
            published.append(int(one.connector.cache.stats()["blocks_published"]))

        one.connector.save = counted  # type: ignore[method-assign]
        one.compute(first, 14)
        one.end(first)
        one.quiet()
        return published

    assert alone(story) == [3, 7, 10, 14, 15]


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
def test_big_puts_are_committed_beside_the_scheduler_and_in_order(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "INLINE_BYTES", 0)

    def story(make: Make) -> None:
        one = make(groups=groups)
        for i in range(10):
            one.run(ask(f"r{i}", [1000 * i + token for token in range(30)]), chunk=5)
        assert "forebay-commit" in {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
        while one.connector._leader._saver:  # type: ignore[union-attr]
            one.turn()
        assert one.connector.cache.stats()["blocks_published"] == 10 * 7
        one.quiet()

    alone(story)


class LateCopier(Copier):
    """Copies that are under way until somebody says that they have ended, as on a GPU."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_late = True

    def is_done(self, running: Running) -> bool:
        return not self.is_late and super().is_done(running)


@pytest.mark.parametrize("ranks", [1, 2])
def test_saves_run_beside_the_scheduler_and_their_pages_are_locked_until_all_ranks_have_copied(ranks: int) -> None:
    def story(make: Make) -> None:
        one = make()
        one.connector._settings = replace(one.connector._settings, device="cuda")
        late = one.connector._copier = one.connector._saves._copier = LateCopier()
        cold = ask("cold")
        one.run(cold, chunk=10)
        assert cold.locks == 3
        assert one.connector.has_work()
        one.turn()
        assert cold.locks == 3
        late.is_late = one.ranks.rank != 0  # the first rank is ready before the others
        one.turn()
        assert cold.locks == (3 if ranks > 1 else 0)
        late.is_late = False
        one.turn()
        assert cold.locks == 0
        one.evict(cold)
        assert sum(one.run(ask("warm"))) == 28
        late.is_late = True
        more = ask("more", [*TOKENS, *range(200, 220)])
        one.run(more)
        assert more.locks == 1
        one.evict(more)
        assert sum(one.run(ask("meanwhile"))) == 28
        assert more.locks == (0 if ranks > 1 else 1)  # several ranks end copies in the order of decisions
        one.run(ask("other", list(range(700, 730))))
        one.evict(ask("other", list(range(700, 730))))
        one.flush()  # waits for them
        assert not one.connector.has_work()
        one.quiet()

    played(ranks, story)


def test_copies_on_a_gpu_begin_behind_the_engine_s_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Stream:
        def wait_stream(self, other: Any) -> None:
            said.append(f"wait for {other}")

    class Event:
        cuda_event = 77

        def record(self, stream: Any) -> None:
            said.append(f"record on {type(stream).__name__}")

    cuda = SimpleNamespace(Stream=Stream, Event=Event, current_stream=lambda: "schedule")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    copier = Copier(Streams("forward"))

    def load(group: int, places: list[int], blocks: list[int], *, verify: bool, after: int) -> None:
        calls.append((group, places, blocks, verify, after))
        raise forebay.BusyError(-16, "enough seen")

    calls: list[Any] = []
    attached: Any = SimpleNamespace(rank=SimpleNamespace(load=load), verify=True)
    ranges = [forebay.BlockRange(0, 6, 2, [100, 200], [0, 1])]
    outcome = copier.load(attached, ranges, [[11, 12, 13, 14]], 5)
    assert said == ["wait for forward", "wait for schedule", "record on Stream"]
    assert calls == [(0, [100, 200], [12, 13], True, 77)]
    assert outcome.code < 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_flush_forgets_and_the_store_still_has_it(tmp_path: Path, ranks: int) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        one.run(ask("cold"))
        assert one.flush()
        if one.connector.cache is not None:
            assert one.connector.cache.stats()["resident_blocks_gauge"] == 0
        assert one.run(ask("warm")) == (0, 28, 0)

    played(ranks, story)


def test_a_flush_may_reach_the_store_too_and_a_clear_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path) | {"reset_bumps_epoch": True})
        one.run(ask("cold"))
        assert one.flush()
        assert one.run(ask("warm")) == (0, 0, 0)
        one.connector.close()
        other = make({"store": f"file:dir={tmp_path}/other,capacity=16MiB"})
        other.run(ask("cold"))
        assert other.connector.reset(new_epoch=True)
        other.flush()
        assert other.run(ask("warm")) == (0, 0, 0)

    alone(story)
    assert caplog.text.count("forebay: the weights epoch is 1 now") == 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_after_new_weights_nothing_old_is_found_and_what_runs_on_is_not_kept(tmp_path: Path, ranks: int) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path))
        one.run(ask("cold"))
        running, other = ask("running", list(range(900, 930))), ask("queued")
        one.arrive(running)
        one.until_ready(running)
        one.admit(running)
        one.evict(ask("cold"))
        one.arrive(other)
        one.connector.new_weights()
        one.compute(running)
        one.until_ready(other)
        assert one.admit(other) == (0, 0, 0)
        for each in (running, other):
            one.end(each)
        one.evict(running)
        assert one.run(ask("again", running.tokens)) == (0, 0, 0)
        one.quiet()

    played(ranks, story)


# ---- What goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_page_that_is_wrong_in_its_slot_is_recomputed_on_all_ranks_and_then_a_miss(
    tmp_path: Path, groups: Any, ranks: int
) -> None:
    def story(make: Make) -> None:
        one = make(kept(tmp_path) | {"config": {"store.verify": "on_load"}}, groups=groups)
        one.run(ask("cold"))
        one.evict(ask("cold"))
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        hold = one.connector._entries[warm.handle].hold
        if one.ranks.is_leader:
            assert hold is not None
            address = hold.addresses(0, 3, 4)[0]
            ctypes.memmove(address, bytes([ctypes.string_at(address, 1)[0] ^ 1]), 1)
        assert one.admit(warm) == (0, 0, 0)
        assert one.connector._entries[warm.handle].failed == 1
        assert one.connector.match(warm.handle, 0, warm.limit).end == 0
        one.compute(warm)
        one.end(warm)
        one.quiet()

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_pages_on_the_device_is_a_miss_on_all_ranks(ranks: int) -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("cold"))
        one.evict(ask("cold"))
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        if one.ranks.rank == ranks - 1:
            one.allocate = lambda pages: None if pages else []  # type: ignore[method-assign]
        assert one.admit(warm) == (0, 0, 0)
        one.end(warm)
        one.quiet()

    played(ranks, story)


def test_a_match_that_a_reset_took_is_a_miss() -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("cold"))
        one.evict(ask("cold"))
        warm = ask("warm")
        one.arrive(warm)
        one.until_ready(warm)
        assert one.connector._leader is not None
        one.connector._leader.reset(False)
        assert one.admit(warm) == (0, 0, 0)
        one.end(warm)
        one.quiet()

    alone(story)


def test_a_store_that_fails_is_a_miss(tmp_path: Path) -> None:
    computed_before(tmp_path)

    def story(make: Make) -> None:
        one = make({"store": f"fault:file:dir={tmp_path}/s,capacity=16MiB,script=get:*:err(CONNECTION)"})
        assert one.run(ask("warm")) == (0, 0, 0)
        one.quiet()

    alone(story)


def test_whatever_cannot_start_is_a_request_without_a_prefetch(caplog: pytest.LogCaptureFixture) -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("cold"))
        one.evict(ask("cold"))
        cache = one.connector.cache
        assert one.connector._leader is not None

        def broken(*_arguments: Any, **_keywords: Any) -> None:
            raise forebay.BusyError(-16, "the table is full")

        one.connector._leader._matcher._cache = type("Cache", (), {"start": broken, "lookup": cache.lookup})()
        assert one.run(ask("warm")) == (0, 0, 0)
        one.quiet()

    alone(story)
    assert "forebay: starting a prefetch failed, the engine goes on without" in caplog.text


def test_a_policy_that_this_engine_does_not_run_is_its_usual_one(caplog: pytest.LogCaptureFixture) -> None:
    def story(make: Make) -> None:
        one = make()
        one.run(ask("cold"))
        one.evict(ask("cold"))
        assert sum(one.run(ask("warm", params={"policy": "timeout", "nonsense": 1}))) == 28

    alone(story)
    assert "custom_params.forebay: nonsense=1 is not accepted" in caplog.text


def test_ranks_that_differ_do_not_start_and_say_in_what() -> None:
    def story(make: Make) -> str:
        with pytest.raises(RanksError) as raised:
            make(groups=[FULL, HYBRID][make.rank])
        return str(raised.value)

    texts = played(2, story)
    assert texts[0] == texts[1]
    assert "group-a0" in texts[0]


def test_a_cache_that_cannot_be_opened_stops_every_rank(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("no directory")

    def story(make: Make) -> str:
        with pytest.raises((forebay.ForebayError, RuntimeError)) as raised:
            make(kept(tmp_path))
        return str(raised.value)

    for text in [*played(1, story), *played(2, story)]:
        assert str(tmp_path) in text


# ---- What is reported ------------------------------------------------------------------------------------------------


def test_the_journal_says_what_became_of_a_prefetch(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def story(make: Make) -> None:
        one = make(kept(tmp_path) | {"journal": str(journal)})
        one.run(ask("cold"))
        one.flush()
        one.run(ask("warm"))
        gone = ask("gone", [1, 2, 3, 4, 5])
        one.arrive(gone)
        one.end(gone)

    played(2, story)
    cold, warm, gone = (json.loads(line) for line in journal.read_text().splitlines())
    assert (cold["outcome"], cold["matched"]) == ("empty", 0)
    assert warm == {
        "request": "warm", "policy": "wait_complete", "stop_mode": "drain", "outcome": "complete", "reason": "complete",
        "found": 28, "planned": 28, "loaded": 28, "delivered": 28, "graphs": 1, "matched": 28, "failed": 0,
    }  # fmt: skip
    assert (gone["request"], gone["matched"]) == ("gone", 0)


def test_figures_are_totals_of_cache_and_rank() -> None:
    def story(make: Make) -> dict[str, int]:
        one = make()
        one.run(ask("cold"))
        one.evict(ask("cold"))
        one.run(ask("warm"))
        return one.connector.figures()

    made = alone(story)
    assert (made["sessions"], made["blocks_published"], made["tokens_delivered"]) == (2, 7, 28)
    assert made["rank_bytes_saved"] == made["rank_bytes_loaded"] == 7 * 2 * LAYER_BYTES
    assert made["failed_blocks"] == 0
