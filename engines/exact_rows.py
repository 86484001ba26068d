"""The matrix of the exactness tests, as data: engines (rigs) and what is asked of each (rows).

A row: prompts are computed, CPU memory is emptied or the engine started again, and the prompts are asked once more,
under the row's policy and its disturbance. The tokens must be those of an engine without Forebay, and what was restored
must be what the row says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

TINY, REAL = "tiny", "real"
BLOCK = 32
# Around a block; around chunks of 32 and of 128 blocks; around the sliding window of the tiny hybrid model.
AROUND_BLOCKS = (31, 32, 33, 64, 65, 96, 161)
AROUND_CHUNK_32 = (1023, 1024, 1025, 1057, 2049)
AROUND_CHUNK_128 = (4095, 4096, 4097, 4129)
AROUND_WINDOW = (31, 33, 63, 64, 65, 95, 97, 127, 128, 129, 193, 400)


@dataclass(frozen=True)
class Expect:
    """What has to be restored of each prompt.

    Attributes:
        restored: "full" (every whole block before the last token), "none", "part" (some, not all), "short" (not all) or
            "any".
        reasons: the session's reason is one of these; empty: any.
        chunk: graphs are the prompt's blocks in chunks of so many, 0: one graph, None: any number.
        differ: the tokens have to be others than the right ones.
        once: the line of one prompt at least has to be so, for prompts that run together.
    """

    restored: str
    reasons: tuple[str, ...] = ()
    chunk: int | None = None
    differ: bool = False
    once: bool = False


@dataclass(frozen=True)
class Rig:
    """An engine, its store and the connector's configuration, shared by rows.

    Attributes:
        model: as engines/models.py names it.
        store: "file", "redis" or "mooncake".
        script: what goes wrong with the store (docs/stores.md), or None.
        link_mbit: Mbit/s of the loopback of the store's network namespace, for a store that takes no script.
        settings: kv_connector_extra_config, but for store and journal.
        host: "process", "server" (Forebay's server has the cache) or "api" (vLLM's API server).
        restart: the restored run has an engine process of its own.
        engine: fields of rig.Engine that differ.
        threads: whether Forebay's control thread is there; None: not looked at.
    """

    name: str
    model: str
    store: str = "file"
    script: str | None = None
    link_mbit: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    host: str = "process"
    restart: bool = False
    engine: Mapping[str, Any] = field(default_factory=dict)
    threads: bool | None = None
    sets: frozenset[str] = frozenset({TINY})


@dataclass(frozen=True)
class Row:
    """What is asked of a rig. `params`: kv_transfer_params; `shared`: tokens that its prompts have in common."""

    rig: str
    name: str
    lengths: tuple[int, ...]
    expect: Expect
    params: Mapping[str, Any] = field(default_factory=dict)
    play: str = "plain"
    shared: int = 0
    tokens: int = 24


FULL = Expect("full", ("complete",))
NONE = Expect("none")
# A store that is slow to read, chunk by chunk, and one that is slow to say what it has.
SLOW_READS, SLOW_QUERIES = "get:*:delay(200)", "exists:*:delay(400)"
LIMITS = {
    "prefetch.query_timeout_s": 2,
    "prefetch.io_timeout_s": 4,
    "prefetch.no_progress_timeout_s": 2,
    "prefetch.drain_limit_s": 6,
    "store.breaker_backoff_s": 0.1,
    "store.breaker_backoff_max_s": 0.5,
    "store.negative_ttl_s": 0.2,
}


def chunked(chunk: int, policy: str = "timeout", budget_s: float = 60.0, **more: Any) -> dict[str, Any]:
    """Settings of an engine with chunks of `chunk` blocks and a budget that is long unless given."""
    return {"policy": policy, "chunk_max_blocks": chunk, "timeout_budget_s": budget_s, **more}


LONG = {"max_model_len": 4608, "max_sequences": 4}


def _llama_rigs() -> Iterator[Rig]:
    yield Rig("whole", "tiny-llama", settings={"policy": "wait_complete"}, engine=LONG, threads=False)
    yield Rig("sync", "tiny-llama", settings={"policy": "wait_complete", "sync_load": True})
    yield Rig("chunk 32", "tiny-llama", settings=chunked(32), engine=LONG, threads=True)
    yield Rig("chunk 128", "tiny-llama", settings=chunked(128), engine=LONG)
    yield Rig("slow reads", "tiny-llama", script=SLOW_READS, settings=chunked(8), engine=LONG)
    yield Rig("slow queries", "tiny-llama", script=SLOW_QUERIES, settings=chunked(8, "best_effort"))
    yield Rig("restart", "tiny-llama", settings=chunked(32), restart=True)
    yield Rig("few blocks", "tiny-llama", settings=chunked(8), engine={"blocks": 26, "max_model_len": 640})
    yield Rig("verified", "tiny-llama", script="get:*:corrupt(30)", settings=chunked(8, config=LIMITS))
    unverified = {**LIMITS, "store.verify": "off"}
    yield Rig("not verified", "tiny-llama", script="get:*:corrupt(30)", settings=chunked(8, config=unverified))
    yield Rig("two ranks", "tiny-llama", settings=chunked(8), engine={"tensor_parallel": 2})
    yield Rig("server", "tiny-llama", script="get:*:delay(100)", settings=chunked(8, config=LIMITS), host="server")
    yield Rig("api", "tiny-llama", settings=chunked(8), host="api")


def _hybrid_rigs() -> Iterator[Rig]:
    yield Rig("hybrid", "tiny-gemma3", settings={"policy": "wait_complete"}, threads=False)
    yield Rig("hybrid, slow", "tiny-gemma3", script=SLOW_READS, settings=chunked(4), engine={"max_batched_tokens": 128})
    yield Rig("no hybrid manager", "tiny-gemma3", settings=chunked(32), engine={"hybrid": False})


def _slowed(store: str, script: str, link_mbit: int) -> dict[str, Any]:
    """What makes a store slow: a script in front of it, or where it runs in a process of its own, its link."""
    return {"link_mbit": link_mbit} if store == "mooncake" else {"script": script}


def _store_rigs() -> Iterator[Rig]:
    for store in ("redis", "mooncake"):
        yield Rig(store, "tiny-llama", store=store, settings=chunked(32), engine=LONG)
        slowed, settings = _slowed(store, "get:*:delay(100)", 16), chunked(4, config=LIMITS)
        yield Rig(f"{store}, hurt", "tiny-llama", store=store, settings=settings, **slowed)


def _llama_rows() -> Iterator[Row]:
    whole = Expect("full", ("complete",), chunk=0)
    yield Row("whole", "wait_complete", (*AROUND_BLOCKS, *AROUND_CHUNK_32, *AROUND_CHUNK_128), whole)
    yield Row("whole", "together, shared prefixes", (700, 800, 900, 800), FULL, play="together", shared=500)
    yield Row("whole", "salts", (400,), NONE, play="salts")
    yield Row("sync", "wait_complete", AROUND_BLOCKS, whole)
    yield Row("chunk 32", "long timeout", (*AROUND_CHUNK_32, 4129), Expect("full", ("complete",), chunk=32))
    yield Row("chunk 32", "queued best_effort", (1057,), FULL, {"policy": "best_effort"}, play="queued")
    yield Row("chunk 32", "min_tokens", (200,), Expect("none", ("below_threshold",)), {"min_tokens": 4000})
    yield Row("chunk 128", "long timeout", AROUND_CHUNK_128, Expect("full", ("complete",), chunk=128))
    for mode in ("drain", "recall", "detach"):
        short = {"timeout_budget_s": 0.6, "stop_mode": mode}
        yield Row("slow reads", f"short deadline, {mode}", (4129,), Expect("part", ("deadline",)), short)
        effort = {"policy": "best_effort", "stop_mode": mode}
        yield Row("slow queries", f"best_effort at once, {mode}", (900,), Expect("none", ("demand",)), effort)
    yield Row(
        "slow reads",
        "best_effort after a while",
        (4129,),
        Expect("part", ("demand",)),
        {"policy": "best_effort"},
        play="queued shortly",
    )
    yield Row("slow reads", "abort in the middle", (1500,), FULL, play="abort")
    yield Row("restart", "restarted", (33, 64, 65, 900), FULL)
    yield Row("few blocks", "preemption", (300, 320, 340), Expect("any"), play="preempted", tokens=100)
    yield Row("verified", "one bit flipped", (200, 900), Expect("none", ("partial_read",)))
    yield Row("not verified", "one bit flipped", (200, 900), replace(FULL, differ=True))
    yield Row("two ranks", "long timeout", (33, 64, 65, 257, 900), Expect("full", ("complete",), chunk=8))
    yield Row("two ranks", "together, shared prefixes", (500, 600), FULL, play="together", shared=300)
    yield Row("server", "long timeout", (33, 64, 900), FULL)
    yield Row("server", "server killed", (900,), Expect("short"), play="server killed")
    yield Row("api", "restarted", (33, 64, 900), Expect("full", ("complete",), chunk=8))


def _hybrid_rows() -> Iterator[Row]:
    yield Row("hybrid", "wait_complete", AROUND_WINDOW, Expect("full", ("complete",), chunk=0))
    yield Row("hybrid", "together, shared prefixes", (300, 400, 500), FULL, play="together", shared=256)
    short = {"timeout_budget_s": 0.6}
    yield Row("hybrid, slow", "short deadline", (900,), Expect("part", ("deadline",)), short)
    yield Row("no hybrid manager", "long timeout", AROUND_WINDOW, FULL)


def _store_rows() -> Iterator[Row]:
    for store in ("redis", "mooncake"):
        yield Row(store, "long timeout", (33, 64, 1057), Expect("full", ("complete",), chunk=32))
        hurt = f"{store}, hurt"
        yield Row(hurt, "store frozen", (900,), Expect("short"), play="store frozen")
        yield Row(hurt, "store killed", (900,), Expect("short"), play="store killed")


def _real_rigs() -> Iterator[Rig]:
    real, cores = frozenset({REAL}), {"threads": None}  # as users run it
    for model in ("gemma3-270m", "smollm2"):
        engine = {**cores, "max_model_len": 2304, "kv_bytes": 1 << 30}
        for store in ("file", "redis", "mooncake"):
            name = f"{model}, {store}"
            common: dict[str, Any] = {"store": store, "sets": real, "engine": engine}
            yield Rig(f"{name}, whole", model, settings={"policy": "wait_complete"}, threads=False, **common)
            yield Rig(f"{name}, chunk 8", model, settings=chunked(8), **common)
            # of a sliding-window model far fewer bytes are read
            slowed = _slowed(store, SLOW_READS, 64 if model == "gemma3-270m" else 160)
            yield Rig(f"{name}, slow", model, settings=chunked(4), **{**common, **slowed})
        yield Rig(f"{model}, restart", model, settings=chunked(32), restart=True, engine=engine, sets=real)
    two = {**cores, "tensor_parallel": 2, "max_model_len": 2304, "kv_bytes": 1 << 29}
    # not smollm2, whose nine heads two ranks cannot share
    yield Rig("gemma3-270m, two ranks", "gemma3-270m", settings=chunked(8), engine=two, sets=real)


def _real_rows(rigs: list[Rig]) -> Iterator[Row]:
    for rig in rigs:
        lengths = (33, 511, 513, 1023, 1025, 2049) if rig.store == "file" else (65, 513, 1025)
        if rig.name.endswith("whole"):
            yield Row(rig.name, "wait_complete", lengths, Expect("full", ("complete",), chunk=0))
            yield Row(rig.name, "together, shared prefixes", (700, 800), FULL, play="together", shared=600)
        elif rig.name.endswith("slow"):
            for mode in ("drain", "recall", "detach"):
                short = {"timeout_budget_s": 0.6, "stop_mode": mode}
                yield Row(rig.name, f"short deadline, {mode}", (1025,), Expect("short", ("deadline",)), short)
        elif rig.name.endswith("chunk 8"):
            yield Row(rig.name, "long timeout", lengths, Expect("full", ("complete",), chunk=8))
            yield Row(rig.name, "queued best_effort", (1025,), FULL, {"policy": "best_effort"}, play="queued")
        else:
            yield Row(rig.name, "long timeout", (33, 513, 1025), FULL)


def rigs(which: str) -> list[Rig]:
    """The engines of a set: "tiny" or "real"."""
    every = [*_llama_rigs(), *_hybrid_rigs(), *_store_rigs(), *_real_rigs()]
    return [rig for rig in every if which in rig.sets]


def rows(which: str) -> list[Row]:
    """What is asked of them."""
    every = [*_llama_rows(), *_hybrid_rows(), *_store_rows(), *_real_rows(list(_real_rigs()))]
    names = {rig.name for rig in rigs(which)}
    return [row for row in every if row.rig in names]
