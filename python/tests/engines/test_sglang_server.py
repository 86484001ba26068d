"""The SGLang connector with a server's cache: engines share it, and it may die and come back under them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import forebay
import pytest
from conftest import Server, ServerMaker
from forebay.engines.sglang import leader
from sglang_toy import FULL, HYBRID, LIMIT_S, Make, Request, model_of, played

TOKENS = list(range(100, 130))


def ask(name: str) -> Request:
    return Request(name, list(TOKENS))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone is looked for at every request."""
    monkeypatch.setattr(leader, "AGAIN_S", 0.0)


def serve(start: ServerMaker, path: Path, ranks: int, groups: Any = FULL, driver: str = "file", **more: str) -> Server:
    store = {"driver": driver, "options": {"dir": str(path / "s"), "capacity": "16MiB", **more}}
    return start(model=model_of(ranks, groups).section(), store=store, prefetch={"policy": "wait_complete"})


def stored(path: Path, ranks: int) -> None:
    """A prompt is in the store."""

    def story(make: Make) -> None:
        make({"store": f"file:dir={path}/s,capacity=16MiB"}).run(ask("cold"))

    played(ranks, story)


@pytest.mark.parametrize("groups", [FULL, HYBRID], ids=["full", "hybrid"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_engines_share_a_server(tmp_path: Path, start_server: ServerMaker, groups: Any, ranks: int) -> None:
    server = serve(start_server, tmp_path, ranks, groups)

    def story(make: Make) -> None:
        one, other = make({"server": str(server.path)}, groups), make({"server": str(server.path)}, groups)
        assert one.run(ask("cold")) == (0, 0, 0)
        assert other.run(ask("warm")) == (0, 0, 28)  # resident already: nothing was read
        one.evict(ask("cold"))
        assert one.run(ask("again")) == (0, 0, 28)

    played(ranks, story)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("when", ["idle", "draining", "ready", "computing"])
def test_a_server_that_dies_costs_computing_and_comes_back(
    tmp_path: Path, start_server: ServerMaker, when: str, ranks: int
) -> None:
    stored(tmp_path, ranks)
    slow = {"driver": "fault:file", "latency_ms": "300"} if when == "draining" else {}
    server = serve(start_server, tmp_path, ranks, **slow)
    journal = tmp_path / "journal"

    def story(make: Make) -> None:
        one = make({"server": str(server.path), "journal": str(journal)})
        hit = ask("hit")
        if when != "idle":
            one.arrive(hit)
        if when == "draining":
            assert not one.candidate(hit)
        if when in ("ready", "computing"):
            one.until_ready(hit)
        if when == "computing":
            assert one.admit(hit) == (0, 28, 0)
        if make.rank == 0:
            server.kill()
        one.ranks.minimum(0)  # nobody goes on before
        if when == "idle":
            one.arrive(hit)
        if when in ("idle", "draining"):
            one.until_ready(hit)
        if when != "computing":
            assert one.admit(hit) == (0, 0, 0)
        one.compute(hit)
        one.end(hit)
        one.evict(hit)
        assert one.run(ask("meanwhile")) == (0, 0, 0)
        if make.rank == 0:
            server.start()
        one.ranks.minimum(0)
        limit, back = time.monotonic() + LIMIT_S, 0
        while back < 28:  # from the store, or computed and kept when the server was there again
            assert time.monotonic() < limit, "the server was not found again"
            time.sleep(0.01)  # whoever connects waits a little between tries
            one.evict(hit)
            back = sum(one.run(ask("back")))

    played(ranks, story)
    rows = {row["request"]: row for row in map(json.loads, journal.read_text().splitlines())}
    if when == "draining":
        names = ("outcome", "reason", "delivered", "matched")
        assert [rows["hit"][name] for name in names] == ["failed", "server_lost", 0, 0]
    if when == "ready":
        assert (rows["hit"]["delivered"], rows["hit"]["matched"], rows["hit"]["failed"]) == (28, 0, 7)


def test_a_loss_that_another_request_s_save_finds_is_in_the_journal_of_those_that_waited(
    tmp_path: Path, start_server: ServerMaker
) -> None:
    stored(tmp_path, 1)
    server = serve(start_server, tmp_path, 1, driver="fault:file", latency_ms="2000")
    journal = tmp_path / "journal"

    def story(make: Make) -> None:
        one = make({"server": str(server.path), "journal": str(journal)})
        other, hit = Request("other", list(range(500, 530)), {"load": False}), ask("hit")
        for each in (other, hit):
            one.arrive(each)
        assert not one.candidate(hit)
        server.kill()
        one.compute(other)
        one.until_ready(hit)
        assert one.admit(hit) == (0, 0, 0)
        for each in (other, hit):
            one.end(each)

    played(1, story)
    (row,) = map(json.loads, journal.read_text().splitlines())
    assert [row[name] for name in ("request", "outcome", "reason")] == ["hit", "failed", "server_lost"]


def test_while_it_is_away_requests_cost_next_to_nothing(tmp_path: Path, start_server: ServerMaker) -> None:
    server = serve(start_server, tmp_path, 1)

    def story(make: Make) -> None:
        one = make({"server": str(server.path)})
        server.kill()
        began = time.monotonic()
        for i in range(50):
            one.evict(ask("x"))
            assert one.run(ask(f"r{i}")) == (0, 0, 0)
        assert time.monotonic() - began < LIMIT_S

    played(1, story)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_server_with_another_model_is_refused_with_the_section_it_needs(
    tmp_path: Path, start_server: ServerMaker, ranks: int
) -> None:
    server = serve(start_server, tmp_path, ranks, HYBRID)

    def story(make: Make) -> str:
        with pytest.raises((ValueError, RuntimeError)) as raised:
            make({"server": str(server.path)})
        return str(raised.value)

    for text in played(ranks, story):
        assert f"the server at {server.path} has another model" in text


def test_a_server_that_is_not_there_is_an_error_at_start(tmp_path: Path) -> None:
    def story(make: Make) -> None:
        with pytest.raises((forebay.ForebayError, OSError)):
            make({"server": str(tmp_path / "nobody")})

    played(1, story)
