"""A toy engine that calls the SGLang connector as SGLang's scheduler does, over plain memory; one of them per rank.

Its KV cache has a meaning: the bytes of a page follow from all tokens up to its end, the layer and the rank. So a
wrong, stale or shifted page is found by comparing.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import forebay
from forebay.engines.common import attach
from forebay.engines.common.model import EngineGroup, EngineModel
from forebay.engines.sglang.config import read_request, read_settings
from forebay.engines.sglang.connector import Connector
from forebay.engines.sglang.ranks import Ranks
from forebay.engines.sglang.requests import Arrival, Entry
from rank_stories import in_threads
from toy import FIELDS, LAYER_BYTES, Tensor, content

PAGE, PAGES = 4, 96
LIMIT_S = 20.0  # no story needs more; a request that is never answered fails instead of hanging

FULL = (EngineGroup(0, "a0", ("l0", "l1"), 0, 2 * LAYER_BYTES, False),)
HYBRID = (EngineGroup(0, "a0", ("l1",), 0, LAYER_BYTES, False), EngineGroup(1, "w1", ("l0",), 2, LAYER_BYTES, False))


def model_of(ranks: int, groups: tuple[EngineGroup, ...] = FULL) -> EngineModel:
    """What an engine of so many ranks runs."""
    return EngineModel(FIELDS | {"tp_size": ranks}, PAGE, groups, ranks)


@dataclass(eq=False)
class Request:
    """A request; ``computed`` tokens of it are in ``pages``."""

    name: str
    tokens: list[int]
    params: dict[str, Any] | None = None
    salt: str | None = None
    extra_key: str | None = None
    pages: list[int] = field(default_factory=list)
    computed: int = 0
    window_from: int = 0
    locks: int = 0

    @property
    def handle(self) -> tuple[str, int]:
        return self.name, 0

    @property
    def limit(self) -> int:
        """Tokens that may be restored: one is left to compute."""
        return len(self.tokens) - 1


class Engine:
    """One rank: its scheduler, its pages, its tree of pages by prefix."""

    def __init__(
        self, ranks: Ranks, settings: dict[str, Any] | None = None, groups: tuple[EngineGroup, ...] = FULL
    ) -> None:
        extra = dict(settings or {})
        config = {"log.level": "off"} | extra.pop("config", {})
        usual = {"store": "mem", "pool_bytes": "4MiB", "config": config}
        self.ranks = ranks
        self.model = model_of(ranks.size, groups)
        memory = {layer: ctypes.create_string_buffer(PAGES * LAYER_BYTES) for one in groups for layer in one.layers}
        self.tensors = {layer: Tensor(buffer, PAGES) for layer, buffer in memory.items()}
        self._free = list(range(1, PAGES))
        self.tree: dict[tuple[Any, ...], int] = {}
        self.connector = Connector(self._settings(usual | extra), self.model, ranks, self._register)

    @staticmethod
    def _settings(extra: dict[str, Any]) -> Any:
        return read_settings(None, json.dumps(extra))

    def _register(self, rank: Any) -> None:
        attach.register_tensors(rank, self.model, self.ranks.rank, self.tensors)

    # ---- The engine's own cache ----

    @staticmethod
    def _key(one: Request, page: int) -> tuple[Any, ...]:
        return (one.extra_key, one.salt, *one.tokens[: (page + 1) * PAGE])

    def on_device(self, one: Request, limit: int | None = None) -> int:
        """Tokens of a request that the tree has."""
        pages = 0
        while (pages + 1) * PAGE <= (one.limit if limit is None else limit) and self._key(one, pages) in self.tree:
            pages += 1
        return pages * PAGE

    def insert(self, one: Request, pages: int) -> None:
        """The first pages of a request are the tree's; those that it has already are given back."""
        for i in range(pages):
            page = self.tree.setdefault(self._key(one, i), one.pages[i])
            if page != one.pages[i]:
                self._free.append(one.pages[i])
                one.pages[i] = page

    def flush(self) -> bool:
        """Forgets everything, as SGLang does when nothing runs."""
        self._free.extend(self.tree.values())
        self.tree.clear()
        return self.connector.reset()

    def evict(self, one: Request, from_page: int = 0) -> None:
        """Takes the pages of a prompt from the tree."""
        for i in range(from_page, len(one.tokens) // PAGE):
            page = self.tree.pop(self._key(one, i), None)
            if page is not None:
                self._free.append(page)

    def allocate(self, pages: int) -> list[int] | None:
        if len(self._free) < pages:
            return None
        taken, self._free = self._free[:pages], self._free[pages:]
        return taken

    def fill(self, one: Request, start: int, end: int) -> None:
        """Computes pages ``[start, end)``."""
        for layer, tensor in self.tensors.items():
            for i in range(start, end):
                tensor.write(one.pages[i], content(one.tokens[: (i + 1) * PAGE], layer, self.ranks.rank))

    def check(self, one: Request, end: int) -> None:
        """Every page that resuming at page ``end`` needs has the right bytes."""
        for group in self.model.groups:
            first = max(0, end - group.trailing) if group.trailing else 0
            for layer in group.layers:
                for i in range(first, end):
                    wanted = content(one.tokens[: (i + 1) * PAGE], layer, self.ranks.rank)
                    assert self.tensors[layer].read(one.pages[i]) == wanted, (self.ranks.rank, layer, i)

    # ---- What the scheduler does ----

    def arrival(self, one: Request, tokens: Sequence[int] | None = None) -> Arrival:
        return Arrival(
            one.handle,
            one.name,
            one.tokens if tokens is None else list(tokens),
            one.extra_key,
            one.salt,
            read_request(None if one.params is None else {"forebay": one.params}),
            one,
            id(one),
        )

    def arrive(self, one: Request) -> None:
        """It comes into the queue."""
        self.connector.begin(self.arrival(one), one.limit, self.on_device(one))

    def _device_of(self, entry: Entry) -> int:
        return self.on_device(entry.key) if entry.key is not None else 0

    def turn(self) -> None:
        """A pass of the scheduler, before it asks."""
        self.connector.step(self._device_of)

    def candidate(self, one: Request) -> bool:
        """Asked in each pass."""
        return self.connector.check(one.handle, self._device_of)

    def until_ready(self, one: Request) -> int:
        """Passes until it may be scheduled."""
        limit, count = time.monotonic() + LIMIT_S, 0
        while time.monotonic() < limit:
            self.turn()
            if self.candidate(one):
                return count
            count += 1
            time.sleep(0.0001)  # as SGLang's scheduler lets others run
        raise AssertionError("the request was never answered")

    def admit(self, one: Request) -> tuple[int, int, int]:
        """Matches and loads, as SGLang does for a request that fits: (device, storage, host) tokens."""
        told, start = self.connector.span(one.handle)
        device = self.on_device(one)
        found = self.connector.match(one.handle, device, one.limit)
        one.pages = [self.tree[self._key(one, i)] for i in range(device // PAGE)]
        loaded = 0
        if found.end > device:
            wanted = (found.end - device) // PAGE
            pages = self.allocate(wanted)
            if self.connector.load(one.handle, device // PAGE, found.end // PAGE, [pages] * 2 if pages else None):
                assert pages is not None
                one.pages += pages
                loaded = found.end - device
                self.insert(one, found.end // PAGE)
            elif pages is not None:
                self._free.extend(pages)
        self.connector.admitted(one.handle)
        one.computed = device + loaded
        self.check(one, one.computed // PAGE)
        storage = max(0, found.span_end - found.span_start) if told and loaded else 0
        assert storage <= loaded
        assert not told or start is not None
        return device, storage, loaded - storage

    def compute(self, one: Request, chunk: int | None = None, *, keep: bool = True) -> None:
        """Computes the rest of the prompt in chunks, with a checkpoint at the end of each."""
        while one.computed < len(one.tokens):
            n = min(chunk or len(one.tokens), len(one.tokens) - one.computed)
            before, one.computed = one.computed // PAGE, one.computed + n
            full = one.computed // PAGE
            more = self.allocate(full - len(one.pages))
            assert more is not None
            one.pages += more
            self.fill(one, before, full)
            self.insert(one, full)
            if keep:
                self.checkpoint(one, more=one.computed < len(one.tokens))

    def checkpoint(self, one: Request, *, more: bool = False) -> None:
        """The tree has what was computed."""
        full, again = one.computed // PAGE, one.limit // PAGE
        self.connector.save(one.handle, full, _Held(self, one), again=again, more=more)

    def end(self, one: Request) -> None:
        """It is over, in whatever state."""
        self.connector.end(one.handle)

    def run(self, one: Request, chunk: int | None = None) -> tuple[int, int, int]:
        """A request from its arrival to its end: (device, storage, host) tokens; their bytes were compared."""
        self.arrive(one)
        self.until_ready(one)
        given = self.admit(one)
        self.compute(one, chunk)
        self.end(one)
        return given

    def quiet(self) -> None:
        """Nothing is held any more, and every counter is right."""
        while self.connector.has_work():
            self.turn()
        if self.connector.cache is not None:
            until_quiet(self.connector.cache)
        assert len(self._free) + len(self.tree) == PAGES - 1


class _Held:
    """What the tree has of a request."""

    def __init__(self, engine: Engine, one: Request) -> None:
        self._engine, self._one = engine, one

    def arrival(self) -> Arrival:
        return self._engine.arrival(self._one)

    def pages(self, start: int, end: int) -> list[list[int]]:
        return [self._one.pages[start:end]] * len(self._engine.model.groups)

    def window_from(self) -> list[int]:
        return [0, self._one.window_from]

    def lock(self) -> Callable[[], None]:
        self._one.locks += 1

        def unlock() -> None:
            self._one.locks -= 1

        return unlock


def until_quiet(cache: forebay.Cache) -> None:
    """Nothing of a cache is held any more, when reads of sessions that were aborted have ended; every counter is right.

    Raises:
        AssertionError: something stays.
    """
    gauges = ("holds_gauge", "puts_gauge", "leases_gauge", "sessions_running_gauge")
    limit = time.monotonic() + LIMIT_S
    while (left := {name: cache.stats()[name] for name in gauges}) != dict.fromkeys(gauges, 0):
        assert time.monotonic() < limit, left
        time.sleep(0.001)
    cache.check()


class Make:
    """Makes engines of one rank, with exchanges of their own, and closes them at the end."""

    def __init__(self, ranks: Ranks) -> None:
        self.rank = ranks.rank
        self._carrier = ranks._carrier
        self._made: list[Engine] = []

    def __call__(self, settings: dict[str, Any] | None = None, groups: tuple[EngineGroup, ...] = FULL) -> Engine:
        self._made.append(Engine(Ranks(self._carrier), settings, groups))
        return self._made[-1]

    def close(self) -> None:
        for one in self._made:
            one.connector.close()


def played(size: int, story: Callable[[Make], Any]) -> list[Any]:
    """A story on every rank, each in a thread; what each gave.

    Raises:
        what a rank's story raised.
    """

    def run(ranks: Ranks) -> Any:
        make = Make(ranks)
        try:
            return story(make)
        finally:
            make.close()

    results = in_threads(size, run)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
