"""How a row's prompts are asked the second time. What breaks stores and servers meanwhile is in exact_hurt.py."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from exact_rows import FULL, Expect, Row

if TYPE_CHECKING:
    from exact_stage import Stage

QUEUED_S, SHORTLY_S, LIMIT_S = 2.0, 0.5, 20.0
GAUGES = ("sessions_running_gauge", "leases_gauge", "holds_gauge", "puts_gauge")


class PlayError(Exception):
    """The disturbance did not happen as it should."""


@dataclass(frozen=True)
class Asked:
    """A prompt by its number, the name of its request, what is expected of it, and what it was asked with."""

    number: int
    name: str
    expect: Expect
    kind: str = ""


Play = Callable[["Stage", Row, list[list[int]]], list[Asked]]


def plain(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """One after the other."""
    asked = []
    for number, prompt in enumerate(prompts):
        asked.append(Asked(number, stage.engine.submit(prompt, row.tokens, row.params), row.expect))
        stage.engine.run()
    return asked


def submit_all(stage: Stage, row: Row, prompts: Sequence[Sequence[int]], expect: Expect | None = None) -> list[Asked]:
    """All at once; what is expected is the row's unless given."""
    return [
        Asked(number, stage.engine.submit(prompt, row.tokens, row.params), expect or row.expect)
        for number, prompt in enumerate(prompts)
    ]


def step_until(stage: Stage, holds: Callable[[], bool], what: str) -> None:
    """Steps the engine until something holds. Errors: PlayError."""
    limit = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > limit:
            raise PlayError(f"it never came to this: {what}")
        stage.in_process().step()


def side_of(stage: Stage) -> Any:
    """The scheduler's side of the connector."""
    return stage.in_process().connector._scheduler


def entry_of(stage: Stage, name: str) -> Any:
    """What the connector keeps for a request; None behind its end."""
    return side_of(stage)._entries.get(stage.in_process().inner_name(name))


def is_draining(stage: Stage, name: str) -> bool:
    """The scheduler has asked for it, reads are under way and the answer is not there."""
    entry = entry_of(stage, name)
    if entry is None or entry.session is None or entry.seen is None:
        return False
    return entry.seen.submitted > 0 and not entry.session.poll().answered


def together(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """All at once. Every prefetch delivers; what one restores of a shared prefix another may find computed."""
    asked = submit_all(stage, row, prompts)
    stage.engine.run()
    loose = replace(row.expect, restored="any", delivered=row.expect.restored, chunk=None)
    total = sum(stage.journal.of(stage.engine.inner_name(one.name)).matched for one in asked)
    if total == 0:
        raise PlayError("nothing was restored of prompts with a shared prefix")
    return [replace(one, expect=loose) for one in asked]


def _fill(stage: Stage) -> list[str]:
    """Takes all places of the engine for a while. The names of the requests that have them."""
    engine = stage.in_process()
    long = engine.engine.max_model_len - 32
    hogs = [
        engine.submit(range(5, 13 + place), long, {"load": False, "save": False})
        for place in range(engine.engine.max_sequences)
    ]
    while any(engine.tokens(hog) == 0 for hog in hogs):
        engine.step()
    return hogs


def _step_in_queue(stage: Stage, hogs: list[str], seconds: float) -> None:
    engine, limit = stage.in_process(), time.monotonic() + seconds
    while time.monotonic() < limit:
        engine.step()
        if any(engine.answer(hog).finish_reason for hog in hogs):
            raise PlayError("a place of the engine became free too soon")


def _busy(stage: Stage, row: Row, prompts: list[list[int]], seconds: float) -> list[Asked]:
    """All places of the engine are taken for a while, so the prompts wait in its queue."""
    hogs = _fill(stage)
    asked = submit_all(stage, row, prompts)
    _step_in_queue(stage, hogs, seconds)
    for hog in hogs:
        stage.in_process().abort(hog)
    stage.engine.run()
    return asked


def queued(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """They wait long enough for everything to be read."""
    return _busy(stage, row, prompts, QUEUED_S)


def queued_shortly(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """They wait for a part of it."""
    return _busy(stage, row, prompts, SHORTLY_S)


def _nothing_stays(stage: Stage, state: str) -> None:
    """What was aborted holds nothing; reads that had begun may end first."""
    cache, limit = side_of(stage).cache, time.monotonic() + LIMIT_S
    while any((stats := cache.stats())[name] for name in GAUGES):
        if time.monotonic() > limit:
            held = {name: stats[name] for name in GAUGES if stats[name]}
            raise PlayError(f"after an abort while {state} this stays: {held}")
        time.sleep(0.01)
    cache.check()


def _abort_in_queue(stage: Stage, row: Row, prompt: list[int]) -> None:
    engine, hogs = stage.in_process(), _fill(stage)
    name = engine.submit(prompt, row.tokens, row.params)
    _step_in_queue(stage, hogs, 0.1)
    if entry_of(stage, name).demanded:
        raise PlayError("a request in the queue was asked for")
    for one in (name, *hogs):
        engine.abort(one)
    engine.run()


def abort(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Each is aborted first in the queue, while it drains, loads and computes; nothing of it stays behind."""
    engine = stage.in_process()

    def is_loading(name: str) -> bool:
        waits = engine.scheduler.requests[engine.inner_name(name)].status.name == "WAITING_FOR_REMOTE_KVS"
        return bool(waits and entry_of(stage, name).matched > 0)

    states: dict[str, Callable[[str], bool]] = {
        "draining": lambda name: is_draining(stage, name),
        "loading": is_loading,
        "computing": lambda name: engine.tokens(name) >= 2,
    }
    for prompt in prompts:
        _abort_in_queue(stage, row, prompt)
        _nothing_stays(stage, "queued")
        stage.reset()
        for state, is_reached in states.items():
            name = engine.submit(prompt, row.tokens, row.params)
            step_until(stage, lambda holds=is_reached, one=name: holds(one), state)  # type: ignore[misc]
            engine.abort(name)
            engine.run()
            _nothing_stays(stage, state)
            stage.reset()
    return plain(stage, row, prompts)


def preempted(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """All at once with too few blocks for all."""
    engine = stage.in_process()
    asked = submit_all(stage, row, prompts)
    most = 0

    def look(_: object) -> None:
        nonlocal most
        most = max([most, *(request.num_preemptions for request in engine.scheduler.requests.values())])

    engine.run(look)
    if most == 0:
        raise PlayError("no request was preempted")
    return asked


def kept_apart(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Stored under the first kind, asked under each of the others; then again under each: what its own run stored."""
    engine, asked = stage.engine, []
    questions = [*itertools.product(row.kinds[1:], [row.expect]), *itertools.product(row.kinds, [FULL])]
    for kind, expect in questions:
        for number, prompt in enumerate(prompts):
            name = engine.submit(prompt, row.tokens, row.params, kind=kind)
            engine.run()
            asked.append(Asked(number, name, expect, kind))
        stage.reset()
    return asked


def _recorded(stage: Stage) -> list[Any]:
    """The list that gets every event of blocks from now on, in place of whom the engine would tell."""
    events: list[Any] = []
    stage.in_process().scheduler.kv_event_publisher.publish = lambda batch: events.extend(batch.events)
    return events


def _hashes(events: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Hashes of blocks that were stored and removed on the host, and those that the device had."""
    stored: list[Any] = []
    removed: list[Any] = []
    known: list[Any] = []
    lists = {("BlockStored", True): stored, ("BlockRemoved", True): removed, ("BlockStored", False): known}
    for event in events:
        place = (type(event).__name__, getattr(event, "medium", None) == "CPU")
        lists.get(place, []).extend(getattr(event, "block_hashes", ()))
    return stored, removed, known


def announced(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Blocks that become resident are announced by the engine's own hashes, and so are those that leave."""

    def let_tell() -> None:
        """Events are told in steps, and an idle engine makes none."""
        stage.engine.submit(prompts[0][:8], 1, {"load": False})
        stage.engine.run()

    let_tell()
    events = _recorded(stage)
    asked = plain(stage, row, prompts)
    stage.reset()
    let_tell()
    stored, removed, known = _hashes(events)
    least = sum(len(prompt) // stage.in_process().engine.block_tokens for prompt in prompts)
    if len(stored) < least or len(set(stored)) < len(stored) or not set(stored) <= set(known):
        raise PlayError(f"{len(stored)} blocks were announced, at least {least} had to be, each once")
    if sorted(stored) != sorted(removed):
        raise PlayError(f"of {len(stored)} blocks that were announced {len(removed)} were said to have left")
    return asked


PLAYS: dict[str, Play] = {
    "plain": plain,
    "together": together,
    "queued": queued,
    "queued shortly": queued_shortly,
    "abort": abort,
    "preempted": preempted,
    "kept apart": kept_apart,
    "announced": announced,
}
