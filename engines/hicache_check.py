#!/usr/bin/env python3
"""SGLang's own cache over the HiCache backend of Forebay, in one process: no server, no model.

    scripts/with-engine sglang python engines/hicache_check.py [-k PATTERN]

Each test writes pages with one cache, drops it, and has a new cache fetch them: through the store only. Ends with
"N passed, N failed, N skipped".
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import types
import unittest
from array import array
from pathlib import Path
from typing import Any

import forebay_sglang_host  # type: ignore[import-not-found, unused-ignore]
import torch

forebay_sglang_host.register()
# The kit imports a package of data sets that no test of a cache needs.
sys.modules.setdefault("datasets", types.ModuleType("datasets")).__dict__.update(load_dataset=None, Dataset=None)

from forebay.engines.hicache import backend  # noqa: E402
from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType  # noqa: E402
from sglang.srt.runtime_context import get_parallel  # noqa: E402
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler  # noqa: E402
from sglang.test.kits.unified_radix_cache import fixtures  # noqa: E402
from sglang.test.kits.unified_radix_cache.config import CacheConfig  # noqa: E402
from sglang.test.kits.unified_radix_cache.storage import UnifiedRadixCacheStorageFixtures  # noqa: E402

backend.CLOSE_LIMIT_S = 1.0  # what hangs here does so for good
fixtures.get_device = lambda *_arguments, **_keywords: "cpu"

PAGES = 8
FULL = CacheConfig(
    page_size=16, kv_size=256, num_layers=4, full_attention_layer_ids=(0, 1, 2, 3), dtype=torch.float32
)  # fmt: skip
WINDOW = CacheConfig(
    page_size=16, kv_size=512, components=(ComponentType.FULL, ComponentType.SWA), num_layers=4,
    full_attention_layer_ids=(3,), sliding_window_size=32, dtype=torch.float32,
)  # fmt: skip
STATE = CacheConfig(
    page_size=1, kv_size=512, components=(ComponentType.FULL, ComponentType.MAMBA), num_layers=4,
    full_attention_layer_ids=(3,), dtype=torch.float32,
)  # fmt: skip
HUNG_S, SLACK_S = 1.0, 5.0  # a limit of the backend, and what a busy machine may add to it
LIMITS = {"query_limit_s": HUNG_S, "get_limit_s": HUNG_S, "set_limit_s": HUNG_S}


class Restored:
    """What a new cache got of a sequence.

    Attributes:
        tokens: that came from the store.
        is_equal: the KV of these is what was written.
        seconds: of the prefetch.
    """

    def __init__(self, tokens: int, is_equal: bool, seconds: float) -> None:
        self.tokens, self.is_equal, self.seconds = tokens, is_equal, seconds


class HiCacheCheck(UnifiedRadixCacheStorageFixtures, unittest.TestCase):  # type: ignore[misc, unused-ignore]
    """Stories; the store of each is a directory, and what came is compared with what was written."""

    layout = "page_first_direct"
    script = ""  # of faults, for caches that are opened from now on
    extra: dict[str, Any]

    def setUp(self) -> None:
        """One rank."""
        self.extra = {}
        override = get_parallel().override(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1)
        override.__enter__()
        self.addCleanup(override.__exit__, None, None, None)

    def _store(self, directory: str) -> str:
        return f"fault:file:dir={directory},capacity=64MiB" + (f",script={self.script}" if self.script else "")

    def _init_hicache(self, cache: Any, *, storage_dir: str, **_others: Any) -> None:
        """The kit's own, with the dynamic backend in place of its files."""
        extra = {
            "backend_name": "forebay", "module_path": "forebay.engines.hicache", "class_name": "ForebayStorage",
            "interface_v1": 1, "prefetch_threshold": 1, "store": self._store(storage_dir), "pool_bytes": "32MiB",
            **self.extra,
        }  # fmt: skip
        arguments = ServerArgs(
            model_path="dummy", device="cpu", page_size=self.cfg.page_size, hicache_io_backend="direct",
            hicache_mem_layout=self.layout, hicache_write_policy="write_through", hicache_storage_backend="dynamic",
            hicache_storage_prefetch_policy="wait_complete",
            hicache_storage_backend_extra_config=json.dumps(extra),
        )  # fmt: skip
        arguments._mamba_cache_chunk_size = 64
        set_global_server_args_for_scheduler(arguments)
        cache.init_hicache(arguments, cache.cache_init_params)
        self.addCleanup(fixtures.drop_hicache_atexit_pin, cache)
        self.addCleanup(cache.release_host_resources)
        self.addCleanup(self._leave, cache)
        cache.write_through_threshold, cache.load_back_threshold = 1 << 30, 0
        controller = cache.cache_controller
        controller.prefetch_capacity_limit = max(controller.prefetch_capacity_limit, controller.mem_pool_host.size)

    @staticmethod
    def _leave(cache: Any) -> None:
        if cache.cache_controller.storage_backend is not None:
            cache.cache_controller.detach_storage_backend()

    @staticmethod
    def _match(cache: Any, tokens: list[int], cache_salt: str | None) -> Any:
        return cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens), cache_salt=cache_salt)))

    def _produce(
        self, cfg: CacheConfig, cache_salt: str | None = None, directory: str | None = None
    ) -> tuple[str, list[int], Any]:
        """Directory, tokens, and the KV of all of them, written by a cache that is gone."""
        self.cfg = cfg
        directory = directory or self._make_storage_dir()
        cache, allocator, requests = fixtures.build_fixture(cfg)
        self._init_hicache(cache, storage_dir=directory)
        tokens = self._make_seq(1, PAGES)
        self._insert(cache, allocator, requests, tokens, cache_salt=cache_salt)
        leaf = self._match(cache, tokens, cache_salt).last_device_node
        indices = cache.path_device_indices(leaf)
        self._fill_full_kv(allocator, indices, marker=3)
        written = self._snapshot_full_kv(allocator, indices)
        self._backup_node(cache, leaf)
        self._write_path_to_l3(cache, leaf)
        self._flush_l3_backups(cache)
        self._leave(cache)
        return directory, tokens, written

    def _consume(self, directory: str, tokens: list[int], written: Any, cache_salt: str | None = None) -> Restored:
        """A new cache fetches the tokens, and what came is loaded and compared."""
        cache, allocator, _ = fixtures.build_fixture(self.cfg)
        self._init_hicache(cache, storage_dir=directory)
        handle = CacheRequestHandle("r", 0)
        began = time.monotonic()
        root = cache.root_node_handle()
        cache.prefetch_from_storage(handle, root, array("q", tokens), None, None, cache_salt=cache_salt)
        self._run_prefetch_to_completion(cache, handle)
        seconds = time.monotonic() - began
        span, _start = cache.pop_prefetch_loaded_span(handle)
        match = self._match(cache, tokens, cache_salt)
        if match.host_hit_length > 0:
            self._load_back_node(cache, match.last_host_node)
        match = self._match(cache, tokens, cache_salt)
        assert match.device_prefix_len == span
        got = self._snapshot_full_kv(allocator, cache.path_device_indices(match.last_device_node)) if span else []
        is_equal = all(
            torch.equal(one, other[: len(one)]) for one, other in zip(_flat(got), _flat(written), strict=span > 0)
        )
        self._leave(cache)
        return Restored(span, is_equal, seconds)

    def test_full_attention_comes_back_through_version_1(self) -> None:
        """Full attention, through version 1 of the interface."""
        restored = self._consume(*self._produce(FULL))
        assert (restored.tokens, restored.is_equal) == (PAGES * 16, True)

    def test_window_pages_come_back_through_version_2(self) -> None:
        """A sliding window beside it, through version 2."""
        restored = self._consume(*self._produce(WINDOW))
        assert (restored.tokens, restored.is_equal) == (PAGES * 16, True)

    def test_without_its_window_a_prefix_is_not_taken(self) -> None:
        """The window's pages are gone from the store: the full-attention pages alone are no place to resume at."""
        directory, tokens, written = self._produce(WINDOW)
        for place in Path(directory).glob("swa-*"):
            shutil.rmtree(place)
        restored = self._consume(directory, tokens, written)
        assert restored.tokens == 0

    def test_a_state_comes_back_through_version_2(self) -> None:
        """A state (Mamba) beside it: pages of another size and number."""
        restored = self._consume(*self._produce(STATE))
        assert (restored.tokens, restored.is_equal) == (PAGES, True)

    def test_other_namespaces_find_nothing(self) -> None:
        """SGLang's salt is in its hashes."""
        directory, tokens, written = self._produce(FULL, cache_salt="a")
        assert self._consume(directory, tokens, written).tokens == 0
        assert self._consume(directory, tokens, written, cache_salt="b").tokens == 0
        restored = self._consume(directory, tokens, written, cache_salt="a")
        assert (restored.tokens, restored.is_equal) == (PAGES * 16, True)

    def test_a_damaged_page_ends_the_prefix_before_it(self) -> None:
        """What lies before it comes back, and is right."""
        directory, tokens, written = self._produce(FULL)
        self.script = "get:*:times=1:corrupt(12345)"
        restored = self._consume(directory, tokens, written)
        assert restored.tokens < PAGES * 16
        assert restored.is_equal

    def test_a_store_whose_reads_hang_is_a_miss_in_time(self) -> None:
        """The prefetch ends by the backend's limit."""
        directory, tokens, written = self._produce(FULL)
        self.script, self.extra = "get:*:hang", LIMITS
        restored = self._consume(directory, tokens, written)
        assert restored.tokens == 0
        assert restored.seconds < HUNG_S + SLACK_S

    def test_a_store_whose_answers_hang_is_a_miss_in_time(self) -> None:
        """Likewise, for the question which pages there are."""
        directory, tokens, written = self._produce(FULL)
        self.script, self.extra = "exists:*:hang", LIMITS
        restored = self._consume(directory, tokens, written)
        assert restored.tokens == 0
        assert restored.seconds < HUNG_S + SLACK_S

    def test_a_store_whose_writes_hang_lets_go_of_the_pages(self) -> None:
        """The backup ends, with its locks on the tree, and nothing of it is found."""
        self.script, self.extra = "put:*:hang", LIMITS
        directory, tokens, written = self._produce(FULL)
        self.script, self.extra = "", {}
        assert self._consume(directory, tokens, written).tokens == 0

    def test_whatever_fails_at_random_what_came_is_right(self) -> None:
        """SGLang's own injector of failures, and damage in the store."""
        directory, tokens, written = self._produce(WINDOW)
        with envs.SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE.override(0.3):
            for turn in range(10):
                self.script = f"get:*:p=0.2:corrupt({turn * 997})"
                assert self._consume(directory, tokens, written).is_equal

    def test_what_was_cleared_is_found_by_nobody(self) -> None:
        """Neither by the cache that cleared it, nor by one that starts later; what is stored then is found."""
        directory, tokens, written = self._produce(FULL)
        cache, _, _ = fixtures.build_fixture(FULL)
        self._init_hicache(cache, storage_dir=directory)
        assert cache.clear_storage_backend()
        self._leave(cache)
        assert self._consume(directory, tokens, written).tokens == 0
        restored = self._consume(*self._produce(FULL, directory=directory))
        assert (restored.tokens, restored.is_equal) == (PAGES * 16, True)

    def test_a_setting_that_is_not_known_ends_the_start(self) -> None:
        """It is named."""
        self.cfg, self.extra = FULL, {"polcy": "timeout"}
        cache, _, _ = fixtures.build_fixture(FULL)
        with self.assertRaisesRegex(ValueError, r"unknown keys .'polcy'.; accepted: config, get_limit_s"):  # noqa: PT027
            self._init_hicache(cache, storage_dir=self._make_storage_dir())


def _flat(snapshot: Any) -> list[torch.Tensor]:
    return list(snapshot) if isinstance(snapshot, (list, tuple)) else [snapshot]


def main() -> int:
    """Runs the stories; 1: one failed."""
    program = unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]], exit=False)
    result = program.result
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
