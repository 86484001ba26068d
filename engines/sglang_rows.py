"""The matrix of the exactness tests of SGLang, as data: servers (rigs) and what is asked of each (rows).

A rig's prompts are computed once and stored; its rows forget them in the engine, in one way or another, and ask again.
The tokens must be those of a server without Forebay, and what was restored must be what the row says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exact_rows import Expect

TINY, REAL = "tiny", "real"
PAGE = 16
# Around a page; around chunks of 32 and of 128 pages.
AROUND_PAGES = (15, 16, 17, 32, 33, 48, 161)
AROUND_CHUNK_32 = (511, 512, 513, 529, 1025)
AROUND_CHUNK_128 = (2047, 2048, 2049, 2065)
AROUND_WINDOW = (33, 63, 64, 65, 81, 129, 400)


@dataclass(frozen=True)
class Rig:
    """A server, its store and Forebay's settings, shared by rows.

    Attributes:
        surface: how Forebay is in it: "radix", "flexkv" or "hicache".
        model: as engines/models.py names it.
        store: "file", "redis" or "mooncake".
        script: what goes wrong with the store (docs/stores.md), or None.
        link_mbit: Mbit/s of the loopback of the store's network namespace, for a store that takes no script.
        settings: Forebay's plain keys, but for store, journal and pool.
        policy: SGLang's own argument for it, or None.
        host: "engine", or "server": Forebay's server has the cache.
        engine: fields of sglang_server.Engine that differ.
        threads: whether Forebay's control thread is there; None: not looked at.
    """

    name: str
    surface: str = "radix"
    model: str = "tiny-llama"
    store: str = "file"
    script: str | None = None
    link_mbit: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    host: str = "engine"
    engine: Mapping[str, Any] = field(default_factory=dict)
    threads: bool | None = None
    sets: frozenset[str] = frozenset({TINY})


@dataclass(frozen=True)
class Row:
    """What is asked of a rig.

    Attributes:
        params: what the requests say for themselves.
        forget: how the prompts are lost before they are asked for again: "flush" (by the engine, and from CPU memory),
            "restart" (the server's process), "evict" (by other prompts, from the device alone).
        shared: tokens that its prompts have in common.
        tokens: asked for.
        keys: what keeps requests apart, for the play "kept apart": "salt:NAME" or "extra:NAME", "" for nothing.
        how: of an abort: "call" (SGLang's API) or "cut" (the client is gone).
    """

    rig: str
    name: str
    lengths: tuple[int, ...]
    expect: Expect
    params: Mapping[str, Any] = field(default_factory=dict)
    play: str = "plain"
    forget: str = "flush"
    shared: int = 0
    tokens: int = 12
    keys: tuple[str, ...] = ("",)
    how: str = "call"


CORRUPTED_PAGE = 10
FULL = Expect("full", ("complete",))
NONE = Expect("none")
BROKEN = Expect("short", ("io_timeout", "store_error", "no_progress"))
LOST = Expect("none", ("server_lost",))
RECOMPUTED = Expect(CORRUPTED_PAGE * PAGE, ("partial_read",), delivered=CORRUPTED_PAGE * PAGE)
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
UNVERIFIED = {**LIMITS, "store.verify": "off"}
LONG = {"max_total_tokens": 6144, "max_requests": 3}
FEW = {"max_total_tokens": 3072, "max_requests": 2}


def chunked(chunk: int, policy: str = "timeout", budget_s: float = 60.0, **more: Any) -> dict[str, Any]:
    """Settings with chunks of `chunk` pages and a budget that is long unless given."""
    return {"policy": policy, "chunk_max_blocks": chunk, "timeout_budget_s": budget_s, **more}


def slowed(store: str, script: str, link_mbit: int) -> dict[str, Any]:
    """What makes a store slow: a script in front of it, or where it runs in a process of its own, its link."""
    return {"link_mbit": link_mbit} if store == "mooncake" else {"script": script}


# ---- Radix backend ---------------------------------------------------------------------------------------------------


def _radix_rigs() -> Iterator[Rig]:
    yield Rig("radix whole", policy="wait_complete", engine=LONG, threads=False)
    yield Rig("radix chunk 32", settings=chunked(32, config=LIMITS), engine=LONG, threads=True)
    yield Rig("radix chunk 128", settings=chunked(128), engine=LONG)
    few = {"max_total_tokens": 640, "max_requests": 2}
    yield Rig("radix few pages", settings=chunked(8), engine=few)
    # SGLang's own switch takes a request back every so often; it is read when SGLang is imported
    switch = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "20"}
    taking = {**few, "variables": switch, "preloaded": False}
    yield Rig("radix taken back", settings=chunked(8), engine=taking)
    yield Rig("radix slow reads", script=SLOW_READS, settings=chunked(8, config=LIMITS), engine=FEW)
    yield Rig("radix slow queries", script=SLOW_QUERIES, settings=chunked(8, "best_effort"), engine=FEW)
    yield Rig("radix not verified", settings=chunked(8, config=UNVERIFIED), engine=FEW)
    overlapped = {**LONG, "overlap": True, "chunked_prefill": 64}
    yield Rig("radix overlapped", settings=chunked(8), engine=overlapped)
    yield Rig("radix two ranks", settings=chunked(8), engine={**FEW, "tensor_parallel": 2})
    yield Rig("radix hybrid", model="tiny-gemma3", settings=chunked(8), engine=FEW)
    slow: dict[str, Any] = {"script": "get:*:delay(100)", "settings": chunked(8, config=LIMITS), "host": "server"}
    yield Rig("radix server", engine=FEW, **slow)
    for store in ("redis", "mooncake"):
        yield Rig(f"radix {store}", store=store, settings=chunked(32, config=LIMITS), engine=FEW)
        hurt = slowed(store, "get:*:delay(100)", 16)
        yield Rig(f"radix {store} hurt", store=store, settings=chunked(4, config=LIMITS), engine=FEW, **hurt)
        yield Rig(f"radix {store} not verified", store=store, settings=chunked(8, config=UNVERIFIED), engine=FEW)


def _radix_rows() -> Iterator[Row]:
    everything = (*AROUND_PAGES, *AROUND_CHUNK_32, *AROUND_CHUNK_128)
    whole, chunks = Expect("full", ("complete",), chunk=0), Expect("full", ("complete",), chunk=32)
    yield Row("radix whole", "cold", everything, NONE, play="cold")
    yield Row("radix whole", "wait_complete, restarted", everything, whole, forget="restart")
    yield Row("radix whole", "wait_complete, flushed", (513, 2065), whole)
    yield Row("radix whole", "storage cleared", (513,), NONE, play="cleared")
    name = "radix chunk 32"
    yield Row(name, "cold", (*AROUND_PAGES, *AROUND_CHUNK_32), NONE, play="cold")
    yield Row(name, "long timeout, restarted", (*AROUND_PAGES, *AROUND_CHUNK_32), chunks, forget="restart")
    yield Row(name, "wait_complete of a request", (513, 1025), chunks, {"policy": "wait_complete"})
    yield Row(name, "queued best_effort", (1025,), chunks, {"policy": "best_effort"}, play="queued")
    below = Expect("none", ("below_threshold",), graphs=(0, 0))
    yield Row(name, "min_tokens", (161,), below, {"min_tokens": 4000})
    yield Row(name, "not asked for", (161,), NONE, {"load": False})
    yield Row(name, "together, shared prefixes", (700, 800, 900, 800), FULL, play="together", shared=500)
    keys = ("salt:red", "salt:blue", "extra:red", "")
    yield Row(name, "salts and extra keys", (300,), NONE, play="kept apart", keys=keys)
    yield Row(name, "corrupted object", (529,), RECOMPUTED, play="corrupted")
    chunks = Expect("full", ("complete",), chunk=128)
    yield Row("radix chunk 128", "long timeout, restarted", AROUND_CHUNK_128, chunks, forget="restart")
    yield Row("radix few pages", "evicted", (300, 304, 305), FULL, forget="evict")
    yield Row("radix taken back", "together", (130, 140), Expect("any"), play="crowded", tokens=60)
    yield from _stopped_rows()
    eights = Expect("full", ("complete",), chunk=8)
    yield Row("radix not verified", "corrupted object", (529,), SPOILED, play="corrupted")
    yield Row("radix overlapped", "long timeout", (33, 161, 1025), eights)
    yield Row("radix overlapped", "together, shared prefixes", (500, 600), FULL, play="together", shared=300)
    yield Row("radix overlapped", "aborted while it computes", (1025,), eights, play="aborted computing")
    yield Row("radix two ranks", "long timeout, restarted", (33, 64, 65, 257, 900), eights, forget="restart")
    yield Row("radix two ranks", "together, shared prefixes", (500, 600), FULL, play="together", shared=300)
    yield Row("radix two ranks", "aborted in the queue", (300,), eights, play="aborted queued")
    yield Row("radix hybrid", "long timeout", AROUND_WINDOW, FULL)
    yield Row("radix server", "long timeout, restarted", (33, 64, 900), eights, forget="restart")
    yield Row("radix server", "server killed", (900,), LOST, play="server killed")
    for store in ("redis", "mooncake"):
        chunks = Expect("full", ("complete",), chunk=32)
        yield Row(f"radix {store}", "long timeout, restarted", (33, 64, 1025), chunks, forget="restart")
        yield Row(f"radix {store}", "corrupted object", (529,), RECOMPUTED, play="corrupted")
        yield Row(f"radix {store} not verified", "corrupted object", (545,), SPOILED, play="corrupted")
        yield Row(f"radix {store} hurt", "store frozen", (900,), BROKEN, play="store frozen")
        yield Row(f"radix {store} hurt", "store killed", (900,), BROKEN, play="store killed")


def _stopped_rows() -> Iterator[Row]:
    """What stops a prefetch of 17 graphs in the middle, or before it begins, and what ends a request meanwhile."""
    name = "radix slow reads"
    for mode in ("drain", "recall", "detach"):
        short = {"timeout_budget_s": 0.6, "stop_mode": mode}
        yield Row(name, f"short deadline, {mode}", (2065,), Expect("part", ("deadline",), graphs=(1, 16)), short)
        effort = {"policy": "best_effort", "stop_mode": mode}
        at_once = Expect("none", ("demand",), graphs=(0, 0))
        yield Row("radix slow queries", f"best_effort at once, {mode}", (900,), at_once, effort)
    wanted, effort = Expect("part", ("demand",), graphs=(1, 16)), {"policy": "best_effort"}
    yield Row(name, "best_effort after a while", (2065,), wanted, effort, play="queued shortly")
    after = Expect("full", ("complete",), chunk=8)
    for how in ("call", "cut"):
        said = "aborted" if how == "call" else "client gone"
        for state in ("queued", "draining", "computing"):
            yield Row(name, f"{said}, {state}", (1025,), after, play=f"aborted {state}", how=how)
    yield Row(name, "flush while it drains", (1025,), after, play="flushed draining")


# ---- The others ------------------------------------------------------------------------------------------------------


def _flexkv_rigs() -> Iterator[Rig]:
    yield Rig("flexkv file", "flexkv", settings=chunked(32, config=LIMITS), engine=LONG)
    for store in ("redis", "mooncake"):
        slow = slowed(store, "get:*:delay(100)", 16)
        yield Rig(f"flexkv {store}", "flexkv", store=store, settings=chunked(8, config=LIMITS), engine=FEW, **slow)
    yield Rig("flexkv whole", "flexkv", policy="wait_complete", engine=LONG, threads=False)
    yield Rig("flexkv slow reads", "flexkv", script=SLOW_READS, settings=chunked(8, config=LIMITS), engine=FEW)
    yield Rig("flexkv few pages", "flexkv", settings=chunked(8), engine={"max_total_tokens": 640, "max_requests": 2})
    yield Rig("flexkv not verified", "flexkv", settings=chunked(8, config=UNVERIFIED), engine=FEW)
    yield Rig("flexkv two ranks", "flexkv", settings=chunked(8), engine={**FEW, "tensor_parallel": 2})


def _flexkv_rows() -> Iterator[Row]:
    chunks, eights = Expect("full", ("complete",), chunk=32), Expect("full", ("complete",), chunk=8)
    effort = {"policy": "best_effort"}
    yield Row("flexkv file", "cold", (*AROUND_PAGES, *AROUND_CHUNK_32), NONE, play="cold")
    yield Row("flexkv file", "long timeout, restarted", (*AROUND_PAGES, *AROUND_CHUNK_32), chunks, forget="restart")
    yield Row("flexkv file", "queued best_effort", (1025,), chunks, effort, play="queued", forget="restart")
    yield Row("flexkv file", "together, shared prefixes", (700, 800, 900), FULL, play="together", shared=500)
    yield Row("flexkv file", "salts", (300,), NONE, play="kept apart", keys=("salt:red", "salt:blue", ""))
    yield Row("flexkv file", "corrupted object", (529,), RECOMPUTED, play="corrupted")
    whole = Expect("full", ("complete",), chunk=0)
    yield Row("flexkv whole", "wait_complete, restarted", (*AROUND_PAGES, *AROUND_CHUNK_128), whole, forget="restart")
    yield Row("flexkv whole", "flushed, still in CPU memory", (513, 2065), Expect("full", graphs=(0, 0)))
    for mode in ("drain", "recall", "detach"):
        short = {"timeout_budget_s": 0.6, "stop_mode": mode}
        cut = Expect("part", ("deadline",), graphs=(1, 16), beyond=mode == "detach")  # its match looks the pool up, too
        yield Row("flexkv slow reads", f"short deadline, {mode}", (2065,), cut, short, forget="restart")
    for state in ("queued", "draining", "computing"):
        yield Row(
            "flexkv slow reads",
            f"client gone, {state}",
            (1025,),
            eights,
            play=f"aborted {state}",
            how="cut",
            forget="restart",
        )
    yield Row("flexkv slow reads", "flush while it drains", (1025,), eights, play="flushed draining", forget="restart")
    yield Row("flexkv not verified", "corrupted object", (529,), SPOILED, play="corrupted")
    yield Row("flexkv few pages", "evicted", (300, 304, 305), FULL, forget="evict")
    yield Row("flexkv two ranks", "long timeout, restarted", (33, 64, 257), eights, forget="restart")
    for store in ("redis", "mooncake"):
        yield Row(f"flexkv {store}", "long timeout, restarted", (33, 529), eights, forget="restart")
        yield Row(f"flexkv {store}", "store killed", (900,), BROKEN, play="store killed", forget="restart")


def _hicache_rigs() -> Iterator[Rig]:
    for policy in ("wait_complete", "timeout", "best_effort"):
        settings = {"config": LIMITS, "prefetch_timeout_base": 30}
        yield Rig(f"hicache {policy}", "hicache", policy=policy, settings=settings, engine=LONG)
    settings = {"config": LIMITS, "prefetch_timeout_base": 0.3}
    slow: dict[str, Any] = {"script": "get:*:delay(50)", "settings": {**settings, "read_ahead": False, "window": 8}}
    yield Rig("hicache slow reads", "hicache", policy="timeout", engine=LONG, **slow)
    waiting: dict[str, Any] = {"script": "get:*:delay(300)", "settings": {"config": LIMITS, "window": 8}}
    yield Rig("hicache waiting", "hicache", policy="wait_complete", engine=LONG, **waiting)
    for store in ("redis", "mooncake"):
        settings = {"config": LIMITS}
        yield Rig(f"hicache {store}", "hicache", store=store, policy="wait_complete", settings=settings, engine=FEW)
    unverified = {"config": UNVERIFIED}
    yield Rig("hicache not verified", "hicache", policy="wait_complete", settings=unverified, engine=FEW)
    small = {"max_total_tokens": 640, "max_requests": 2}
    yield Rig("hicache few pages", "hicache", policy="wait_complete", engine=small)


def _hicache_rows() -> Iterator[Row]:
    everything = (*AROUND_PAGES, *AROUND_CHUNK_32, *AROUND_CHUNK_128)
    full = Expect("full")
    yield Row("hicache wait_complete", "cold", everything, NONE, play="cold")
    yield Row("hicache wait_complete", "flushed", everything, full)
    yield Row("hicache wait_complete", "restarted", everything, full, forget="restart")
    yield Row("hicache wait_complete", "together, shared prefixes", (700, 800), full, play="together", shared=500)
    keys = ("salt:red", "salt:blue", "")
    yield Row("hicache wait_complete", "salts", (300,), NONE, play="kept apart", keys=keys)
    yield Row("hicache wait_complete", "aborted in the queue", (529,), full, play="aborted queued")
    yield Row("hicache wait_complete", "corrupted objects", (513,), NONE, play="all corrupted")
    yield Row("hicache timeout", "long timeout, restarted", (33, 529, 1025), full, forget="restart")
    yield Row("hicache best_effort", "queued, restarted", (529,), full, play="queued", forget="restart")
    yield Row("hicache best_effort", "at once, restarted", (1025,), Expect("any"), forget="restart")
    cut = Expect("short", beyond=True)  # a batch that is under way ends, and SGLang forgets it
    yield Row("hicache slow reads", "short deadline, restarted", (2065,), cut, forget="restart")
    for how, state in (("call", "draining"), ("cut", "draining"), ("cut", "computing")):
        said, play = "aborted" if how == "call" else "client gone", f"aborted {state}"
        yield Row("hicache waiting", f"{said}, {state}", (161,), full, play=play, how=how, forget="restart")
    yield Row("hicache waiting", "flush while it drains", (161,), full, play="flushed draining", forget="restart")
    spoiled = replace(full, differ=True)
    yield Row("hicache not verified", "corrupted objects", (513,), spoiled, play="all corrupted")
    yield Row("hicache few pages", "evicted to the host", (300, 304, 305), full, forget="evict")
    for store in ("redis", "mooncake"):
        yield Row(f"hicache {store}", "restarted", (33, 529, 1025), full, forget="restart")
        yield Row(f"hicache {store}", "store frozen", (529,), NONE, play="store frozen", forget="restart")
        yield Row(f"hicache {store}", "store killed", (529,), NONE, play="store killed", forget="restart")


# ---- Real models -----------------------------------------------------------------------------------------------------


def _real_rigs() -> Iterator[Rig]:
    real = frozenset({REAL})
    engine = {"max_total_tokens": 6144, "max_requests": 3, "threads": 2}
    for model in ("smollm2", "gemma3-270m"):
        for store in ("file", "redis", "mooncake"):
            common: dict[str, Any] = {"model": model, "store": store, "sets": real, "engine": engine}
            yield Rig(f"radix {model} {store} chunk 32", settings=chunked(32), **common)
            slow = slowed(store, SLOW_READS, 160)
            yield Rig(f"radix {model} {store} slow", settings=chunked(8), **common, **slow)
        common = {"model": model, "sets": real, "engine": engine}
        yield Rig(f"radix {model} whole", policy="wait_complete", threads=False, **common)
        yield Rig(f"flexkv {model}", "flexkv", **common)
        yield Rig(f"hicache {model}", "hicache", policy="wait_complete", **common)
    two = {**engine, "tensor_parallel": 2, "threads": 1}
    yield Rig("radix gemma3-270m two ranks", model="gemma3-270m", settings=chunked(8), sets=real, engine=two)


def _real_rows(rigs: list[Rig]) -> Iterator[Row]:
    for rig in rigs:
        lengths = (33, 511, 513, 1025, 2049) if rig.store == "file" else (65, 513, 1025)
        full = Expect("full", ("complete",)) if rig.surface == "radix" else Expect("full")
        if rig.name.endswith("slow"):
            for mode in ("drain", "recall", "detach"):
                short = {"timeout_budget_s": 0.6, "stop_mode": mode}
                yield Row(
                    rig.name, f"short deadline, {mode}", (2049,), Expect("short", ("deadline",)), short, tokens=24
                )
            continue
        yield Row(rig.name, "restarted", lengths, full, forget="restart", tokens=24)
        if rig.store == "file":
            yield Row(rig.name, "together, shared prefixes", (700, 800), full, play="together", shared=600, tokens=24)
        if rig.name.endswith("chunk 32"):
            effort = {"policy": "best_effort"}
            yield Row(rig.name, "queued best_effort", (1025,), full, effort, play="queued", tokens=24)


def rigs(which: str) -> list[Rig]:
    """The servers of a set: "tiny" or "real"."""
    every = [*_radix_rigs(), *_flexkv_rigs(), *_hicache_rigs(), *_real_rigs()]
    return [rig for rig in every if which in rig.sets]


def rows(which: str) -> list[Row]:
    """What is asked of them."""
    every = [*_radix_rows(), *_flexkv_rows(), *_hicache_rows(), *_real_rows(list(_real_rigs()))]
    names = {rig.name for rig in rigs(which)}
    return [row for row in every if row.rig in names]
