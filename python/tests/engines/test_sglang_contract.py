"""The cache class against the SGLang that is installed: the shape of what it overrides, and requests through its tree.

Without a server and without a model: SGLang's own allocator, pools, tree, request, and the scheduler's function that
starts prefetches; the bytes of a slot follow from token and position.
"""

from __future__ import annotations

import inspect
import json
import random
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed here")

import torch  # type: ignore[import-not-found, unused-ignore]
from forebay.engines.sglang import check_version
from forebay.engines.sglang.config import read_settings
from forebay.engines.sglang.model import describe
from forebay.engines.sglang.pools import device_parts, tensors_of
from forebay.engines.sglang.ranks import Ranks, carrier_of
from forebay.engines.sglang.startup import CALLED, NAME, Prepared, check_arguments, check_shape
from sglang_toy import until_quiet

PAGE, LAYERS, SLOTS = 4, 3, 128
TOKENS = list(range(100, 130))  # seven pages and two more


@pytest.fixture(scope="module", autouse=True)
def host() -> None:
    """What SGLang needs to run on CPUs, where the rig has it."""
    try:
        import forebay_sglang_host  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return
    forebay_sglang_host.register()


class HfConfig(SimpleNamespace):
    """A configuration of a Hugging Face model."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Rig:
    """SGLang's pools and tree with Forebay behind it, and what its scheduler does with a request."""

    def __init__(self, extra: dict[str, Any], window: int = 0) -> None:
        from forebay.engines.sglang.cache import ForebayRadixCache
        from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
        from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
        from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
        from sglang.srt.mem_cache.unified_cache.components import ComponentType
        from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

        set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", device="cpu", page_size=PAGE))
        self.rows = ReqToTokenPool(size=8, max_context_len=256, device="cpu", enable_memory_saver=False)
        common: dict[str, Any] = {
            "page_size": PAGE, "dtype": torch.float32, "head_num": 1, "head_dim": 2, "device": "cpu",
            "enable_memory_saver": False,
        }  # fmt: skip
        self.window = window
        kinds = [ComponentType.FULL]
        if window:
            self.pool = SWAKVPool(
                size=SLOTS, size_swa=SLOTS, swa_attention_layer_ids=[0, 2], full_attention_layer_ids=[1], **common
            )
            self.allocator = SWATokenToKVPoolAllocator(
                SLOTS, SLOTS, PAGE, torch.float32, "cpu", self.pool, need_sort=False
            )
            kinds.append(ComponentType.SWA)
        else:
            self.pool = MHATokenToKVPool(size=SLOTS, layer_num=LAYERS, **common)
            self.allocator = PagedTokenToKVPoolAllocator(SLOTS, PAGE, torch.float32, "cpu", self.pool, need_sort=False)
        params = CacheInitParams(
            disable=False, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.allocator, page_size=PAGE,
            tree_components=tuple(kinds), sliding_window_size=window or None,
        )  # fmt: skip
        settings = read_settings(None, json.dumps({"pool_bytes": "4MiB", "config": {"log.level": "off"}} | extra))
        config = SimpleNamespace(
            model_path="toy", revision=None, quantization=None, model_override_args={}, hf_config=HfConfig(a=1)
        )
        parts = device_parts(self.pool, PAGE)
        model = describe(config, parts, version="0.5.23", page_tokens=PAGE, ranks=1, window_tokens=window)
        ranks = Ranks(carrier_of(None))
        self.params, self.config = params, config
        self.cache = ForebayRadixCache(params, Prepared(settings, model, ranks, tensors_of(parts), None, None, True))

    def context(self, **changes: Any) -> Any:
        """What SGLang gives to whoever makes a cache."""
        from sglang.srt.mem_cache.registry import TreeCacheBuildContext
        from sglang.srt.server_args import ServerArgs

        arguments = ServerArgs(model_path="dummy", device="cpu", page_size=PAGE, **changes.pop("arguments", {}))
        values: dict[str, Any] = {
            "params": self.params, "model_config": self.config, "is_hybrid_swa": self.window > 0,
            "is_hybrid_ssm": False, "enable_hierarchical_cache": False, "disable_radix_cache": False, "tp_size": 1,
            "tp_rank": 0, "tp_worker": SimpleNamespace(model_runner=SimpleNamespace(forward_stream=None)),
            "tp_group": None, "full_tokens_per_layer": SLOTS,
        }  # fmt: skip
        return TreeCacheBuildContext(arguments, **values | changes)

    def request(self, name: str, tokens: list[int], **changes: Any) -> Any:
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(temperature=0, max_new_tokens=1, custom_params=changes.pop("custom_params", None))
        req = Req(
            rid=name, origin_input_text="", origin_input_ids=array("q", tokens), sampling_params=sampling, **changes
        )
        req.output_ids = array("q")
        return req

    def queue(self, req: Any) -> None:
        """SGLang's own function, whose gate is open."""
        from sglang.srt.managers.scheduler import Scheduler

        scheduler = SimpleNamespace(enable_hicache_storage=False, enable_lmcache=True, tree_cache=self.cache)
        Scheduler._prefetch_kvcache(scheduler, req)

    def until_ready(self, req: Any) -> None:
        while True:
            self.cache.check_hicache_events()
            if self.cache.check_prefetch_progress(req.cache_request_handle):
                break
        tokens, start = self.cache.pop_prefetch_loaded_span(req.cache_request_handle)
        if tokens > 0:
            req.storage_hit_length, req.storage_hit_start = tokens, start

    def admit(self, req: Any) -> tuple[int, int, int]:
        """(device, host, storage) tokens, split as SGLang splits them."""
        from sglang.srt.managers.schedule_batch import split_cached_prefix_by_tier
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

        req.init_next_round_input(self.cache)
        req.host_loaded_length = 0
        if req.needs_host_load_back():
            promised = req.host_hit_length
            req.host_loaded_length, req.last_node = self.cache.init_load_back(
                InitLoadBackParams(best_match_node=req.best_match_node, host_hit_length=promised, req=req)
            )
            assert req.host_loaded_length in (0, promised)
            req.prefix_len += req.host_loaded_length
            req.kv.cache_protected_len = req.prefix_len
        self.cache.finish_storage_prefetch_admission(req.cache_request_handle, 0, None)
        req.lock = self.cache.lock(req.last_node)
        device, host, storage = split_cached_prefix_by_tier(
            req.prefix_len, req.materialized_host_hit_len(), req.storage_hit_length, req.storage_hit_start
        )
        return device, host, storage

    def run(self, req: Any, chunk: int | None = None) -> None:
        """Computes the rest in chunks, compares what was restored, and lets it end."""
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        tokens = len(req.origin_input_ids)
        self.rows.alloc([req])
        prefix = self.cache.prefix_device_indices(req)
        self.compare(req, prefix)
        fresh = self.fresh(-(-(tokens - req.prefix_len) // PAGE) * PAGE)
        slots = torch.cat([prefix, fresh])[:tokens]
        self.rows.write((req.kv.req_pool_idx, slice(0, tokens)), slots.to(torch.int32))
        self.fill(req, slots, req.prefix_len)
        at = req.prefix_len
        while chunk and at + chunk < tokens:
            at += chunk
            self.cache.checkpoint(req, up_to=at)
        req.kv.kv_committed_len = req.kv.kv_allocated_len = tokens
        req.finished_reason = FINISH_LENGTH(length=0)
        release_kv_cache(req, self.cache, checkpoint=True)

    def fresh(self, tokens: int) -> Any:
        """Slots in every pool, as SGLang allocates them for a prefill."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        if self.allocator.available_size() < tokens:
            self.cache.evict(EvictParams(num_tokens=tokens, swa_num_tokens=tokens if self.window else 0))
        if not self.window:
            return self.allocator.alloc(tokens)
        slots = self.allocator.full_attn_allocator.alloc(tokens)
        self.allocator.set_full_to_swa_mapping(slots, self.allocator.swa_attn_allocator.alloc(tokens))
        return slots

    def layers(self, slots: Any) -> Iterator[tuple[int, Any, Any, Any]]:
        """Per layer its number, keys, values, and the slots in its pool; 0: it has left its window."""
        if not self.window:
            yield from ((i, self.pool.k_buffer[i], self.pool.v_buffer[i], slots) for i in range(LAYERS))
            return
        full, window = self.pool.full_kv_pool, self.pool.swa_kv_pool
        yield 1, full.k_buffer[0], full.v_buffer[0], slots
        inside = self.allocator.translate_loc_from_full_to_swa(slots)
        yield from ((2 * i, window.k_buffer[i], window.v_buffer[i], inside) for i in range(2))

    def fill(self, req: Any, slots: Any, start: int) -> None:
        for layer, keys, values, own in self.layers(slots):
            for position in range(start, len(slots)):
                value = 1000.0 * req.origin_input_ids[position] + 10 * position + layer
                keys[own[position]], values[own[position]] = value, -value

    def compare(self, req: Any, slots: Any) -> None:
        for layer, keys, values, own in self.layers(slots):
            first = len(slots) - self.window if self.window and layer != 1 else 0
            for position in range(max(0, first), len(slots)):
                wanted = 1000.0 * req.origin_input_ids[position] + 10 * position + layer
                assert int(own[position]) > 0, (layer, position)
                assert keys[own[position]].unique().tolist() == [wanted], (layer, position)
                assert values[own[position]].unique().tolist() == [-wanted], (layer, position)

    def play(self, name: str, tokens: list[int], chunk: int | None = None, **changes: Any) -> tuple[int, int, int]:
        req = self.request(name, tokens, **changes)
        self.queue(req)
        self.until_ready(req)
        given = self.admit(req)
        self.run(req, chunk)
        return given

    def flush(self) -> None:
        """As the scheduler does when nothing runs."""
        assert not self.cache.has_pending_cache_operations()
        self.cache.reset()
        self.rows.clear()
        self.allocator.clear()

    def quiet(self) -> None:
        """Every slot is free or the tree's, none is locked, and Forebay holds nothing."""
        assert self.cache.full_protected_size() == 0
        if self.window:
            assert self.cache.swa_protected_size() == 0
            assert self.allocator.full_available_size() + self.cache.full_evictable_size() == SLOTS
            assert self.allocator.swa_available_size() + self.cache.swa_evictable_size() == SLOTS
        else:
            assert self.allocator.available_size() + self.cache.evictable_size() == SLOTS
        self.cache.sanity_check()
        connector = self.cache.connector
        assert connector is not None
        until_quiet(connector.cache)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Any]:
    made: list[Rig] = []

    def make(window: int = 0, **extra: Any) -> Rig:
        made.append(Rig({"store": f"file:dir={tmp_path}/s,capacity=16MiB"} | extra, window))
        return made[-1]

    yield make
    for one in made:
        one.cache.shutdown()


def test_this_version_is_one_that_works() -> None:
    import sglang  # type: ignore[import-not-found, unused-ignore]

    check_version(sglang.__version__)


def test_nothing_of_sglang_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, forebay, forebay.engines.sglang, forebay.engines.sglang.plugin, forebay.engines.sglang.connector\n"
        "sys.exit(any(name.partition('.')[0] in ('sglang', 'torch') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_what_is_overridden_and_called_has_the_shape_that_is_counted_on() -> None:
    from forebay.engines.sglang.cache import ForebayRadixCache
    from sglang.srt.mem_cache.base_prefix_cache import BasePrefixCache
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    check_shape(UnifiedRadixCache)
    assert not inspect.isabstract(ForebayRadixCache)
    added = {"has_pending_cache_operations", "new_weights"}
    for name, member in vars(ForebayRadixCache).items():
        if name.startswith("_") or not inspect.isfunction(member) or name in added:
            continue
        theirs = getattr(UnifiedRadixCache, name, getattr(BasePrefixCache, name, None))
        assert theirs is not None, f"SGLang has no {name}"
        mine, wanted = inspect.signature(member).parameters, inspect.signature(theirs).parameters
        if name == "check_prefetch_progress":  # called with one argument, by its place
            continue
        assert list(mine)[1 : len(wanted)] == list(wanted)[1:], name
    assert set(CALLED) <= set(dir(UnifiedRadixCache))


def test_the_scheduler_has_the_gate_that_the_hook_opens() -> None:
    from forebay.engines.sglang.plugin import HOOKED, open_gate
    from sglang.srt.managers.scheduler import Scheduler

    path, _, name = HOOKED.rpartition(".")
    assert (path, name) == (f"{Scheduler.__module__}.{Scheduler.__name__}", "__init__")
    source = inspect.getsource(Scheduler)
    assert "self.enable_lmcache = get_memory().enable_lmcache" in source
    assert source.count("self.enable_hicache_storage or self.enable_lmcache") >= 2
    other = SimpleNamespace(enable_lmcache=False, tree_cache=SimpleNamespace())
    open_gate(None, other)
    assert other.enable_lmcache is False  # another backend: nothing changes
    mine = SimpleNamespace(enable_lmcache=False, tree_cache=SimpleNamespace(connector=object(), gate_open=False))
    open_gate(None, mine)
    assert (mine.enable_lmcache, mine.tree_cache.gate_open) == (True, True)
    changed = SimpleNamespace(tree_cache=SimpleNamespace(connector=object(), gate_open=False))
    open_gate(None, changed)
    assert not changed.tree_cache.gate_open


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in's hooks were applied."""
    from forebay.engines.sglang.plugin import HOOKED
    from sglang.srt.plugins.hook_registry import HookRegistry

    monkeypatch.setattr(HookRegistry, "_patched", {HOOKED})


@pytest.mark.usefixtures("hooked")
def test_the_factory_makes_a_cache_from_sglang_s_context(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from forebay.engines.sglang.config import VARIABLE
    from forebay.engines.sglang.plugin import factory, open_gate

    monkeypatch.setenv(VARIABLE, json.dumps({"store": "mem", "pool_bytes": "4MiB"}))
    with caplog.at_level("INFO"):
        made = factory(rig(8).context(arguments={"hicache_storage_prefetch_policy": "best_effort"}))
    try:
        assert "prefetch.policy=best_effort (--hicache-storage-prefetch-policy)" in caplog.text
        assert [group.trailing for group in made.connector.model.groups] == [0, 2]
        assert not made.gate_open
        scheduler = SimpleNamespace(enable_lmcache=False, tree_cache=made)
        open_gate(None, scheduler)
        assert (made.gate_open, scheduler.enable_lmcache) == (True, True)
    finally:
        made.shutdown()


@pytest.mark.usefixtures("hooked")
def test_what_cannot_work_is_refused_when_the_cache_is_made(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sglang  # type: ignore[import-not-found, unused-ignore]
    from forebay.engines.sglang.plugin import factory
    from sglang.srt.plugins.hook_registry import HookRegistry

    plain, hybrid = rig(), rig(8, store="mem")
    refused: list[tuple[Any, str]] = [
        (plain.context(is_hybrid_ssm=True), "has states, sparse indices or pairs"),
        (plain.context(is_dsa=True), "has states, sparse indices or pairs"),
        (hybrid.context(full_tokens_per_layer=0), "every layer has a sliding window"),
        (plain.context(is_hybrid_swa=True), "kept by a PagedTokenToKVPoolAllocator in a way that is not served"),
        (plain.context(arguments={"disable_radix_cache": True}), "--disable-radix-cache is True"),
        (plain.context(arguments={"hicache_storage_backend_extra_config": '{"polcy": 1}'}), "unknown keys"),
    ]
    for context, text in refused:
        with pytest.raises(ValueError, match=text):
            factory(context)
    monkeypatch.setattr(HookRegistry, "_patched", set())
    with pytest.raises(RuntimeError, match=r"was not applied.*accepted: the argument --enable-lmcache"):
        factory(plain.context())
    monkeypatch.setattr(sglang, "__version__", "0.5.99")
    with pytest.raises(ImportError, match=r"SGLang 0\.5\.99 is not supported .*accepted: 0\.5\.23"):
        factory(plain.context())


@pytest.mark.parametrize(("version", "hooks"), [("0.5.23", 2), ("0.5.99", 0)])
def test_no_hook_is_on_a_sglang_that_is_not_supported(
    version: str, hooks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sglang
    from forebay.engines.sglang import plugin
    from sglang.srt.mem_cache import registry
    from sglang.srt.plugins.hook_registry import HookRegistry

    monkeypatch.setattr(registry, "_RADIX_CACHE_REGISTRY", {})
    hooked: list[str] = []
    monkeypatch.setattr(HookRegistry, "register", lambda target, *_: hooked.append(target))
    monkeypatch.setattr(sglang, "__version__", version)
    plugin.register()
    assert len(hooked) == hooks
    assert list(registry._RADIX_CACHE_REGISTRY) == [NAME]  # choosing it says which versions work


def test_figures_that_cannot_be_told_do_not_reach_the_scheduler(rig: Any) -> None:
    def broken() -> None:
        raise OSError("no space left")

    one = rig()
    one.cache._metrics = SimpleNamespace(update=broken)
    assert one.play("cold", TOKENS) == (0, 0, 0)
    one.quiet()


def test_new_weights_reach_the_cache(rig: Any) -> None:
    from forebay.engines.sglang.plugin import WEIGHTS, weights_changed
    from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager as Updater

    assert f"{Updater.__module__}.{Updater.__name__}.flush_cache_after_weight_update" == WEIGHTS
    assert "scheduler" in Updater.__dataclass_fields__
    one = rig()
    one.play("cold", TOKENS)
    weights_changed((True, ""), SimpleNamespace(scheduler=SimpleNamespace(tree_cache=one.cache)), None, True, "")
    one.flush()
    assert one.play("warm", TOKENS) == (0, 0, 0)
    weights_changed((True, ""), SimpleNamespace(scheduler=SimpleNamespace(tree_cache=object())), None, True, "")
    one.quiet()


def test_pages_of_old_weights_in_the_tree_are_not_kept_until_it_is_flushed(rig: Any) -> None:
    from forebay.engines.sglang.plugin import weights_changed
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    one = rig()
    scheduler = SimpleNamespace(scheduler=SimpleNamespace(tree_cache=one.cache))
    one.play("cold", TOKENS)
    weights_changed((True, ""), scheduler, None, True, "")  # as with flush_cache=False
    assert one.play("late", [*TOKENS, 7, 8, 9]) == (28, 0, 0)
    one.cache.evict(EvictParams(num_tokens=SLOTS))
    assert one.play("later", TOKENS) == (0, 0, 0)
    one.flush()
    weights_changed((True, ""), scheduler, None, True, "")  # as behind a flush
    assert one.play("new", TOKENS) == (0, 0, 0)
    one.flush()
    assert one.play("warm", TOKENS) == (0, 0, 28)
    one.quiet()


def test_an_adapter_is_found_by_its_files(rig: Any, tmp_path: Path) -> None:
    from forebay.engines.sglang.namespace import adapters_of
    from sglang.srt.lora.lora_registry import LoRARef

    place = tmp_path / "adapter"
    place.mkdir()
    ref = LoRARef(LoRARef.deterministic_id("mine", str(place)), "mine", str(place))
    one = rig()
    for weights, given in (("old", 0), ("new", 0), ("old", 28)):
        (place / "adapter_model.safetensors").write_text(weights)
        one.cache._adapters.update(adapters_of(SimpleNamespace(lora_paths=[ref])))
        assert one.play(weights, TOKENS, lora_id=ref.lora_id) == (0, 0, given)
        one.flush()
    one.quiet()


def test_arguments_that_are_looked_at_are_sglang_s() -> None:
    from forebay.engines.sglang.startup import _ONLY
    from sglang.srt.server_args import ServerArgs

    usual = ServerArgs(model_path="dummy", device="cpu")
    missing = [name for name in _ONLY if not hasattr(usual, name)]
    assert missing == []
    check_arguments(usual)
    assert usual.hicache_storage_prefetch_policy == "timeout"
    assert hasattr(usual, "hicache_storage_backend_extra_config")


@pytest.mark.parametrize("window", [0, 4, 6, 8, 100])
@pytest.mark.parametrize("chunk", [None, 3, PAGE, 9])
def test_what_was_computed_is_restored_after_a_flush(rig: Any, chunk: int | None, window: int) -> None:
    one = rig(window)
    assert one.play("cold", TOKENS, chunk) == (0, 0, 0)
    one.flush()
    assert one.play("warm", TOKENS) == (0, 0, 28)
    assert one.play("again", TOKENS) == (28, 0, 0)
    one.quiet()


def test_another_engine_restores_it_from_the_store(rig: Any) -> None:
    first = rig()
    first.play("cold", TOKENS)
    first.cache.shutdown()
    second = rig()
    assert second.play("warm", TOKENS) == (0, 0, 28)
    assert second.play("longer", [*TOKENS, *range(200, 220)]) == (28, 0, 0)
    second.quiet()


@pytest.mark.parametrize("window", [0, 4, 8, 100])
def test_device_and_storage_make_one_prefix(rig: Any, window: int) -> None:
    one = rig(window)
    one.play("cold", TOKENS, 12)  # with windows a checkpoint where the short one resumes
    one.flush()
    assert one.play("short", TOKENS[:14]) == (0, 0, 12)
    assert one.play("whole", TOKENS) == (12, 0, 16)
    one.quiet()


def test_what_the_device_evicted_comes_from_the_pool_as_a_host_hit(rig: Any) -> None:
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    one = rig()
    one.play("cold", TOKENS)
    again = one.request("again", TOKENS)
    one.queue(again)
    one.cache.evict(EvictParams(num_tokens=SLOTS))
    one.until_ready(again)
    assert one.admit(again) == (0, 28, 0)
    one.run(again)
    one.quiet()


def test_equal_prompts_are_counted_once(rig: Any) -> None:
    one = rig()
    one.play("cold", TOKENS)
    one.flush()
    requests = [one.request(f"r{i}", TOKENS) for i in range(4)]
    for req in requests:
        one.queue(req)
    for req in requests:
        one.until_ready(req)
    assert [one.admit(req) for req in requests] == [(0, 0, 28)] + [(28, 0, 0)] * 3
    for req in requests:
        one.run(req)
    one.quiet()


@pytest.mark.parametrize("window", [0, 8])
def test_pages_are_evicted_for_a_load(rig: Any, window: int) -> None:
    one = rig(window)
    one.play("cold", TOKENS)
    one.flush()
    one.play("other", list(range(1000, 1000 + SLOTS - 8)))  # nearly the whole device
    assert one.play("warm", TOKENS) == (0, 0, 28)
    one.quiet()


@pytest.mark.parametrize("window", [0, 8])
def test_a_damaged_page_is_computed_and_nothing_leaks(rig: Any, window: int) -> None:
    import ctypes

    one = rig(window, config={"log.level": "off", "store.verify": "on_load"})
    one.play("cold", TOKENS)
    one.flush()
    warm = one.request("warm", TOKENS)
    one.queue(warm)
    one.until_ready(warm)
    hold = one.cache.connector._entries[warm.cache_request_handle].hold
    address = hold.addresses(0, 3, 4)[0]
    ctypes.memmove(address, bytes([ctypes.string_at(address, 1)[0] ^ 1]), 1)
    assert one.admit(warm) == (0, 0, 0)
    assert (warm.storage_hit_length, warm.host_hit_length) == (0, 0)
    one.run(warm)
    one.quiet()


def test_salts_and_extra_keys_are_apart(rig: Any) -> None:
    one = rig()
    one.play("a", TOKENS, cache_salt="x")
    one.play("b", TOKENS, extra_key="x")
    one.flush()
    assert one.play("c", TOKENS) == (0, 0, 0)
    assert one.play("d", TOKENS, cache_salt="y") == (0, 0, 0)
    assert one.play("e", TOKENS, cache_salt="x") == (0, 0, 28)
    assert one.play("f", TOKENS, extra_key="x") == (0, 0, 28)
    one.quiet()


def test_a_request_s_own_options_arrive(rig: Any) -> None:
    one = rig()
    one.play("a", TOKENS, custom_params={"forebay": {"save": False}})
    one.flush()
    assert one.play("b", TOKENS) == (0, 0, 0)
    one.flush()
    assert one.play("c", TOKENS, custom_params={"forebay": {"load": False}}) == (0, 0, 0)
    one.quiet()


@pytest.mark.parametrize("when", ["never", "queued", "asked", "ready"])
def test_an_abort_in_the_queue_leaves_nothing(rig: Any, when: str) -> None:
    one = rig()
    one.play("cold", TOKENS)
    one.flush()
    gone = one.request("gone", TOKENS)
    if when != "never":
        one.queue(gone)
    if when == "asked":
        one.cache.check_prefetch_progress(gone.cache_request_handle)
    if when == "ready":
        one.until_ready(gone)
    one.cache.release_aborted_request(gone.cache_request_handle)
    one.cache.release_aborted_request(gone.cache_request_handle)
    assert not one.cache.has_pending_cache_operations()
    one.quiet()


def test_nothing_of_ours_reaches_the_scheduler(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    one = rig()
    one.play("cold", TOKENS)
    one.flush()
    one.cache.connector.cache.close(1)  # every call on the cache is an error now
    assert one.play("warm", TOKENS) == (0, 0, 0)
    one.cache.reset()
    assert "the engine goes on without" in caplog.text


def test_after_a_clear_nothing_is_found(rig: Any) -> None:
    one = rig()
    one.play("cold", TOKENS)
    assert one.cache.clear_storage_backend()
    one.flush()
    assert one.play("warm", TOKENS) == (0, 0, 0)
    one.quiet()


def _walk(one: Rig, dice: random.Random, name: str) -> None:
    """A request that ends at any stage; others run and pages are evicted between any two steps of it."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    def meanwhile() -> None:
        if dice.random() < 0.3:
            one.play(f"{name} other", TOKENS[: dice.randrange(1, 30)])
        if dice.random() < 0.3:
            one.cache.evict(EvictParams(num_tokens=dice.randrange(60), swa_num_tokens=dice.randrange(60)))

    stage = dice.randrange(6)
    tokens = [*TOKENS[: dice.randrange(1, 30)], *(dice.randrange(3) for _ in range(dice.randrange(14)))]
    req = one.request(name, tokens)
    for _ in range(dice.randrange(3)):
        one.queue(req)
    meanwhile()
    for _ in range(min(stage, 2)):
        one.until_ready(req)
    meanwhile()
    if stage == 2:
        req.init_next_round_input(one.cache)
    if stage > 2:
        one.admit(req)
        one.run(req, dice.choice([None, 3, 4, 9, 16]))
    else:
        one.cache.release_aborted_request(req.cache_request_handle)
    one.cache.release_aborted_request(req.cache_request_handle)


@pytest.mark.parametrize("window", [0, 6])
def test_whatever_order_requests_come_and_go_in_bytes_are_right_and_nothing_stays(rig: Any, window: int) -> None:
    one = rig(window, policy="timeout", timeout_budget_s=5, chunk_max_blocks=2)
    dice = random.Random(1)
    for i in range(100):
        _walk(one, dice, f"r{i}")
        if dice.random() < 0.05:
            one.flush()
    assert not one.cache.connector._entries
    one.quiet()
