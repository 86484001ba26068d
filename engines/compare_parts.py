"""The parts of the comparison: each does the same work on any server and says what it saw."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prompts
from compare_faults import Fault
from compare_samples import Aborts, Hang, Queue, Slow
from compare_server import Watched
from sglang_server import Answer

ABORT_BATCH = 25
ABORT_WARM_UP = 100
QUEUED_LIMIT_S = 5.0
HEALTH_LIMIT_S = 25.0
STORE_TRIES = 5
TIERS = ("device", "host", "storage")
COLD_TOKENS = 64
OTHER_TOKENS = 8  # less than a page: nothing to look for in a store


@dataclass(frozen=True)
class Work:
    """What every server is asked to do.

    Attributes:
        families: prefixes that the store gets, of `prefix` tokens each.
        tail: tokens of each request behind its prefix, its own.
        each: requests of a family in a round under a queue.
        gap_s: between two requests of such a round.
        slow: requests of a round with a slow store, each of another family. The engine is busy with
            `ahead` prompts of less than a page then, which nobody stores and nobody looks for.
        answer: tokens that are made.
        page: tokens of a page; whole pages before the last token can be restored.
        hang_s: how long a hung store is waited for.
        aborts: requests to abort.
    """

    model: Path
    seed: int
    families: int
    prefix: int
    tail: int
    each: int
    gap_s: float
    slow: int
    ahead: int
    answer: int
    page: int
    hang_s: float
    aborts: int

    def prefixes(self) -> list[list[int]]:
        """The families' prefixes."""
        return [
            prompts.make(self.model, f"compare/{self.seed}/{number}", [self.prefix])[0]
            for number in range(self.families)
        ]

    def tails(self, name: str, count: int) -> list[list[int]]:
        """Tails that no other name has."""
        return [
            prompts.make(self.model, f"compare/{self.seed}/{name}/{number}", [self.tail])[0] for number in range(count)
        ]

    def queued(self, repetition: int) -> list[list[int]]:
        """The prompts of a round under a queue, in an order drawn for the repetition: the same for every server."""
        order = [number for number in range(self.families) for _ in range(self.each)]
        random.Random(f"{self.seed}/{repetition}").shuffle(order)
        prefixes, tails = self.prefixes(), self.tails(f"queue/{repetition}", len(order))
        return [prefixes[family] + tail for family, tail in zip(order, tails, strict=True)]

    def one_each(self, name: str, count: int) -> list[list[int]]:
        """`count` prompts, of one family after the other."""
        prefixes = self.prefixes()
        return [prefixes[number % len(prefixes)] + tail for number, tail in enumerate(self.tails(name, count))]


def _restored(answers: Sequence[Answer], work: Work) -> int:
    """Tokens of prefixes that were not computed.

    The caches were emptied before, so the store is where they came from, whether a request got them itself or found
    them where another had put them.
    """
    return sum(min(sum(answer.cached.get(tier, 0) for tier in TIERS), work.prefix) for answer in answers)


def _cold(work: Work, name: str, tokens: int) -> list[int]:
    """A prompt that nothing has."""
    return prompts.make(work.model, f"compare/{work.seed}/{name}", [tokens])[0]


def _compute_ahead(watched: Watched, work: Work, name: str) -> Future[Any]:
    """The engine has something to compute, more than a pass takes: requests that come now wait behind it."""
    return watched.compute([_cold(work, f"{name}/ahead/{number}", work.page - 1) for number in range(work.ahead)])


def warm(watched: Watched, work: Work, name: str) -> None:
    """First requests of a server take longer than others."""
    watched.ask(work.one_each(f"warm/{name}", 2), 1)
    watched.settle()


def fill(watched: Watched, work: Work) -> bool:
    """Warms the server up and has it store every prefix; whether all of them can be had from the store.

    Prefixes that are in the store already, from an earlier server, are read from there.
    """
    for prefix, tail in zip(work.prefixes(), work.tails("fill", work.families), strict=True):
        watched.ask([prefix + tail], 1)
    watched.settle()
    for attempt in range(STORE_TRIES):
        watched.forget()
        answers = watched.ask(work.one_each(f"check/{attempt}", work.families), 1)
        watched.settle()
        if _restored([answer for _, answer in answers], work) == work.families * work.prefix:
            return True
        time.sleep(0.5)
    return False


def queue(watched: Watched, work: Work, repetition: int) -> tuple[Queue, list[list[int]]]:
    """A round under a queue, and the tokens of its answers."""
    watched.forget()
    asked = watched.ask(work.queued(repetition), work.answer, work.gap_s)
    answers = [answer for _, answer in asked]
    ttft = [answer.ttft_s for answer in answers if answer.ttft_s is not None]
    watched.settle()
    return Queue(ttft, _restored(answers, work), len(answers) * work.prefix), [answer.tokens for answer in answers]


def slow(watched: Watched, work: Work, fault: Fault, bytes_per_s: int, name: str) -> Slow:
    """A round with a slow store: requests that are sent at once, behind one that the engine is computing."""
    watched.forget()
    watched.take()
    fault.slow(bytes_per_s)
    try:
        ahead = _compute_ahead(watched, work, name)
        asked = watched.ask(work.one_each(name, work.slow), work.answer)
        ahead.result()
    finally:
        fault.heal()
    watched.settle()
    seen = watched.take()
    rows = [seen[rid] for rid, _ in asked]
    answers = [answer for _, answer in asked]
    return Slow(
        waits_s=[row.wait_s for row in rows if row.wait_s is not None],
        ttft_s=[answer.ttft_s for answer in answers if answer.ttft_s is not None],
        restored=_restored(answers, work),
        possible=work.slow * work.prefix,
        checks=sum(row.checks for row in rows),
        check_s=sum(row.check_s for row in rows),
    )


def hang(watched: Watched, work: Work, fault: Fault, name: str) -> Hang:
    """The store stops answering, and answers again once it was looked at. `name`: none has been used before on it."""
    watched.forget()
    stored, cold = work.one_each(f"{name}/stored", 1)[0], _cold(work, f"{name}/cold", COLD_TOKENS)
    fault.hang()
    try:
        begun = time.monotonic()
        held, asked = watched.server.submit(stored, 1), watched.server.submit(cold, 1)
        other = watched.server.submit(_cold(work, f"{name}/other", OTHER_TOKENS), 1)
        other_s = watched.first_token(other, work.hang_s)
        with ThreadPoolExecutor(1) as health:
            healthy = health.submit(watched.is_healthy, HEALTH_LIMIT_S)
            held_s = watched.first_token(held, max(begun + work.hang_s - time.monotonic(), 0.1))
            cold_s = watched.first_token(asked, max(begun + work.hang_s - time.monotonic(), 0.1))
            is_healthy = healthy.result()
    finally:
        fault.heal()
    for name in (held, asked, other):
        watched.server.abort(name)
        watched.server.wait(name)
    return Hang(held_s, work.hang_s, other_s, cold_s, is_healthy, *_again(watched, work, f"{name}/again"))


def _again(watched: Watched, work: Work, name: str) -> tuple[int, int]:
    """Tokens restored, of how many, once the store answers."""
    watched.settle()
    with contextlib.suppress(RuntimeError):
        watched.forget()
    ahead = _compute_ahead(watched, work, name)
    ((_, answer),) = watched.ask(work.one_each(name, 1), 1)
    ahead.result()
    return _restored([answer], work), work.prefix


def _abort_some(watched: Watched, work: Work, fault: Fault, name: str, count: int) -> None:
    """Sends `count` requests whose reads hang, and aborts each once all of them are in the queue.

    The store answers again afterwards, and the caches are emptied: nothing that a read has brought helps the next ones.
    """
    before = watched.state()["queued"]
    fault.hang()
    try:
        names = [watched.server.submit(prompt, 1) for prompt in work.one_each(name, count)]
        watched.until(lambda: watched.state()["queued"] >= before + count, QUEUED_LIMIT_S)
        for one in names:
            watched.server.abort(one)
    finally:
        fault.heal()
    for one in names:
        watched.server.wait(one)
    watched.forget()


def aborts(watched: Watched, work: Work, fault: Fault) -> Aborts:
    """Requests that are aborted while their prefixes are read, or wait for that."""
    for number in range(ABORT_WARM_UP // ABORT_BATCH):
        _abort_some(watched, work, fault, f"warm/{number}", ABORT_BATCH)
    watched.settle()
    before = watched.held()
    watched.take()
    for number in range(work.aborts // ABORT_BATCH):
        _abort_some(watched, work, fault, f"abort/{number}", ABORT_BATCH)
    watched.settle()
    watched.forget()
    seen = watched.take().values()
    unscheduled = sum(1 for row in seen if row.aborted is not None and row.scheduled is None)
    return Aborts(work.aborts, unscheduled, before, watched.held())
