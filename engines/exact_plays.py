"""How a row's prompts are asked the second time, and what goes wrong meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exact_rows import Expect, Row

if TYPE_CHECKING:
    from exact_stage import Stage

QUEUED_S, SHORTLY_S, HURT_AFTER_S = 2.0, 0.5, 0.15
FROZEN_LIMIT_S = 60.0


class PlayError(Exception):
    """The disturbance did not happen as it should."""


@dataclass(frozen=True)
class Asked:
    """A prompt by its number, the name of its request, and what is expected of it."""

    number: int
    name: str
    expect: Expect


Play = Callable[["Stage", Row, list[list[int]]], list[Asked]]


def plain(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """One after the other."""
    asked = []
    for number, prompt in enumerate(prompts):
        asked.append(Asked(number, stage.engine.submit(prompt, row.tokens, row.params), row.expect))
        stage.engine.run()
    return asked


def _submit(stage: Stage, row: Row, prompts: Sequence[Sequence[int]]) -> list[Asked]:
    return [
        Asked(number, stage.engine.submit(prompt, row.tokens, row.params), row.expect)
        for number, prompt in enumerate(prompts)
    ]


def together(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """All at once. What one restores of a shared prefix another may find computed, so each may be given less."""
    asked = _submit(stage, row, prompts)
    stage.engine.run()
    loose = replace(row.expect, restored="any", reasons=(), chunk=None)
    total = sum(stage.journal.of(stage.engine.inner_name(one.name)).matched for one in asked)
    if total == 0:
        raise PlayError("nothing was restored of prompts with a shared prefix")
    return [replace(one, expect=loose) for one in asked]


def _busy(stage: Stage, row: Row, prompts: list[list[int]], seconds: float) -> list[Asked]:
    """All places of the engine are taken for a while, so the prompts wait in its queue."""
    engine = stage.in_process()
    long = engine.engine.max_model_len - 32
    hogs = [
        engine.submit(range(5, 13 + place), long, {"load": False, "save": False})
        for place in range(engine.engine.max_sequences)
    ]
    while any(engine.tokens(hog) == 0 for hog in hogs):
        engine.step()
    asked = _submit(stage, row, prompts)
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        engine.step()
        if any(engine.answer(hog).finish_reason for hog in hogs):
            raise PlayError("a place of the engine became free too soon")
    for hog in hogs:
        engine.abort(hog)
    engine.run()
    return asked


def queued(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """They wait long enough for everything to be read."""
    return _busy(stage, row, prompts, QUEUED_S)


def queued_shortly(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """They wait for a part of it."""
    return _busy(stage, row, prompts, SHORTLY_S)


def abort(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Each is aborted in several states first: at once, while it is prefetched, and while it computes."""
    engine = stage.in_process()
    for prompt in prompts:
        for steps in (0, 1, 4, 40):
            name = engine.submit(prompt, row.tokens, row.params)
            for _ in range(steps):
                engine.step()
            engine.abort(name)
            engine.run()
        name = engine.submit(prompt, row.tokens, row.params)
        while engine.tokens(name) < 2:
            engine.step()
        engine.abort(name)
        engine.run()
        stage.reset()
    return plain(stage, row, prompts)


def preempted(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """All at once with too few blocks for all."""
    engine = stage.in_process()
    asked = _submit(stage, row, prompts)
    most = 0

    def look(_: object) -> None:
        nonlocal most
        most = max([most, *(request.num_preemptions for request in engine.scheduler.requests.values())])

    engine.run(look)
    if most == 0:
        raise PlayError("no request was preempted")
    return asked


def salts(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Stored under one salt, asked under another, then under the first one again."""
    engine = stage.in_process()
    full, asked = Expect("full", ("complete",)), []
    for salt, expect in (("red", None), ("blue", row.expect), ("red", full)):
        for number, prompt in enumerate(prompts):
            name = engine.submit(prompt, row.tokens, row.params, salt=salt)
            engine.run()
            if expect is not None:
                asked.append(Asked(number, name, expect))
        stage.reset()
    return asked


def _hurt_in_the_middle(stage: Stage, row: Row, prompts: list[list[int]], hurt: Callable[[], None]) -> list[Asked]:
    asked = _submit(stage, row, prompts)
    limit = time.monotonic() + HURT_AFTER_S
    while time.monotonic() < limit:
        stage.in_process().step()
    hurt()
    stage.engine.run()
    return asked


def _store_process(stage: Stage) -> tuple[int, str]:
    """The process of the store that holds its bytes, and the command that starts it again."""
    part = "NODE_" if stage.rig.store == "mooncake" else ""
    return int(os.environ[f"FOREBAY_WITH_STORE_{part}PID"]), os.environ[f"FOREBAY_WITH_STORE_{part}COMMAND"]


def store_frozen(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """The store's process stops answering; it goes on when the tokens are there."""
    pid, _ = _store_process(stage)
    try:
        return _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGCONT)


def _await_port(port: int, limit_s: float = 20.0) -> None:
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise PlayError(f"the store was not back after {limit_s:g} s")


def store_killed(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """The store's process is killed, and started again when the tokens are there."""
    pid, command = _store_process(stage)
    try:
        return _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGKILL))
    finally:
        stage.helpers.append(subprocess.Popen(["sh", "-c", f"exec {command}"]))
        if stage.rig.store == "redis":
            options = dict(part.split("=") for part in stage.store_text.partition(":")[2].split(",") if "=" in part)
            _await_port(int(options["port"]))


def server_killed(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Forebay's server is killed."""
    server = stage.server
    if server is None:
        raise PlayError("this rig has no server")
    return _hurt_in_the_middle(stage, row, prompts, server.kill)


PLAYS: dict[str, Play] = {
    "plain": plain,
    "together": together,
    "queued": queued,
    "queued shortly": queued_shortly,
    "abort": abort,
    "preempted": preempted,
    "salts": salts,
    "store frozen": store_frozen,
    "store killed": store_killed,
    "server killed": server_killed,
}
