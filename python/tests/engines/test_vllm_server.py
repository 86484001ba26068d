"""The vLLM connector with a server's cache: engines share it, and it may die and come back under them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.engines.common.attach import AwayError, attach_pool
from forebay.engines.common.opening import fingerprint
from toy import FIELDS, FULL, HYBRID, Engine, request

TOKENS = list(range(100, 130))
SERVE = """
import json, sys, forebay
with forebay.Cache(json.loads(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""
LIMIT = 20  # seconds: the end of a process takes none of it

Server = subprocess.Popen[str]


def section(groups: Any, ranks: int) -> dict[str, Any]:
    one = Engine({}, groups=groups, ranks=ranks)
    made = one.model.section()
    one.close()
    return made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(model: dict[str, Any], slow_ms: int = 0) -> Server:
        options = {"dir": str(tmp_path / "store"), "capacity": "16MiB"}
        if slow_ms:
            options["script"] = f"get:*:delay({slow_ms})"
        config = {
            "model": model, "pool": {"bytes": "4MiB"}, "log": {"level": "off"},
            "store": {"driver": "fault:file" if slow_ms else "file", "options": options},
            "server": {"listen": str(tmp_path / "socket")},
            "prefetch": {"enabled": True, "chunk_max_blocks": 1},
        }  # fmt: skip
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", SERVE, json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for one in started:
        end(one, signal.SIGKILL)


def end(server: Server, how: signal.Signals) -> None:
    if server.poll() is None:
        server.send_signal(how)
    server.communicate(timeout=LIMIT)


def until_stored(engine: Engine, objects: int) -> None:
    """The store has what was saved: a server that is killed takes what it had not written yet."""
    limit = time.monotonic() + LIMIT
    while engine.scheduler.cache.stats()["writes"] < objects:
        assert time.monotonic() < limit


def until_back(engine: Engine) -> None:
    """Steps until all ranks have the pool of the server that came back."""
    limit = time.monotonic() + LIMIT
    while engine.scheduler._was_lost:
        assert time.monotonic() < limit
        engine.step()


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_engines_share_a_server(tmp_path: Path, serve: Callable[..., Server], groups: Any, ranks: int) -> None:
    serve(section(groups, ranks))
    extra = {"server": str(tmp_path / "socket")}
    one, other = Engine(dict(extra), groups=groups, ranks=ranks), Engine(dict(extra), groups=groups, ranks=ranks)
    try:
        assert one.run(request("cold", TOKENS)) == 0
        assert other.run(request("warm", TOKENS)) == 28
        assert one.run(request("again", TOKENS)) == 28
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("when", ["idle", "matched", "loading", "computing"])
def test_a_server_that_dies_costs_computing_and_comes_back(
    tmp_path: Path, serve: Callable[..., Server], when: str
) -> None:
    first = serve(section(FULL, 2))
    engine = Engine({"server": str(tmp_path / "socket")}, ranks=2)
    try:
        assert engine.run(request("cold", TOKENS)) == 0
        until_stored(engine, 7)
        hit = request("hit", TOKENS)
        if when != "idle":
            engine.scheduler.begin(hit)
            assert engine.ask(hit) == (28, True)
        if when == "computing":
            assert engine.load(hit, 28, True)
        if when == "loading":
            engine.tables["hit"] = engine.allocate(8)
            engine.scheduler.allocated(hit, engine.tables["hit"], 28)
        end(first, signal.SIGKILL)
        engine.step({"hit": 2} if when == "computing" else None)
        if when == "loading":
            assert engine.failed_blocks == set(engine.tables["hit"][0][:7])
            assert engine.scheduler.match(hit, 0) == (0, False)
            engine.failed_blocks.clear()
        if when == "matched":
            assert engine.scheduler.match(hit, 0) == (0, False)
        engine.scheduler.finished(hit)
        assert engine.run(request("away", TOKENS)) == 0
        serve(section(FULL, 2))
        until_back(engine)
        assert engine.run(request("warm", TOKENS)) == 28  # from the store of the first
    finally:
        engine.close()


@pytest.mark.parametrize("ended", ["asked again", "aborted"])
def test_a_server_that_dies_while_a_prefetch_drains_is_a_miss_with_a_reason(
    tmp_path: Path, serve: Callable[..., Server], ended: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = serve(section(FULL, 1))
    engine = Engine({"server": str(tmp_path / "socket"), "journal": str(tmp_path / "journal"), "idle_wait_ms": 0})
    try:
        engine.run(request("cold", TOKENS))
        until_stored(engine, 7)
        end(first, signal.SIGTERM)
        slow = serve(section(FULL, 1), slow_ms=5000)
        until_back(engine)
        hit = request("hit", TOKENS)
        engine.scheduler.begin(hit)
        entry = engine.scheduler._entries["hit"]
        while entry.seen is None or entry.seen.submitted == 0:
            assert engine.scheduler.match(hit, 0) == (None, False)
            engine.step()
        end(slow, signal.SIGKILL)
        if ended == "asked again":
            assert [engine.scheduler.match(hit, 0) for _ in range(3)] == [(0, False)] * 3
            assert entry.failed == 0
        engine.scheduler.finished(hit)
        row = json.loads((tmp_path / "journal").read_text().splitlines()[-1])
        names = ("request", "outcome", "reason", "delivered", "matched", "failed")
        assert [row[name] for name in names] == ["hit", "failed", "server_lost", 0, 0, 0]
        assert row["graphs"] > 0
        engine.step()
        assert "failed, the engine goes on without" not in caplog.text  # one line for the server, none for each request
        serve(section(FULL, 1))
        until_back(engine)
        assert engine.run(request("warm", TOKENS)) == 28
    finally:
        engine.close()


def test_a_step_that_waits_for_a_prefetch_outlives_its_server(tmp_path: Path, serve: Callable[..., Server]) -> None:
    first = serve(section(FULL, 1))
    engine = Engine({"server": str(tmp_path / "socket"), "idle_wait_ms": 10_000})
    try:
        engine.run(request("cold", TOKENS))
        until_stored(engine, 7)
        end(first, signal.SIGTERM)
        slow = serve(section(FULL, 1), slow_ms=5000)
        until_back(engine)
        hit = request("hit", TOKENS)
        engine.scheduler.begin(hit)
        assert engine.scheduler.match(hit, 0) == (None, False)
        killer = threading.Timer(0.2, slow.kill)
        killer.start()
        engine.step()  # comes back when the server is gone
        killer.join()
        assert engine.scheduler.match(hit, 0) == (0, False)
        engine.scheduler.finished(hit)
    finally:
        engine.close()


def test_a_server_with_another_model_is_refused_with_the_section_it_needs(
    tmp_path: Path, serve: Callable[..., Server]
) -> None:
    serve(section(HYBRID, 1))
    with pytest.raises(
        ValueError, match=r'accepted: a server with this section in its configuration: model: {"id": "toy"'
    ):
        Engine({"server": str(tmp_path / "socket")})


def test_the_fingerprint_is_the_library_s() -> None:
    groups = [
        {"name": "a", "payload_bytes": 4096, "rule": "all"},
        {"name": "w", "payload_bytes": 64, "rule": "trailing(3)"},
    ]
    model = FIELDS | {"block_tokens": 16, "weights_epoch": 7, "tp_size": 4, "groups": groups}
    with forebay.Cache(model=model, store={"driver": "mem"}, pool={"bytes": "4MiB"}, log={"level": "off"}) as cache:
        assert cache.model.fingerprint == fingerprint(model)


def test_a_rank_takes_no_pool_but_that_of_the_server_that_was_meant(
    tmp_path: Path, serve: Callable[..., Server]
) -> None:
    serve(section(FULL, 1))
    engine = Engine({"server": str(tmp_path / "socket")})
    address = replace(engine.scheduler._pool.address, began_ns=1)
    with pytest.raises(AwayError, match="is another one by now"):
        attach_pool(address, engine.model, 0, device="host", threads=1, name="toy")
    engine.close()
