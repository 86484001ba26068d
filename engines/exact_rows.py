"""The matrix of the exactness tests on tiny models, as data: engines (rigs) and what is asked of each (rows).

A row: prompts are computed, CPU memory is emptied or the engine started again, and the prompts are asked once more,
under the row's policy and its disturbance. The tokens must be those of an engine without Forebay, and what was restored
must be what the row says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
        restored: tokens that the engine is given: "full" (every whole block before the last token), "none", "part"
            (some, not all), "short" (not all), "any", or their number.
        reasons: the session's reason is one of these; empty: any.
        chunk: graphs are the prompt's blocks in chunks of so many, 0: one graph, None: any number.
        graphs: the least and the most graphs; None: any number.
        delivered: tokens that the session delivers, in the words of `restored`.
        differ: the tokens have to be others than the right ones.
        beyond: what was read behind the answer may count on one side only, the engine's or Forebay's.
    """

    restored: str | int
    reasons: tuple[str, ...] = ()
    chunk: int | None = None
    graphs: tuple[int, int] | None = None
    delivered: str | int = "any"
    differ: bool = False
    beyond: bool = False


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


@dataclass(frozen=True)
class Row:
    """What is asked of a rig.

    Attributes:
        params: kv_transfer_params.
        shared: tokens that its prompts have in common.
        tokens: asked for.
        kinds: what each prompt is asked with, for the play "kept apart": "salt:NAME", "adapter:NAME", "sound:NUMBER",
            or "" for the prompt alone.
    """

    rig: str
    name: str
    lengths: tuple[int, ...]
    expect: Expect
    params: Mapping[str, Any] = field(default_factory=dict)
    play: str = "plain"
    shared: int = 0
    tokens: int = 24
    kinds: tuple[str, ...] = ("",)


CORRUPTED_BLOCK = 10
FULL = Expect("full", ("complete",))
NONE = Expect("none")
BROKEN = Expect("short", ("io_timeout", "store_error"), graphs=(1, 6))  # of seven
LOST = Expect("none", ("server_lost",), graphs=(1, 99))
# One changed object: what lies before its block is restored, the rest computed.
RECOMPUTED = Expect(CORRUPTED_BLOCK * BLOCK, ("partial_read",), delivered=CORRUPTED_BLOCK * BLOCK)
SPOILED = replace(FULL, differ=True)  # the same without verification
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
TWO = {"tensor_parallel": 2}
UNVERIFIED = {**LIMITS, "store.verify": "off"}
SALTS, SOUNDS = ("salt:red", "salt:blue"), ("sound:1", "sound:2")
ADAPTERS = ("adapter:one", "adapter:two", "")


def _llama_rigs() -> Iterator[Rig]:
    yield Rig("whole", "tiny-llama", settings={"policy": "wait_complete"}, engine=LONG, threads=False)
    yield Rig("sync", "tiny-llama", settings={"policy": "wait_complete", "sync_load": True})
    yield Rig("chunk 32", "tiny-llama", settings=chunked(32), engine={**LONG, "events": True}, threads=True)
    yield Rig("chunk 128", "tiny-llama", settings=chunked(128), engine=LONG)
    yield Rig("slow reads", "tiny-llama", script=SLOW_READS, settings=chunked(8), engine=LONG)
    yield Rig("slow queries", "tiny-llama", script=SLOW_QUERIES, settings=chunked(8, "best_effort"))
    yield Rig("restart", "tiny-llama", settings=chunked(32), restart=True)
    yield Rig("few blocks", "tiny-llama", settings=chunked(8), engine={"blocks": 26, "max_model_len": 640})
    yield Rig("not verified", "tiny-llama", settings=chunked(8, config=UNVERIFIED))
    yield Rig("two ranks", "tiny-llama", settings=chunked(8), engine=TWO)
    yield Rig("adapters", "tiny-llama", settings=chunked(8), engine={"adapters": True})
    yield Rig("sounds", "tiny-sound", settings=chunked(8), engine={"hears": True})
    slow: dict[str, Any] = {"script": "get:*:delay(100)", "settings": chunked(4, config=LIMITS), "host": "server"}
    yield Rig("server", "tiny-llama", **slow)
    yield Rig("server, two ranks", "tiny-llama", **slow, engine=TWO)
    yield Rig("api", "tiny-llama", settings=chunked(8), host="api")


def _hybrid_rigs() -> Iterator[Rig]:
    yield Rig("hybrid", "tiny-gemma3", settings={"policy": "wait_complete"}, threads=False)
    yield Rig("hybrid, slow", "tiny-gemma3", script=SLOW_READS, settings=chunked(4), engine={"max_batched_tokens": 128})
    yield Rig("no hybrid manager", "tiny-gemma3", settings=chunked(32), engine={"hybrid": False})


def slowed(store: str, script: str, link_mbit: int) -> dict[str, Any]:
    """What makes a store slow: a script in front of it, or where it runs in a process of its own, its link."""
    return {"link_mbit": link_mbit} if store == "mooncake" else {"script": script}


def _store_rigs() -> Iterator[Rig]:
    for store in ("redis", "mooncake"):
        yield Rig(store, "tiny-llama", store=store, settings=chunked(32), engine=LONG)
        unverified = chunked(32, config=UNVERIFIED)
        yield Rig(f"{store}, not verified", "tiny-llama", store=store, settings=unverified)
        slow, settings = slowed(store, "get:*:delay(100)", 16), chunked(4, config=LIMITS)
        yield Rig(f"{store}, hurt", "tiny-llama", store=store, settings=settings, **slow)


def _llama_rows() -> Iterator[Row]:
    whole = Expect("full", ("complete",), chunk=0)
    yield Row("whole", "wait_complete", (*AROUND_BLOCKS, *AROUND_CHUNK_32, *AROUND_CHUNK_128), whole)
    yield Row("whole", "together, shared prefixes", (700, 800, 900, 800), FULL, play="together", shared=500)
    yield Row("whole", "salts", (400,), NONE, play="kept apart", kinds=SALTS)
    yield Row("sync", "wait_complete", AROUND_BLOCKS, whole)
    yield Row("sync", "load fails", (300,), whole, play="load fails")
    chunks = Expect("full", ("complete",), chunk=32)
    yield Row("chunk 32", "long timeout", (*AROUND_CHUNK_32, 4129), chunks)
    yield Row("chunk 32", "queued best_effort", (1057,), chunks, {"policy": "best_effort"}, play="queued")
    below = Expect("none", ("below_threshold",), graphs=(0, 0))
    yield Row("chunk 32", "min_tokens", (200,), below, {"min_tokens": 4000})
    yield Row("chunk 32", "load fails", (300,), chunks, play="load fails")
    yield Row("chunk 32", "announced", (300, 400), chunks, play="announced")
    yield Row("chunk 32", "one object corrupted", (900,), RECOMPUTED, play="corrupted")
    yield Row("chunk 128", "long timeout", AROUND_CHUNK_128, Expect("full", ("complete",), chunk=128))
    yield from _stopped_rows()
    yield Row("restart", "restarted", (33, 64, 65, 900), chunks)
    everything = Expect("any", ("complete",), delivered="full")
    yield Row("few blocks", "preemption", (300, 320, 340), everything, play="preempted", tokens=100)
    yield Row("not verified", "one object corrupted", (900,), SPOILED, play="corrupted")
    eights = Expect("full", ("complete",), chunk=8)
    yield Row("two ranks", "long timeout", (33, 64, 65, 257, 900), eights)
    yield Row("two ranks", "together, shared prefixes", (500, 600), FULL, play="together", shared=300)
    yield Row("adapters", "adapters", (400,), NONE, play="kept apart", kinds=ADAPTERS)
    before = Expect(BLOCK, ("complete",), delivered=BLOCK)  # the block before the sound
    yield Row("sounds", "sounds", (300,), before, play="kept apart", kinds=SOUNDS)
    for server in ("server", "server, two ranks"):
        yield Row(server, "long timeout", (33, 64, 900), Expect("full", ("complete",), chunk=4))
        yield Row(server, "server killed", (900,), LOST, play="server killed")
    short = {"timeout_budget_s": 0.15}
    yield Row("server", "short deadline", (900,), Expect("part", ("deadline",), graphs=(1, 6)), short)
    yield Row("api", "restarted", (33, 64, 900), eights)
    yield Row("api", "salts", (400,), NONE, play="kept apart", kinds=SALTS)


def _stopped_rows() -> Iterator[Row]:
    """What stops a prefetch of 17 graphs in the middle, or before it begins."""
    for mode in ("drain", "recall", "detach"):
        short = {"timeout_budget_s": 0.6, "stop_mode": mode}
        cut = Expect("part", ("deadline",), graphs=(1, 16))
        yield Row("slow reads", f"short deadline, {mode}", (4129,), cut, short)
        effort = {"policy": "best_effort", "stop_mode": mode}
        at_once = Expect("none", ("demand",), graphs=(0, 0))
        yield Row("slow queries", f"best_effort at once, {mode}", (900,), at_once, effort)
    wanted = Expect("part", ("demand",), graphs=(1, 16))
    effort = {"policy": "best_effort"}
    yield Row("slow reads", "best_effort after a while", (4129,), wanted, effort, play="queued shortly")
    all_of_it = Expect("full", ("complete",), chunk=8)
    yield Row("slow reads", "abort in the middle", (1500,), all_of_it, play="abort")


def _hybrid_rows() -> Iterator[Row]:
    yield Row("hybrid", "wait_complete", AROUND_WINDOW, Expect("full", ("complete",), chunk=0))
    yield Row("hybrid", "together, shared prefixes", (300, 400, 500), FULL, play="together", shared=256)
    yield Row("hybrid", "load fails", (300,), FULL, play="load fails")
    short = {"timeout_budget_s": 0.6}
    cut = Expect("part", ("deadline",), graphs=(1, 7))
    yield Row("hybrid, slow", "short deadline", (900,), cut, short)
    yield Row("no hybrid manager", "long timeout", AROUND_WINDOW, Expect("full", ("complete",), chunk=32))


def _store_rows() -> Iterator[Row]:
    for store in ("redis", "mooncake"):
        yield Row(store, "long timeout", (33, 64, 1057), Expect("full", ("complete",), chunk=32))
        yield Row(store, "one object corrupted", (900,), RECOMPUTED, play="corrupted")
        yield Row(f"{store}, not verified", "one object corrupted", (900,), SPOILED, play="corrupted")
        yield Row(f"{store}, hurt", "store frozen", (900,), BROKEN, play="store frozen")
        yield Row(f"{store}, hurt", "store killed", (900,), BROKEN, play="store killed")


def rigs() -> Iterator[Rig]:
    """The engines."""
    yield from _llama_rigs()
    yield from _hybrid_rigs()
    yield from _store_rigs()


def rows() -> Iterator[Row]:
    """What is asked of them."""
    yield from _llama_rows()
    yield from _hybrid_rows()
    yield from _store_rows()
