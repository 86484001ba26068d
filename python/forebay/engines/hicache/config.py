"""Settings: ``--hicache-storage-backend-extra-config``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.settings import CommonSettings, Keys, read_keys

WHAT = "hicache-storage-backend-extra-config"

# What SGLang reads from the same mapping, and leaves in it.
_ENGINE = frozenset({"backend_name", "module_path", "class_name", "interface_v1"})

_OWN: Keys = {
    "server": (str, None),
    "query_limit_s": (float, 2.0),
    "get_limit_s": (float, 5.0),
    "set_limit_s": (float, 10.0),
    "window": (int, 64),
    "read_ahead": (bool, True),
}
_LIMITS = ("query_limit_s", "get_limit_s", "set_limit_s")
_MOST_LIMIT_S, _MOST_WINDOW = 3600.0, 512

# Short names of Forebay's keys that have a meaning here: others are about the requests' sessions, which HiCache has.
_FOREBAY = ("config", "pool_bytes", "store")

# A session is one page here, and logs a line at level info.
_DEFAULTS = {"prefetch.max_sessions": (2048, "hicache"), "log.level": ("warn", "hicache")}

_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("", "KiB", "MiB", "GiB", "TiB"))}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the backend goes by.

    Attributes:
        extra: the mapping, without SGLang's keys: each pool's cache has a configuration of its own, read from it.
        server: socket of a server that has the cache, or None.
        query_limit_s: longest time of a question which pages there are.
        get_limit_s: longest time of reading a batch of pages.
        set_limit_s: longest time of writing one.
        window: pages of one call that are on their way at once, at most.
        read_ahead: pages that a question finds are read at once.
    """

    extra: dict[str, Any]
    server: str | None
    query_limit_s: float
    get_limit_s: float
    set_limit_s: float
    window: int
    read_ahead: bool


def read_settings(extra: Mapping[str, Any] | None) -> Settings:
    """Settings from the mapping that SGLang passes on.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    given = dict(extra or {})
    if not given.get("interface_v1"):
        raise ValueError(f"interface_v1 is {given.get('interface_v1')!r} in {WHAT}; accepted: 1")
    own = {key: value for key, value in given.items() if key not in _ENGINE}
    accepted = sorted({*_FOREBAY, *_OWN})
    unknown = sorted(set(own) - set(accepted))
    if unknown:
        raise ValueError(f"{WHAT} has unknown keys {unknown}; accepted: {', '.join(accepted)}")
    values = read_keys(WHAT, own, _OWN, _DEFAULTS).own
    for name in _LIMITS:
        if not 0 < values[name] <= _MOST_LIMIT_S:
            raise ValueError(f"{name} is {values[name]!r}; accepted: seconds above 0 and up to {_MOST_LIMIT_S:g}")
    if not 1 <= values["window"] <= _MOST_WINDOW:
        raise ValueError(f"window is {values['window']!r}; accepted: 1 to {_MOST_WINDOW}")
    return Settings(own, **values)


def bytes_of(text: str) -> int:
    """Bytes of a size as a configuration prints it.

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"(\d+)(?:([KMGT]iB)|B?)", text)
    if match is None:
        raise ValueError(f"a size is {text!r}; accepted: a number with KiB, MiB, GiB or TiB")
    return int(match[1]) * _UNITS[match[2] or ""]


def pool_settings(settings: Settings, share: float, place: str) -> CommonSettings:
    """Settings of one pool's cache.

    Args:
        settings: of the backend.
        share: of the bytes of all pools, above 0 and up to 1.
        place: names the pool and the rank: a directory belongs to one cache of one process.

    Raises:
        ValueError: bytes are given by group while there are several pools.
    """
    read = read_keys(WHAT, settings.extra, _OWN, _DEFAULTS)
    config = read.config
    if share < 1:
        if config.get("pool.group_bytes").value != "unset":
            raise ValueError("pool.group_bytes is set, and this model has several pools; accepted: pool_bytes")
        config.set("pool.bytes", int(bytes_of(config.get("pool.bytes").value) * share))
    if _driver(config) == "file":
        for key in ("store.options.dir", "store.options.dirs"):
            _below(config, key, place)
    return CommonSettings(config, read.origins, True, "host", 1, None, settings.server, False)


def _driver(config: Any) -> str:
    """The driver that has the objects, without a wrapper."""
    return str(config.get("store.driver").value).rpartition(":")[2]


def _below(config: Any, key: str, place: str) -> None:
    """Makes directories of a store those of one place below them."""
    given = next((row.value for row in config.each() if row.key == key), None)
    if given is None:
        return
    parts = given.split(":") if key.endswith("dirs") else [given]
    for part in parts:
        Path(part).mkdir(parents=True, exist_ok=True)  # the store makes the last directory of a path only
    config.set(key, ":".join(str(Path(part) / place) for part in parts))


def has_files(settings: CommonSettings) -> bool:
    """Whether the store belongs to one process."""
    return settings.server is None and _driver(settings.config) in ("file", "mem")
