"""What the drop-in flexkv does at SGLang's own methods: a toy of the release's classes, with their shapes and gaps."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

numpy = pytest.importorskip("numpy", reason="masks of the drop-in are numpy's arrays")

from flexkv_toy import HEADS, LAYERS, PAGE, PAGES, SIZE, LoadRefusedError, Scope, Server, current, hooks, threads  # noqa: E402

TOKENS = list(range(100, 130))
LIMIT_S = 20.0


class Key:
    """SGLang's RadixKey, as far as the hooks look."""

    def __init__(
        self, tokens: list[int], extra_key: str | None = None, *, cache_salt: str | None = None, is_bigram: bool = False
    ) -> None:
        self.tokens, self.extra_key, self.cache_salt, self.is_bigram = tokens, extra_key, cache_salt, is_bigram


class RadixCache:
    """The base: only the device."""

    device = 0

    def match_prefix(self, params: Any) -> Any:
        del params
        return SimpleNamespace(device_prefix_len=self.device, host_hit_length=0)

    def release_host_resources(self) -> None:
        pass


class Classes:
    """Fresh classes with the shapes of release 0.5.23."""

    def __init__(self) -> None:
        class FlexKVRadixCache(RadixCache):
            page_size = PAGE

            def __init__(self, connector: Any, pool: Any) -> None:
                self.flexkv_connector = connector
                self.token_to_kv_pool_allocator = SimpleNamespace(get_kvcache=lambda: pool)
                self.seen: list[Any] = []

            def match_prefix(self, params: Any) -> Any:
                self.seen.append(current())
                ids = numpy.asarray(params.key.tokens, dtype=numpy.int64)
                wanted = numpy.arange(len(ids)) >= self.device
                task, mask = self.flexkv_connector.kv_manager.get_match(ids, wanted)
                if params.req is not None and mask.any():
                    self.flexkv_connector._pending_lookups[params.req.cache_request_handle] = task
                return SimpleNamespace(device_prefix_len=self.device, host_hit_length=int(mask.sum()))

            def checkpoint(self, req: Any, *, up_to: int) -> None:
                del req, up_to
                self.seen.append(current())

            def on_release(self, req: Any, *, checkpointed: bool) -> None:
                del req, checkpointed

            def release_aborted_request(self, handle: Any) -> None:
                self.flexkv_connector.cancel_prefetch(handle)

            def evict(self, params: Any) -> Any:
                return params

            def pop_prefetch_loaded_span(self, handle: Any) -> tuple[int, int | None]:
                del handle
                return 0, None

        class FlexKVConnector:
            enable_layerwise, _prefetch_enabled = False, True

            def __init__(self, manager: Any, client: Any) -> None:
                self.kv_manager, self.tp_client = manager, client
                self._pending_lookups: dict[Any, int] = {}
                self._ongoing_prefetches: dict[Any, int] = {}
                self._inflight_stores: dict[Any, int] = {}

            def retrieve_kv(self, handle: Any, slot_mapping: Any) -> int:
                self._pending_lookups.pop(handle, -1)
                return len(slot_mapping)

            def shutdown(self) -> None:
                self.kv_manager.shutdown()

            def cancel_prefetch(self, handle: Any) -> None:
                self._ongoing_prefetches.pop(handle, None)

            def start_load_kv_layerwise(self, handle: Any, slot_mapping: Any) -> tuple[int, int]:
                del slot_mapping
                task = self._pending_lookups.pop(handle)
                counter = self.layer_done_counter  # type: ignore[attr-defined]
                counter.producer_index = (counter.producer_index + 1) % counter.num_counters
                assert counter.events[counter.producer_index]._finished
                counter.events[counter.producer_index]._finished = False
                counter._task_to_producer[task] = counter.producer_index
                raise LoadRefusedError(task)

            def prefetch_async(self, handle: Any, token_ids: list[int]) -> int:
                task = self.kv_manager.prefetch_async(numpy.asarray(token_ids, dtype=numpy.int64))
                self._ongoing_prefetches[handle] = task
                return int(task)

        class Scheduler:
            enable_lmcache = False

            def __init__(self, tree_cache: Any) -> None:
                self.tree_cache = tree_cache

            def _prefetch_kvcache(self, req: Any, storage_hit_end: Any = None) -> str:
                del req, storage_hit_end
                return "the engine's own"

        self.cache, self.connector, self.scheduler = FlexKVRadixCache, FlexKVConnector, Scheduler


def module(name: str, **values: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(values)
    return made


@pytest.fixture
def classes(monkeypatch: pytest.MonkeyPatch) -> Classes:
    made = Classes()
    base = "sglang.srt.mem_cache"
    modules: dict[str, dict[str, Any]] = {
        "sglang": {}, "sglang.srt": {}, base: {},
        f"{base}.storage.flexkv.flexkv_radix_cache": {"FlexKVRadixCache": made.cache},
        f"{base}.storage.flexkv.flexkv_connector": {"FlexKVConnector": made.connector},
        "sglang.srt.managers.scheduler": {"Scheduler": made.scheduler},
        f"{base}.base_prefix_cache": {"MatchPrefixParams": lambda key: SimpleNamespace(key=key, req=None)},
        f"{base}.radix_cache": {"RadixCache": RadixCache, "RadixKey": Key},
    }  # fmt: skip
    for name, values in modules.items():
        monkeypatch.setitem(sys.modules, name, module(name, **values))
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own = {"store": "mem", "pool_bytes": "4MiB", "journal": str(tmp_path / "journal"), "config": {"log.level": "off"}}
    monkeypatch.setenv("FOREBAY_SGLANG", json.dumps(own))
    made = Server()
    yield made
    made.close()
    assert threads() == []


def handle(rid: str = "r1", attempt: int = 0) -> Any:
    return Handle(rid, attempt)


class Handle(tuple[str, int]):
    """SGLang's CacheRequestHandle."""

    __slots__ = ()

    def __new__(cls, rid: str, attempt: int) -> Handle:
        return super().__new__(cls, (rid, attempt))

    @property
    def rid(self) -> str:
        return self[0]


def request(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "cache_request_handle": handle(), "extra_key": None, "cache_salt": None, "positional_embed_overrides": None,
        "origin_input_ids": list(TOKENS), "output_ids": [], "sampling_params": SimpleNamespace(custom_params=None),
        "_compute_max_prefix_len": lambda length: length - 1,
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


class View:
    """A tensor, of which only one page is looked at."""

    dtype, shape = "torch.uint8", (PAGE * PAGES, HEADS, SIZE)

    def __getitem__(self, index: Any) -> View:
        del index
        return self

    def unflatten(self, axis: int, sizes: tuple[int, int]) -> View:
        assert (axis, sizes) == (0, (PAGES, PAGE))
        return self

    def numel(self) -> int:
        return PAGE * HEADS * SIZE

    def element_size(self) -> int:
        return 1


class MHATokenToKVPool:
    """SGLang's plain pool."""

    kv_cache_layout, dtype, start_layer = "nhd", "torch.uint8", 0

    def __init__(self, layers: int = LAYERS) -> None:
        self.k_buffer = self.v_buffer = [View() for _ in range(layers)]


class MHATokenToKVPoolFP4(MHATokenToKVPool):
    """One that has scales beside its values."""


def cache_of(classes: Classes, server: Server, pool: Any = None) -> Any:
    hooks.install()
    return classes.cache(classes.connector(server.manager, server.clients[0]), pool or MHATokenToKVPool())


def test_a_match_is_of_its_request(classes: Classes, server: Server) -> None:
    cache = cache_of(classes, server)
    server.store(TOKENS)
    one, other = request(), request(cache_request_handle=handle("r2"))
    for _ in range(3):
        assert cache.match_prefix(SimpleNamespace(key=Key(TOKENS[:28]), req=one)).host_hit_length == 28
    assert server.kv.engine.cache.stats()["holds_gauge"] == 1
    assert cache.match_prefix(SimpleNamespace(key=Key(TOKENS[:28]), req=other)).host_hit_length == 28
    assert server.kv.engine.cache.stats()["holds_gauge"] == 2
    for key in (Key(TOKENS[:28], "lora"), Key(TOKENS[:28], cache_salt="s"), Key(TOKENS[:28], "")):
        assert cache.match_prefix(SimpleNamespace(key=key, req=request())).host_hit_length == 0
    assert cache.match_prefix(SimpleNamespace(key=Key(TOKENS, is_bigram=True), req=one)).host_hit_length == 0
    cache.on_release(other, checkpointed=True)
    cache.checkpoint(request(extra_key="lora", cache_salt="s"), up_to=28)
    assert [(scope.label, scope.extra_key, scope.cache_salt) for scope in cache.seen[-2:]] == [
        ("r1", "", None),
        ("r1", "lora", "s"),
    ]
    assert current() == Scope()
    server.quiet()


def test_a_prefetch_begins_in_the_queue_and_ends_with_its_request(classes: Classes, server: Server) -> None:
    cache = cache_of(classes, server)
    server.store(TOKENS)
    scheduler = classes.scheduler(cache)
    one = request()
    assert scheduler._prefetch_kvcache(one) is None
    assert scheduler.enable_lmcache is True
    task = cache.flexkv_connector._ongoing_prefetches[one.cache_request_handle]
    while task not in server.kv.try_wait([task]):
        pass
    assert cache.pop_prefetch_loaded_span(one.cache_request_handle) == (0, None)  # it was in memory
    assert server.kv.engine.cache.stats()["leases_gauge"] == 1
    cache.release_aborted_request(one.cache_request_handle)
    server.quiet()
    # Nothing to bring: the device has it, no page is whole, embeddings stand in for tokens.
    begun = server.kv.engine.cache.stats()["sessions"]
    cache.device = 28
    scheduler._prefetch_kvcache(request())
    cache.device = 0
    scheduler._prefetch_kvcache(request(origin_input_ids=[1, 2, 3, 4]))
    scheduler._prefetch_kvcache(request(positional_embed_overrides=object()))
    assert server.kv.engine.cache.stats()["sessions"] == begun
    # Other caches are the engine's.
    assert classes.scheduler(RadixCache())._prefetch_kvcache(one) == "the engine's own"


def test_a_prefetch_under_way_is_cancelled_with_its_request(
    classes: Classes, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.close()
    slow = {"store": "mem:script=exists:*:hang", "pool_bytes": "4MiB"}
    config = {"log.level": "off", "prefetch.query_timeout_s": "0.1"}
    monkeypatch.setenv("FOREBAY_SGLANG", json.dumps(slow | {"config": config}))
    other = Server()
    try:
        cache = cache_of(classes, other)
        classes.scheduler(cache)._prefetch_kvcache(request())
        assert other.kv.engine.cache.stats()["sessions_running_gauge"] == 1
        task = cache.flexkv_connector._ongoing_prefetches[handle()]
        cache.release_aborted_request(handle())
        assert cache.flexkv_connector._ongoing_prefetches == {}
        assert other.status(task) == "cancelled"
        other.quiet()
    finally:
        other.close()


def test_a_follower_goes_by_what_the_leader_said(classes: Classes) -> None:
    hooks.install()
    said = {7: True, 8: False}
    follower = classes.connector(None, SimpleNamespace(verdict=lambda task: said[task]))
    for task, loaded in ((7, 28), (8, 0)):
        follower._pending_lookups[handle()] = task
        assert follower.retrieve_kv(handle(), range(28)) == loaded
    leader = classes.connector(object(), SimpleNamespace(verdict=lambda _: False))
    leader._pending_lookups[handle()] = 7
    assert leader.retrieve_kv(handle(), range(28)) == 28


def test_a_layerwise_load_that_is_refused_is_a_miss(classes: Classes, server: Server) -> None:
    cache = cache_of(classes, server)
    connector = cache.flexkv_connector
    events = [SimpleNamespace(_finished=True), SimpleNamespace(_finished=False)]
    connector.layer_done_counter = SimpleNamespace(
        producer_index=0, num_counters=2, events=events, _task_to_producer={}
    )
    connector._pending_lookups[handle()] = 5
    assert connector.start_load_kv_layerwise(handle(), range(4)) == (0, -1)
    assert (events[1]._finished, connector.layer_done_counter._task_to_producer) == (True, {})


def test_its_objects_are_those_of_the_radix_backend(server: Server) -> None:
    from forebay.engines.sglang.model import describe
    from forebay.engines.sglang.pools import device_parts

    own = server.config.model_config
    parts = device_parts(MHATokenToKVPool(), PAGE)
    model = describe(own.engine, parts, version=own.version, page_tokens=PAGE, ranks=1, arguments=own.arguments)
    assert server.kv.engine._pool is not None
    assert server.kv.engine._pool._model == model


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (MHATokenToKVPoolFP4(), "the KV pool is a MHATokenToKVPoolFP4"),
        (MHATokenToKVPool(LAYERS + 1), "more than the tensors that were registered"),
        (object(), "the KV pool is a object"),
    ],
)
def test_a_pool_with_more_than_its_tensors_turns_it_off(
    classes: Classes, server: Server, caplog: pytest.LogCaptureFixture, pool: Any, why: str
) -> None:
    cache = cache_of(classes, server, pool)
    server.store(TOKENS)
    assert cache.match_prefix(SimpleNamespace(key=Key(TOKENS[:28]), req=request())).host_hit_length == 0
    assert why in caplog.text


def test_clearing_forgets_cpu_memory(classes: Classes, server: Server) -> None:
    cache = cache_of(classes, server)
    server.store(TOKENS)
    cache.clear_storage_backend()
    assert server.load(TOKENS) == 0
    assert cache.has_pending_cache_operations() is False
    assert cache.evict("what") == "what"


def test_a_polite_end_closes_the_cache(classes: Classes, server: Server) -> None:
    cache = cache_of(classes, server)
    opened = server.kv.engine.cache
    cache.release_host_resources()
    assert opened.closed
    cache.release_host_resources()


def test_methods_are_wrapped_once(classes: Classes) -> None:
    hooks.install()
    once = classes.cache.match_prefix
    hooks.install()
    assert classes.cache.match_prefix is once


def test_another_shape_is_refused_or_left_alone(classes: Classes, caplog: pytest.LogCaptureFixture) -> None:
    def other(self: Any, handle: Any, reason: Any) -> None:
        del self, handle, reason

    classes.connector.cancel_prefetch = other  # type: ignore[assignment, method-assign]
    with caplog.at_level(logging.WARNING):
        hooks.install()
    assert "FlexKVConnector.cancel_prefetch takes self, handle, reason; accepted: self, handle" in caplog.text
    assert vars(classes.connector)["cancel_prefetch"] is other
    classes.connector.retrieve_kv = other  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=r"FlexKVConnector\.retrieve_kv takes self, handle, reason"):
        hooks.install()


def test_without_sglang_there_is_nothing_to_wrap() -> None:
    hooks.install()
