"""The matrix on real models with real text, for releases: every item of the tiny set that a real model can show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from exact_rows import (
    FULL,
    LIMITS,
    LOST,
    NONE,
    RECOMPUTED,
    SALTS,
    SLOW_QUERIES,
    SLOW_READS,
    SPOILED,
    UNVERIFIED,
    Expect,
    Rig,
    Row,
    chunked,
    slowed,
)

GEMMA, SMOLLM = "gemma3-270m", "smollm2"
ENGINE: dict[str, Any] = {"threads": None, "max_model_len": 2304, "kv_bytes": 1 << 30}  # threads as users run it
LONG = {**ENGINE, "max_model_len": 4608, "max_sequences": 4}
FEW = {GEMMA: 160, SMOLLM: 26}  # blocks for three requests of which two fit; Gemma's come in six groups
EIGHTS = Expect("full", ("complete",), chunk=8)


def _store_rigs(model: str) -> Iterator[Rig]:
    for store in ("file", "redis", "mooncake"):
        name = f"{model}, {store}"
        common: dict[str, Any] = {"store": store, "engine": ENGINE}
        yield Rig(f"{name}, whole", model, settings={"policy": "wait_complete"}, threads=False, **common)
        yield Rig(f"{name}, chunk 8", model, settings=chunked(8), **common)
        yield Rig(f"{name}, not verified", model, settings=chunked(8, config=UNVERIFIED), **common)
        # of a sliding-window model far fewer bytes are read
        slow = slowed(store, SLOW_READS, 64 if model == GEMMA else 160)
        yield Rig(f"{name}, slow", model, settings=chunked(4, config=LIMITS), **common, **slow)


def rigs() -> Iterator[Rig]:
    """The engines. `smollm2` has nine heads, which two ranks cannot share."""
    for model in (GEMMA, SMOLLM):
        yield from _store_rigs(model)
        yield Rig(f"{model}, slow queries", model, script=SLOW_QUERIES, settings=chunked(8), engine=ENGINE)
        yield Rig(f"{model}, restart", model, settings=chunked(32), restart=True, engine=ENGINE)
        yield Rig(f"{model}, long", model, settings=chunked(128), engine=LONG)
        few = {**ENGINE, "blocks": FEW[model], "max_model_len": 480}
        yield Rig(f"{model}, few blocks", model, settings=chunked(8), engine=few)
        settings = chunked(4, config=LIMITS)
        yield Rig(f"{model}, server", model, script=SLOW_READS, settings=settings, host="server", engine=ENGINE)
        yield Rig(f"{model}, api", model, settings=chunked(8), host="api", engine=ENGINE)
    yield Rig(f"{GEMMA}, no hybrid manager", GEMMA, settings=chunked(32), engine={**ENGINE, "hybrid": False})
    two = {**ENGINE, "tensor_parallel": 2, "kv_bytes": 1 << 29}
    yield Rig(f"{GEMMA}, two ranks", GEMMA, settings=chunked(8), engine=two)


def _whole_rows(rig: Rig, lengths: tuple[int, ...]) -> Iterator[Row]:
    yield Row(rig.name, "wait_complete", lengths, Expect("full", ("complete",), chunk=0))
    yield Row(rig.name, "together, shared prefixes", (700, 800), FULL, play="together", shared=600)
    if rig.store == "file":
        yield Row(rig.name, "salts", (300,), NONE, play="kept apart", kinds=SALTS)


def _chunked_rows(rig: Rig, lengths: tuple[int, ...]) -> Iterator[Row]:
    yield Row(rig.name, "long timeout", lengths, EIGHTS)
    yield Row(rig.name, "queued best_effort", (1025,), EIGHTS, {"policy": "best_effort"}, play="queued")
    # A model with windows resumes at a checkpoint before the block.
    broken = Expect("short", ("partial_read",)) if rig.model == GEMMA else RECOMPUTED
    yield Row(rig.name, "one object corrupted", (513,), broken, play="corrupted")


def _slow_rows(rig: Rig) -> Iterator[Row]:
    """Of eight graphs."""
    for mode in ("drain", "recall", "detach"):
        short = {"timeout_budget_s": 0.6, "stop_mode": mode}
        yield Row(rig.name, f"short deadline, {mode}", (1025,), Expect("short", ("deadline",), graphs=(1, 8)), short)
    if rig.store == "file":
        yield Row(rig.name, "abort in the middle", (1025,), Expect("full", ("complete",), chunk=4), play="abort")
        return
    broken = Expect("short", ("io_timeout", "store_error"), graphs=(1, 8))
    yield Row(rig.name, "store frozen", (1025,), broken, play="store frozen")
    yield Row(rig.name, "store killed", (1025,), broken, play="store killed")


def _other_rows(rig: Rig) -> Iterator[Row]:
    kind = rig.name.removeprefix(f"{rig.model}, ")
    if kind == "slow queries":
        for mode in ("drain", "recall", "detach"):
            effort = {"policy": "best_effort", "stop_mode": mode}
            at_once = Expect("none", ("demand",), graphs=(0, 0))
            yield Row(rig.name, f"best_effort at once, {mode}", (513,), at_once, effort)
    elif kind == "long":
        # The budget of a session cuts chunks of so many bytes smaller (docs/budgets.md).
        yield Row(rig.name, "chunk 128", (4097, 4129), replace(FULL, graphs=(1, 3)))
    elif kind == "few blocks":
        everything = Expect("any", ("complete",), delivered="full")
        yield Row(rig.name, "preemption", (300, 320, 340), everything, play="preempted", tokens=100)
    elif kind == "server":
        yield Row(rig.name, "long timeout", (33, 513, 1025), Expect("full", ("complete",), chunk=4))
        yield Row(rig.name, "server killed", (1025,), LOST, play="server killed")
    elif kind == "api":
        yield Row(rig.name, "long timeout", (33, 513, 1025), EIGHTS)
        yield Row(rig.name, "salts", (300,), NONE, play="kept apart", kinds=SALTS)
    elif kind == "two ranks":
        yield Row(rig.name, "long timeout", (33, 513, 1025), EIGHTS)
        yield Row(rig.name, "together, shared prefixes", (700, 800), FULL, play="together", shared=600)
    else:
        yield Row(rig.name, "long timeout", (33, 513, 1025, 2049), replace(EIGHTS, chunk=32))


def rows() -> Iterator[Row]:
    """What is asked of them."""
    for rig in rigs():
        lengths = (33, 511, 513, 1023, 1025, 2049) if rig.store == "file" else (65, 513, 1025)
        if rig.name.endswith("whole"):
            yield from _whole_rows(rig, lengths)
        elif rig.name.endswith("not verified"):
            yield Row(rig.name, "one object corrupted", (513,), SPOILED, play="corrupted")
        elif rig.name.endswith("slow"):
            yield from _slow_rows(rig)
        elif rig.name.endswith("chunk 8"):
            yield from _chunked_rows(rig, lengths)
        else:
            yield from _other_rows(rig)
