"""The drop-in flexkv, called as SGLang's integration calls it: what is restored, and that its bytes are right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

numpy = pytest.importorskip("numpy", reason="masks of the drop-in are numpy's arrays")

from flexkv_toy import PAGE, PAGES, Scope, Server, entered, threads  # noqa: E402

Maker = Callable[..., Server]
TOKENS = list(range(100, 130))  # 30 tokens: 7 pages and 2 more
LIMIT_S = 20.0
SOON = {"config": {"prefetch.query_timeout_s": "0.1"}}  # what hangs is given up then


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Maker]:
    opened: list[Server] = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def make(extra: dict[str, Any] | None = None, **changes: Any) -> Server:
        extra = dict(extra or {})
        config = {"log.level": "off"} | extra.pop("config", {})
        usual = {"store": "mem", "pool_bytes": "4MiB", "config": config}
        monkeypatch.setenv("FOREBAY_SGLANG", json.dumps(usual | extra))
        opened.append(Server(**changes))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert threads() == []


def store(path: Path) -> dict[str, Any]:
    return {"store": f"file:dir={path}/store,capacity=16MiB"}


def await_prefetch(one: Server, task: int) -> str:
    """As the scheduler asks for it: again and again."""
    while True:
        answers = one.kv.try_wait(task_ids=[task])
        if task in answers:
            return str(answers[task].status.value)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("is_mla", [False, True], ids=["mha", "mla"])
def test_what_was_computed_comes_back(serve: Maker, ranks: int, is_mla: bool) -> None:
    one = serve(ranks=ranks, is_mla=is_mla)
    assert one.load(TOKENS) == 0
    assert one.store(TOKENS) == 28
    assert one.store(TOKENS) == 0
    assert one.load(TOKENS) == 28
    assert one.load(TOKENS, device=8) == 20
    assert one.load([*TOKENS[:14], 1, 2, 3, 4]) == 12
    assert one.store([*TOKENS[:14], 1, 2, 3, 4]) == 4
    one.quiet()


def test_a_put_that_does_not_fit_at_once_goes_in_ranges(serve: Maker) -> None:
    one = serve({"config": {"pool.write_pinned_bytes": "2KiB"}})  # of the seven slots that are wanted
    with one.kv.engine.cache.put(one.kv.engine.cache.sequence(TOKENS)) as put:
        assert 0 < put.staged_to < 7
    assert one.store(TOKENS) == 28
    assert one.load(TOKENS) == 28
    one.quiet()


def test_a_put_that_finds_no_room_says_how_far_it_came(serve: Maker) -> None:
    one = serve({"store": "mem:script=put:*:delay(600)", "config": {"pool.write_pinned_bytes": "2KiB"}})
    slots = one.allocate(28)
    one.compute(TOKENS, slots)
    task, mask = one.kv.put_match(numpy.asarray(TOKENS[:28]))
    assert mask.sum() == 28
    one.kv.launch([task], [slots])
    answer = one.kv.wait([task], timeout=LIMIT_S, completely=True)[task]
    kept = int(answer.return_mask.sum())
    assert (answer.status.value, 0 < kept < 28, answer.return_mask[:kept].all()) == ("success", True, True)
    assert one.load(TOKENS) == kept


def test_wide_tokens_of_media_are_told_apart(serve: Maker) -> None:
    one, wide = serve(), 1 << 40
    assert one.store([*TOKENS[:8], wide, wide, wide, wide, 1, 2]) == 12
    assert one.load([*TOKENS[:8], wide, wide, wide, wide, 1, 2]) == 12
    assert one.load([*TOKENS[:8], wide + 1, wide + 1, wide + 1, wide + 1, 1, 2]) == 8
    one.quiet()


@pytest.mark.parametrize("ranks", [1, 2])
def test_after_a_restart_a_prefetch_brings_it_back(serve: Maker, tmp_path: Path, ranks: int) -> None:
    first = serve(store(tmp_path), ranks=ranks)
    assert first.store(TOKENS) == 28
    first.close()
    journal = tmp_path / "journal"
    second = serve(store(tmp_path) | {"journal": str(journal)}, ranks=ranks)
    with entered(Scope("h", "request-1", device_tokens=4)):
        task = second.kv.prefetch_async(token_ids=numpy.asarray(TOKENS[:28], dtype=numpy.int64))
        assert second.kv.prefetch_async(token_ids=numpy.asarray(TOKENS[:28], dtype=numpy.int64)) == task
        assert await_prefetch(second, task) == "success"
        assert second.kv.engine.take_span("h") == (24, 4)
        assert second.kv.engine.take_span("h") == (0, None)
        assert second.kv.engine.cache.stats()["leases_gauge"] == 1
        assert second.load(TOKENS, device=4) == 24
    second.kv.engine.forget("h")
    (row,) = [json.loads(line) for line in journal.read_text().splitlines()]
    expected = {"request": "request-1", "policy": "wait_complete", "outcome": "complete", "found": 28, "matched": 24}
    assert {name: row[name] for name in expected} == expected
    assert row["delivered"] == second.kv.engine.cache.stats()["tokens_delivered"] == 28
    second.quiet()


def test_a_prefetch_says_what_can_be_used(serve: Maker, tmp_path: Path) -> None:
    first = serve(store(tmp_path))
    first.store(TOKENS[:16])
    first.close()
    one = serve(store(tmp_path))
    task = one.kv.prefetch_async(numpy.asarray(TOKENS, dtype=numpy.int64))
    answer = one.kv.wait([task], timeout=LIMIT_S)[task]
    assert (answer.status.value, answer.return_mask.sum(), answer.return_mask[:16].all()) == ("success", 16, True)
    assert one.load(TOKENS) == 16
    one.quiet()


def test_a_match_takes_what_is_more_by_then(serve: Maker, tmp_path: Path) -> None:
    first = serve(store(tmp_path))
    first.store(TOKENS[:16])
    first.close()
    one = serve(store(tmp_path))
    for rid, device in (("waits", 0), ("has it", 16)):
        with entered(Scope(rid)):
            task = one.kv.prefetch_async(numpy.asarray(TOKENS[:28], dtype=numpy.int64))
            assert await_prefetch(one, task) == "success"
            if device == 0:
                assert one.match(TOKENS)[1] == 16
                one.kv.engine.forget(rid)
                assert one.kv.prefetch_async(numpy.asarray(TOKENS[:28], dtype=numpy.int64)) != task
    assert one.store(TOKENS) == 12
    with entered(Scope("has it")):
        assert one.load(TOKENS, device=16) == 12
    for rid in ("waits", "has it"):
        one.kv.engine.forget(rid)
    one.quiet()


def test_a_match_may_wait_for_the_store(serve: Maker, tmp_path: Path) -> None:
    first = serve(store(tmp_path))
    first.store(TOKENS)
    first.close()
    one = serve(store(tmp_path) | {"match_wait_s": LIMIT_S})
    ids = numpy.asarray(TOKENS[:28], dtype=numpy.int64)
    assert one.kv.get_match(ids, None, cpu_only=True)[1].sum() == 0
    assert one.load(TOKENS) == 28
    one.quiet()


def test_without_a_store_there_is_cpu_memory_alone(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    one = serve()
    one.close()
    monkeypatch.setenv("FOREBAY_SGLANG", json.dumps({"config": {"log.level": "off"}}))
    monkeypatch.setenv("FLEXKV_CPU_CACHE_GB", "0.25")
    bare = Server()
    try:
        assert bare.config.cache_config.enable_remote is False
        assert bare.kv.engine.settings.config.get("pool.bytes").value == "256MiB"
        assert bare.store(TOKENS) == 28
        assert bare.load(TOKENS) == 28
        assert bare.kv.prefetch_async(numpy.asarray(TOKENS)) == -1
        bare.quiet()
    finally:
        bare.close()


# ---- What holds ----


def test_a_match_holds_until_it_is_cancelled(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    task, hit = one.match(TOKENS)
    assert hit == 28
    assert one.kv.engine.cache.stats()["holds_gauge"] == 1
    assert one.status(task) == "unready"
    one.kv.cancel([task])
    assert one.status(task) == "cancelled"
    one.kv.cancel(task)
    one.quiet()


def test_the_same_request_again_does_not_leak(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    with entered(Scope("request")):
        tasks = [one.match(TOKENS)[0] for _ in range(50)]
        assert one.kv.engine.cache.stats()["holds_gauge"] == 1
        assert one.status(tasks[0]) == "cancelled"
        assert one.match([1, 2, 3, 4])[1] == 0
    one.quiet()


def test_matches_that_nobody_wants_are_let_go(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    from flexkv._forebay import tasks as module

    monkeypatch.setattr(module, "MOST_MATCHED", 3)
    one = serve()
    one.store(TOKENS)
    tasks = [one.match(TOKENS)[0] for _ in range(5)]
    assert one.kv.engine.cache.stats()["holds_gauge"] == 3
    assert [one.status(task) for task in tasks] == ["cancelled"] * 2 + ["unready"] * 3
    one.kv.cancel(tasks)
    one.quiet()


def test_a_request_that_is_gone_leaves_nothing(serve: Maker, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    hangs = {"store": "mem:script=exists:*:hang", "journal": str(journal), "policy": "best_effort", **SOON}
    one = serve(hangs)
    with entered(Scope("queued", "queued")):
        task = one.kv.prefetch_async(numpy.asarray(TOKENS))
    assert one.kv.engine.cache.stats()["sessions_running_gauge"] == 1
    one.kv.cancel([task])
    assert one.status(task) == "cancelled"
    one.kv.engine.forget("queued")
    one.kv.engine.forget("queued")
    with entered(Scope("other", "other")):
        one.kv.prefetch_async(numpy.asarray(TOKENS))
    one.kv.engine.forget("other")
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(row["request"], row["outcome"], row["delivered"]) for row in rows] == [
        ("queued", "aborted", 0),
        ("other", "aborted", 0),
    ]
    one.quiet()


def test_a_reset_forgets_cpu_memory(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    one.match(TOKENS)
    one.kv.reset()
    assert one.load(TOKENS) == 0
    one.quiet()


# ---- What is kept apart ----


def test_requests_of_different_namespaces_share_nothing(serve: Maker) -> None:
    one = serve()
    scopes = [
        Scope(),
        Scope(extra_key=""),
        Scope(extra_key="lora"),
        Scope(cache_salt="a"),
        Scope(cache_salt="b"),
        Scope(extra_key="lora", cache_salt="a"),
    ]
    for number, scope in enumerate(scopes):
        with entered(scope):
            assert one.load(TOKENS) == 0
            assert one.store(TOKENS, salt=str(number)) == 28
    for number, scope in enumerate(scopes):
        with entered(scope):
            assert one.load(TOKENS, salt=str(number)) == 28
    one.quiet()


def test_other_weights_at_an_adapters_path_share_nothing_with_the_old_ones(serve: Maker, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    paths = [SimpleNamespace(lora_id="0123", lora_path=str(adapter))]

    def served(weights: bytes) -> int:
        (adapter / "adapter_model.safetensors").write_bytes(weights)
        one = serve(store(tmp_path), lora_paths=paths)
        with entered(Scope("h", "request-1", extra_key="0123")):
            task = one.kv.prefetch_async(token_ids=numpy.asarray(TOKENS[:28], dtype=numpy.int64))
            await_prefetch(one, task)
            found = one.load(TOKENS)
            one.store(TOKENS)
        one.kv.engine.forget("h")
        one.close()
        return found

    assert [served(b"1" * 99), served(b"2" * 99), served(b"1" * 99)] == [0, 0, 28]


def test_a_caller_may_name_the_namespace(serve: Maker) -> None:
    one = serve()
    ids = numpy.asarray(TOKENS[:28], dtype=numpy.int64)
    one.store(TOKENS)
    task, mask = one.kv.put_match(ids, namespace=['["sglang-cache-v1",null,"a"]'])
    assert mask.sum() == 28
    one.kv.cancel(task)
    assert one.kv.get_match(ids, namespace=['["sglang-cache-v1",null,""]'])[1].sum() == 0
    one.quiet()


def test_a_request_may_say_for_itself(serve: Maker) -> None:
    from forebay.engines.common.options import RequestOptions

    one = serve()
    with entered(Scope(options=RequestOptions({}, save=False))):
        assert one.store(TOKENS) == 0
    with entered(Scope(options=RequestOptions({}, tenant="t"))):
        assert one.store(TOKENS) == 28
    assert one.match(TOKENS)[1] == 0
    with entered(Scope(options=RequestOptions({}, tenant="t", load=False))):
        assert one.match(TOKENS)[1] == 0
        assert one.kv.prefetch_async(numpy.asarray(TOKENS)) == -1
    with entered(Scope(options=RequestOptions({}, tenant="t"))):
        assert one.load(TOKENS) == 28
    one.quiet()


# ---- Sessions ----


def test_a_scheduler_that_knows_sessions_gets_them(serve: Maker, tmp_path: Path) -> None:
    from flexkv.prefetch import PrefetchHandle, PrefetchOptions

    first = serve(store(tmp_path))
    first.store(TOKENS)
    first.close()
    one = serve(store(tmp_path) | {"policy": "timeout"})
    able = one.kv.prefetch_capabilities()
    assert (able.protocol_version, able.policies) == (1, ("wait_complete", "timeout", "best_effort"))
    assert (able.stop_and_drain, able.partial_dense, able.partial_swa_checkpoints) == (True, True, False)
    options = PrefetchOptions(policy="timeout", timeout_budget_s=LIMIT_S)
    handle = one.kv.start_prefetch(numpy.asarray(TOKENS[:28]), options)
    while not one.kv.progress_prefetch([handle], demand_handles=[handle])[handle].terminal:
        pass
    snapshot = one.kv.wait_prefetch(handle, LIMIT_S)
    assert (snapshot.outcome, snapshot.stop_reason, snapshot.lease_valid) == ("complete", "complete", True)
    assert (snapshot.reusable_prefix_end_token, snapshot.l3_loaded_spans) == (28, ((0, 28),))
    assert snapshot.loaded_tokens == snapshot.planned_end_token == 28
    assert one.load(TOKENS) == 28
    one.kv.release_prefetch(handle)
    one.kv.release_prefetch(handle)
    assert one.kv.poll_prefetch(handle).state == "expired"
    assert one.kv.poll_prefetch(PrefetchHandle("another", 1)).outcome == "expired"
    one.quiet()


def test_a_session_is_stopped(serve: Maker) -> None:
    one = serve({"store": "mem:script=exists:*:hang", "policy": "best_effort", **SOON})
    handle = one.kv.start_prefetch(numpy.asarray(TOKENS))
    assert not one.kv.poll_prefetch(handle).terminal
    one.kv.stop_prefetch(handle)
    snapshot = one.kv.wait_prefetch(handle, LIMIT_S)
    assert (snapshot.outcome, snapshot.stop_reason, snapshot.reusable_prefix_end_token) == ("aborted", "abort", 0)
    one.kv.release_prefetch(handle)
    one.quiet()


def test_the_toy_is_big_enough() -> None:
    assert 4 * len(TOKENS) < PAGES * PAGE
