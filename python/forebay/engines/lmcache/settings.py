"""Settings: ``adapter_params`` of the L2 adapter, and Forebay's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..common.model import EngineGroup, EngineModel
from ..common.settings import COMMON, CommonSettings, Keys, read_keys
from .values import HEADER_BYTES

_KEYS: Keys = {**COMMON, "timeout_s": (float, 10.0)}
BLOCK_BYTES = "1MiB"
"""``block_bytes`` where nothing is said."""


ACCEPTED = ("block_bytes", "config", "pool_bytes", "server", "store", "timeout_s")
"""Keys of ``adapter_params``. What other engines' connectors have besides is about policies and copies of ranks."""

LEAST_BLOCK, MOST_BLOCK = 4 << 10, 256 << 20
MOST_TIMEOUT_S = 1e9
LOG_LEVEL = "warn"
"""Forebay's own log says a line for each session, which is one key here."""

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class Settings(CommonSettings):
    """What the adapter goes by.

    Attributes:
        block_bytes: bytes of a value in one block.
        timeout_s: seconds after which a batch ends, whatever the store does.
    """

    block_bytes: int
    timeout_s: float


def _size(name: str, value: Any) -> int:
    """Bytes of a size as a configuration has it: a number, or text with a unit."""
    match = re.fullmatch(r"(\d+)\s*([KMG]iB|B|)", str(value))
    size = 0 if match is None or isinstance(value, bool) else int(match[1]) * _UNITS[match[2]]
    if not LEAST_BLOCK <= size <= MOST_BLOCK:
        raise ValueError(f"{name} is {value!r}; accepted: 4KiB to 256MiB")
    return size


def read_settings(params: Mapping[str, Any]) -> Settings:
    """Settings from ``adapter_params``.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    unknown = sorted(set(params) - set(ACCEPTED))
    if unknown:
        raise ValueError(f"adapter_params has unknown keys {unknown}; accepted: {', '.join(ACCEPTED)}")
    block_bytes = _size("block_bytes", params.get("block_bytes", BLOCK_BYTES))
    others = {key: value for key, value in params.items() if key != "block_bytes"}
    config, origins, own = read_keys("adapter_params", others, _KEYS)
    if not 0 < own["timeout_s"] <= MOST_TIMEOUT_S:
        raise ValueError(f"timeout_s is {own['timeout_s']!r}; accepted: seconds above 0 and up to 1e9")
    if config.get("log.level").origin == "default":
        config.set("log.level", LOG_LEVEL)
        origins["log.level"] = "adapter"
    return Settings(config, origins, block_bytes=block_bytes, **own)


def value_model(settings: Settings) -> EngineModel:
    """The model of a cache of values: one group, a token for each block. ``layout`` names the form of the blocks."""
    fields = {
        "id": "lmcache",
        "revision": "unnamed",
        "kv_dtype": "bytes",
        "layer_set": "value",
        "layout": "lmcache-value-1",
        "weights_epoch": 0,
        "tp_size": 1,
        "cp_size": 1,
        "pp_size": 1,
    }
    payload = settings.block_bytes + HEADER_BYTES
    return EngineModel(fields, 1, (EngineGroup(0, "value", (), 0, payload, True),), 1)
