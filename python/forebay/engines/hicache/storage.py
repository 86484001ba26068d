"""``HiCacheStorage`` of SGLang, over :class:`backend.Backend`. Only shapes are translated here."""

from __future__ import annotations

from typing import Any

import sglang  # type: ignore[import-not-found, unused-ignore]
import torch  # type: ignore[import-not-found, unused-ignore]
from sglang.srt.mem_cache.hicache_storage import (  # type: ignore[import-not-found, unused-ignore]
    HiCacheStorage,
    PoolTransferResult,
)

from .backend import Backend
from .complaints import complain, log
from .config import read_settings
from .naming import facts_of


def _arguments() -> Any:
    """The server's arguments, or None outside of a server."""
    try:
        from sglang.srt.runtime_context import get_server_args  # type: ignore[import-not-found, unused-ignore]

        return get_server_args()
    except Exception as error:
        complain("reading the server's arguments", error)
        return None


class ForebayStorage(HiCacheStorage):  # type: ignore[misc, unused-ignore]
    """Pages of the host pools in Forebay's cache and store (docs/hicache.md).

    Args:
        storage_config: ``HiCacheStorageConfig``; its ``extra_config`` has the settings.
        options: of SGLang's factory; unused.

    Raises:
        ValueError: a setting that is not accepted; SGLang does not start.
        forebay.ConfigError: likewise.
    """

    def __init__(self, storage_config: Any, options: dict[str, Any] | None = None) -> None:
        del options
        settings = read_settings(storage_config.extra_config)
        facts = facts_of(storage_config, _arguments(), str(sglang.__version__))
        self._backend = Backend(settings, storage_config, facts, lambda n: torch.arange(n, dtype=torch.int64))
        self._metrics = bool(storage_config.enable_storage_metrics)

    # ---- Pools ----

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the pool of KV pages."""
        super().register_mem_pool_host(mem_pool_host)
        self._backend.add_pool("kv", mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Takes a pool beside it."""
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._backend.add_pool(str(host_pool_name), host_pool)

    def on_host_pools_registered(self) -> None:
        """All pools are known: opens their caches. What it raises ends the attach."""
        self._backend.open()

    # ---- Version 1 ----

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """Length of the leading run of pages that there are."""
        del extra_info  # the prefix adds nothing: a page's hash stands for all before it
        return self._backend.hits(keys, ()).pages

    def exists(self, key: str) -> bool:
        """Whether there is a page."""
        return self.batch_exists([key]) == 1

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Reads pages into host memory."""
        del extra_info
        return self._backend.get("kv", keys, host_indices)

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Stores pages of host memory."""
        del extra_info
        return self._backend.set("kv", keys, host_indices)

    # ---- Version 2 ----

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """How far the pages of all pools reach together."""
        del extra_info
        hits = self._backend.hits(keys, pool_transfers or ())
        return PoolTransferResult(hits.pages, dict(hits.by_pool), hits.restorable)

    def batch_get_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        """Reads pages of several pools."""
        del extra_info
        return self._backend.move_all(transfers, is_backup=False)

    def batch_set_v2(self, transfers: list[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        """Stores pages of several pools."""
        del extra_info
        return self._backend.move_all(transfers, is_backup=True)

    # ---- The generic interface, which copies through Python: interface_v1 is required, so SGLang does not call it ----

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """None."""
        del key, target_location, target_sizes
        return None

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        """None for each."""
        del target_locations, target_sizes
        return [None] * len(keys)

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """False."""
        del key, value, target_location, target_sizes
        return False

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """False."""
        del keys, values, target_locations, target_sizes
        return False

    # ---- The whole ----

    def clear(self) -> bool:
        """Makes every stored page unreachable. Raises where it cannot: SGLang looks at nothing else."""
        self._backend.clear()
        return True

    def get_stats(self) -> Any:
        """``StorageMetrics`` since the last call; None when SGLang does not want them."""
        if not self._metrics:
            return None
        from sglang.srt.observability.metrics_collector import (  # type: ignore[import-not-found, unused-ignore]
            StorageMetrics,
        )

        made = self._backend.figures()
        return StorageMetrics(
            prefetch_pgs=made.prefetch_pages,
            backup_pgs=made.backup_pages,
            prefetch_bandwidth=made.prefetch_gib_s,
            backup_bandwidth=made.backup_gib_s,
        )

    def close(self) -> None:
        """Ends all calls and closes the caches."""
        self._backend.close()
        log.info("forebay: the storage is closed")
