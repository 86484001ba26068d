"""How a server of SGLang is started with Forebay in it, a way for each surface, and what Forebay says of a request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from exact_judge import Restored
from sglang_rows import PAGE, Rig
from sglang_server import Engine

ROOT = Path(__file__).resolve().parent.parent
KEY_TOKENS = 8  # of a page's key (docs/hicache.md)
HICACHE = {
    "enable_hierarchical_cache": True,
    "hicache_size": 1,
    "hicache_io_backend": "direct",
    "hicache_mem_layout": "page_first_direct",
    "hicache_write_policy": "write_through",
    "hicache_storage_backend": "dynamic",
}


class Account(Protocol):
    """What Forebay says that it did for requests."""

    def mark(self) -> None:
        """What comes from here on belongs to the next request, for a surface that does not know requests."""

    def of(self, name: str) -> Restored | None:
        """Of the request `name`; None: nothing is known of it."""


class RequestJournal:
    """One line for each request (docs/sglang.md)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> None:
        """See :class:`Account`."""

    def of(self, name: str) -> Restored | None:
        """See :class:`Account`."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        rows = [row for row in map(json.loads, lines) if row["request"] == name]
        if not rows:
            return None
        first = rows[0]  # a request that is taken back comes again; SGLang counts its first time
        return Restored(**{key: first[key] for key in Restored.__dataclass_fields__ if key in first})


class PageCounter:
    """Forebay's counters, for a surface that asks for pages and not for requests: of what was asked for alone.

    Args:
        delivered: tokens that results were taken of so far; a page counts for as many as its key has.
    """

    def __init__(self, delivered: Callable[[], float]) -> None:
        self._delivered, self._before = delivered, 0.0

    def mark(self) -> None:
        """See :class:`Account`."""
        self._before = self._delivered()

    def of(self, name: str) -> Restored | None:
        """See :class:`Account`."""
        del name
        tokens = int(self._delivered() - self._before) // KEY_TOKENS * PAGE
        return Restored(delivered=tokens, matched=tokens, reason="")


def settings_of(rig: Rig, store: str, directory: Path, port: int, pool: str, socket: Path | None) -> dict[str, Any]:
    """Forebay's plain keys. `port`: of its metrics; `socket`: of the server that has the cache."""
    place: dict[str, Any] = {"journal": str(directory / "journal")}
    if socket is not None:
        return {**place, "server": str(socket)}
    config = {"log.level": "warn", "metrics.listen": f"127.0.0.1:{port}", **rig.settings.get("config", {})}
    return {**rig.settings, **place, "config": config, "store": store, "pool_bytes": pool}


def _radix(rig: Rig, settings: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"radix_cache_backend": "forebay"}
    if rig.policy is not None:
        options["hicache_storage_prefetch_policy"] = rig.policy
    return {"options": options, "variables": {"FOREBAY_SGLANG": json.dumps(settings)}}


def _flexkv(rig: Rig, settings: Mapping[str, Any]) -> dict[str, Any]:
    way = _radix(rig, settings)
    del way["options"]["radix_cache_backend"]
    return {**way, "options": {**way["options"], "enable_flexkv": True}}


def _hicache(rig: Rig, settings: Mapping[str, Any]) -> dict[str, Any]:
    extra = {
        "backend_name": "forebay",
        "module_path": "forebay.engines.hicache",
        "class_name": "ForebayStorage",
        "interface_v1": 1,
        "prefetch_threshold": PAGE,
        **{key: value for key, value in settings.items() if key != "journal"},
    }
    options = {**HICACHE, "hicache_storage_backend_extra_config": extra}
    return {"options": {**options, "hicache_storage_prefetch_policy": rig.policy or "wait_complete"}}


_WAYS = {"radix": _radix, "flexkv": _flexkv, "hicache": _hicache}


def engine_of(rig: Rig, model: Path, settings: Mapping[str, Any]) -> Engine:
    """The server of a rig."""
    described: dict[str, Any] = {"page_tokens": PAGE, **rig.engine}
    for name, values in _WAYS[rig.surface](rig, settings).items():
        described[name] = {**values, **described.get(name, {})}
    return Engine(model, **described)


def account_of(rig: Rig, directory: Path, delivered: Callable[[], float]) -> Account:
    """Where Forebay says what it did. `delivered`: see :class:`PageCounter`."""
    return PageCounter(delivered) if rig.surface == "hicache" else RequestJournal(directory / "journal")


def prepare() -> None:
    """Makes `flexkv` importable for servers. Before the first one starts."""
    paths = [str(ROOT / "flexkv" / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
