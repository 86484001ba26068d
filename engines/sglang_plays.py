"""How a row's prompts are asked the second time. What breaks stores and servers meanwhile is in sglang_hurt.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exact_rows import Expect
from prompts import make
from sglang_judge import restored_tokens
from sglang_rows import FULL, NONE, Row
from sglang_stage import PlayError, until

if TYPE_CHECKING:
    from sglang_stage import Stage

QUEUED_S, SHORTLY_S = 2.0, 0.5
HOG_TOKENS = 150
UNTOUCHED = {"load": False, "save": False}


@dataclass(frozen=True)
class Asked:
    """A prompt by its number, the name of its request, and what is expected of it; `alone`: nothing ran beside it."""

    number: int
    name: str
    expect: Expect
    alone: bool = True


Judge = Callable[[Asked], None]
Play = Callable[["Stage", Row, list[list[int]], Judge], None]
"""Asks, and has each answer judged before anything else is asked."""


def plain(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """One after the other."""
    for number, prompt in enumerate(prompts):
        stage.account.mark()
        name = stage.submit(row, prompt)
        answer = stage.server.wait(name)
        if row.forget == "evict" and restored_tokens(answer) == 0:
            raise PlayError("the device still had everything")
        judge(Asked(number, name, row.expect))


def cold(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """For the first time: nothing is there."""
    plain(stage, row, prompts, judge)
    for prompt in prompts:
        stage.keep(prompt)


def submit_all(stage: Stage, row: Row, prompts: Sequence[Sequence[int]]) -> list[str]:
    """All at once; their names."""
    return [stage.submit(row, prompt) for prompt in prompts]


def _complete(stage: Stage) -> Expect:
    """Everything is restored."""
    return FULL if stage.rig.surface != "hicache" else Expect("full")


def _loose(row: Row) -> Expect:
    """What one restores of a shared prefix another may find computed; every prefetch delivers."""
    return replace(row.expect, restored="any", delivered="any", chunk=None)


def together(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """All at once. Whatever is restored, everything comes from the device or from Forebay."""
    stage.account.mark()
    names = submit_all(stage, row, prompts)
    if sum(restored_tokens(stage.server.wait(name)) for name in names) == 0:
        raise PlayError("nothing was restored of prompts with a shared prefix")
    total = sum(stage.server.answer(name).cached.get("storage", 0) for name in names)
    if (
        stage.rig.surface == "hicache" and (read := stage.said(names[0]).matched) < total
    ):  # what came twice counts once in the engine
        raise PlayError(f"SGLang says {total} tokens were restored, Forebay {read}")
    for number, name in enumerate(names):
        judge(Asked(number, name, row.expect if stage.rig.surface != "hicache" else _loose(row), alone=False))


def crowded(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """All at once; some are taken back, and are computed or restored once more."""
    names = submit_all(stage, row, prompts)
    for number, name in enumerate(names):
        stage.server.wait(name)
        judge(Asked(number, name, row.expect, alone=False))
    if "#retracted_reqs" not in stage.server.log_tail(10_000):
        raise PlayError("no request was taken back")


# ---- In the queue ----------------------------------------------------------------------------------------------------


def _fill(stage: Stage) -> list[str]:
    """Takes all places of the engine for a while. The names of the requests that have them."""
    count = stage.server.engine.max_requests
    prompts = [make(stage.model, f"hog {number}", (9 + number,))[0] for number in range(count)]
    hogs = [stage.server.submit(prompt, HOG_TOKENS * 8, UNTOUCHED) for prompt in prompts]
    until(lambda: all(stage.server.answer(hog).tokens for hog in hogs), "all places of the engine are taken")
    return hogs


def _free(stage: Stage, hogs: list[str]) -> None:
    if any(stage.server.answer(hog).finish_reason for hog in hogs):
        raise PlayError("a place of the engine became free too soon")
    for hog in hogs:
        stage.server.abort(hog)
    for hog in hogs:
        stage.server.wait(hog)


def _waits(stage: Stage, count: int) -> Callable[[], bool]:
    return lambda: int(stage.server.load()["num_waiting_reqs"]) >= count


def _busy(stage: Stage, row: Row, prompts: list[list[int]], seconds: float, judge: Judge) -> None:
    """All places of the engine are taken for a while, so the prompts wait in its queue."""
    hogs = _fill(stage)
    stage.account.mark()
    names = submit_all(stage, row, prompts)
    until(_waits(stage, len(names)), "the prompts wait in the queue")
    time.sleep(seconds)
    _free(stage, hogs)
    for number, name in enumerate(names):
        stage.server.wait(name)
        judge(Asked(number, name, row.expect))


def queued(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """They wait long enough for everything to be read."""
    _busy(stage, row, prompts, QUEUED_S, judge)


def queued_shortly(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """They wait for a part of it."""
    _busy(stage, row, prompts, SHORTLY_S, judge)


# ---- Aborts ----------------------------------------------------------------------------------------------------------


def is_draining(stage: Stage) -> bool:
    """A prefetch reads; nothing else of the engine runs, so it was asked for."""
    return stage.counters.sum("forebay_graphs_inflight") > 0


def _leave(stage: Stage, row: Row, name: str) -> None:
    """The request ends early; Forebay keeps nothing of it. Errors: PlayError."""
    if row.how == "cut":
        stage.server.cut(name)
    else:
        stage.server.abort(name)
    stage.server.wait(name)
    until(lambda: sum(stage.server.load()[key] for key in ("num_running_reqs", "num_waiting_reqs")) == 0, "it is gone")
    stage.settle()


def _again(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """What was aborted has spoiled nothing."""
    stage.forget(row.forget)
    plain(stage, row, prompts, judge)


def aborted_queued(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """Aborted while it waits for a place."""
    for prompt in prompts:
        hogs = _fill(stage)
        name = stage.submit(row, prompt)
        until(_waits(stage, 1), "the prompt waits in the queue")
        (stage.server.cut if row.how == "cut" else stage.server.abort)(name)
        until(lambda: not _waits(stage, 1)(), "the queue is empty")
        _free(stage, hogs)
        stage.server.wait(name)
        stage.settle()
    _again(stage, row, prompts, judge)


def aborted_draining(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """Aborted while its prefetch reads and the scheduler skips it."""
    for prompt in prompts:
        name = stage.submit(row, prompt)
        until(lambda: is_draining(stage), "a prefetch that drains")
        if stage.server.answer(name).tokens:
            raise PlayError("it computed while its prefetch read")
        _leave(stage, row, name)
    _again(stage, row, prompts, judge)


def aborted_computing(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """Aborted after it was loaded, while it computes."""
    for prompt in prompts:
        name = stage.submit(replace(row, tokens=500), prompt)
        until(lambda one=name: len(stage.server.answer(one).tokens) >= 2, "two tokens")  # type: ignore[misc]
        _leave(stage, row, name)
    _again(stage, row, prompts, judge)


def flushed_draining(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """SGLang is told to flush while a prefetch drains: it refuses or does it, and nothing is wrong afterwards."""
    for number, prompt in enumerate(prompts):
        name = stage.submit(row, prompt)
        until(lambda: is_draining(stage), "a prefetch that drains")
        stage.server.call("POST", "/flush_cache")
        stage.server.wait(name)
        judge(Asked(number, name, replace(row.expect, restored="any", reasons=(), chunk=None)))
    _again(stage, row, prompts, judge)


def cleared(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """SGLang is told to clear its storage: nothing comes back; what is computed then is stored anew."""
    stage.server.clear_storage()
    plain(stage, row, prompts, judge)
    stage.lose()
    stage.forget(row.forget)
    plain(stage, replace(row, expect=_complete(stage)), prompts, judge)


# ---- Namespaces ------------------------------------------------------------------------------------------------------


def kept_apart(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """Stored under the first key, asked under each of the others; then again under each: what its own run stored."""
    full = _complete(stage)
    questions = [(key, NONE) for key in row.keys[1:]] + [(key, full) for key in row.keys]
    for key, expect in questions:
        for number, prompt in enumerate(prompts):
            stage.account.mark()
            name = stage.submit(row, prompt, key)
            stage.server.wait(name)
            judge(Asked(number, name, expect))
        stage.forget(row.forget)


PLAYS: dict[str, Play] = {
    "plain": plain,
    "cold": cold,
    "together": together,
    "crowded": crowded,
    "queued": queued,
    "queued shortly": queued_shortly,
    "aborted queued": aborted_queued,
    "aborted draining": aborted_draining,
    "aborted computing": aborted_computing,
    "flushed draining": flushed_draining,
    "cleared": cleared,
    "kept apart": kept_apart,
}
