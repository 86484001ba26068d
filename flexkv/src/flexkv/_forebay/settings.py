"""Settings: Forebay's from ``FOREBAY_SGLANG``, and what FlexKV's variables and configuration file mean here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.engines.common.settings import COMMON, CommonSettings, Keys, read_keys
from forebay.engines.sglang.config import POLICY_ARGUMENT, VARIABLE, keys_in, policy_given

from .log import log

_KEYS: Keys = {**COMMON, "match_wait_s": (float, 0.0)}

GIB = 1 << 30


@dataclass(frozen=True)
class Settings(CommonSettings):
    """What the integration goes by.

    Attributes:
        match_wait_s: how long a match without a prefetch before it waits for the store.
        is_device_named: ``device`` was given; else the tensors decide.
        prefetch: prefetches are asked for: there is a store to read from.
    """

    match_wait_s: float
    is_device_named: bool
    prefetch: bool


@dataclass(frozen=True, slots=True)
class _Meaning:
    """A value of FlexKV: its key in the file, its variable, and the key of Forebay's that it sets."""

    name: str
    variable: str
    key: str
    read: Callable[[Any], Any]


def _gib(value: Any) -> str:
    return f"{int(float(value) * GIB)}B"


_MEANINGS = (
    _Meaning("cpu_cache_gb", "FLEXKV_CPU_CACHE_GB", "pool.bytes", _gib),
    _Meaning("prefetch_max_sessions", "FLEXKV_PREFETCH_MAX_SESSIONS", "prefetch.max_sessions", int),
    _Meaning(
        "prefetch_max_reserved_bytes", "FLEXKV_PREFETCH_MAX_RESERVED_BYTES", "prefetch.max_reserved_bytes", "{}B".format
    ),
    _Meaning(
        "prefetch_max_pinned_bytes", "FLEXKV_PREFETCH_MAX_PINNED_BYTES", "prefetch.max_pinned_bytes", "{}B".format
    ),
    _Meaning("prefetch_result_ttl_s", "FLEXKV_PREFETCH_RESULT_TTL_S", "prefetch.result_ttl_s", float),
)

_OPTIONS = (
    "chunk_max_blocks", "max_inflight_chunks", "timeout_base_s", "timeout_per_ki_token_s", "timeout_max_s",
    "timeout_budget_s",
)  # fmt: skip

_OTHERS = {
    "ssd_cache_gb": "FLEXKV_SSD_CACHE_GB",
    "ssd_cache_dir": "FLEXKV_SSD_CACHE_DIR",
    "enable_chunked_prefetch": "FLEXKV_ENABLE_CHUNKED_PREFETCH",
    "prefetch_options": "FLEXKV_PREFETCH_OPTIONS",
}

# Read where they are needed, or by SGLang itself.
_READ_ELSEWHERE = {
    "FLEXKV_CONFIG_PATH", "FLEXKV_SERVER_RECV_PORT", "FLEXKV_ENABLE_LAYERWISE_TRANSFER",
    "FLEXKV_LAYERWISE_EVENTFD_SOCKET", "FLEXKV_LAYERWISE_EVENTFD_CONNECT_MAX_RETRIES",
}  # fmt: skip

_warned: set[str] = set()


def read_own(environment: Mapping[str, str]) -> dict[str, Any]:
    """What ``FOREBAY_SGLANG`` holds.

    Raises:
        ValueError: it cannot be read; the message says what is accepted.
    """
    return keys_in(environment.get(VARIABLE), VARIABLE)


def read_flexkv(environment: Mapping[str, str]) -> dict[str, Any]:
    """FlexKV's values by their names in its file; the file wins over variables. What has no meaning is logged once.

    Raises:
        ValueError: the file cannot be read, or is no mapping.
    """
    names = {one.name: one.variable for one in _MEANINGS} | _OTHERS
    made: dict[str, Any] = {name: environment[variable] for name, variable in names.items() if variable in environment}
    path = environment.get("FLEXKV_CONFIG_PATH")
    given = keys_in(f"@{path}" if path else None, "FLEXKV_CONFIG_PATH")
    known = set(names.values()) | _READ_ELSEWHERE
    without = sorted({name for name in environment if name.startswith("FLEXKV_")} - known)
    without += sorted(set(given) - set(names))
    if set(without) - _warned:
        _warned.update(without)
        log.warning("forebay: %s: no meaning with Forebay behind the name flexkv (docs/flexkv.md)", ", ".join(without))
    return made | {name: value for name, value in given.items() if name in names}


def _is_on(value: Any) -> bool:
    return str(value).strip().lower() in ("1", "true", "yes", "on")


def _options(values: Mapping[str, Any]) -> dict[str, Any]:
    given = values.get("prefetch_options") or {}
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError as error:
            raise ValueError(f"prefetch_options cannot be read: {error}; accepted: a JSON object") from error
    if not isinstance(given, dict):
        raise ValueError(f"prefetch_options is a {type(given).__name__}; accepted: a mapping")
    unknown = sorted(set(given) - {"policy", *_OPTIONS})
    if unknown:
        raise ValueError(f"prefetch_options has unknown keys {unknown}; accepted: policy, {', '.join(_OPTIONS)}")
    return given


def _store_of(values: Mapping[str, Any]) -> str | None:
    """FlexKV's SSD tier as a file store.

    Raises:
        ValueError: no directory, or several.
    """
    size = float(values.get("ssd_cache_gb", 0))
    if size <= 0:
        return None
    given = values.get("ssd_cache_dir", "./flexkv_ssd")
    places = [str(one).strip() for one in (given if isinstance(given, list) else str(given).split(";"))]
    places = [one for one in places if one]
    if len(places) != 1:
        raise ValueError(f"ssd_cache_dir names {len(places)} directories; accepted: one")
    return f"file:dir={places[0]},capacity={int(size * GIB)}B"


def _read(name: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; accepted: a number") from None


def _policy_of(values: Mapping[str, Any], options: Mapping[str, Any], server_args: Any) -> tuple[Any, str] | None:
    """The policy of FlexKV's switch, or of the engine's argument; with the name that it came from.

    With the switch on, the argument counts whether it was given or not, as in FlexKV; with no word of the switch, only
    when it was given; with the switch off, nothing does.
    """
    switch, named = values.get("enable_chunked_prefetch"), options.get("policy")
    if switch is None and named is None:
        return policy_given(server_args) if server_args is not None else None
    if switch is not None and _is_on(switch):
        flag = getattr(server_args, "hicache_storage_prefetch_policy", None)
        return (named, "prefetch_options") if named else (str(flag), POLICY_ARGUMENT) if flag else None
    if named not in (None, "wait_complete"):
        log.warning("forebay: prefetch_options.policy %s has no effect without enable_chunked_prefetch", named)
    return None


def _engine_values(values: Mapping[str, Any], server_args: Any) -> dict[str, tuple[Any, str]]:
    """Forebay's keys that FlexKV's values set; each with the name that it came from."""
    made: dict[str, tuple[Any, str]] = {}
    for one in _MEANINGS:
        if one.name in values:
            made[one.key] = (_read(one.name, values[one.name], one.read), one.name)
    options = _options(values)
    for name in _OPTIONS:
        if options.get(name) is not None:
            made[f"prefetch.{name}"] = (options[name], "prefetch_options")
    policy = _policy_of(values, options, server_args)
    if policy is not None:
        made["prefetch.policy"] = policy
    return made


def read_settings(environment: Mapping[str, str] | None = None, server_args: Any = None) -> Settings:
    """Settings of a server.

    Highest first: Forebay's configuration and variables; ``FOREBAY_SGLANG``; FlexKV's file; FlexKV's variables; the
    engine's argument; defaults.

    Args:
        environment: None: the process's.
        server_args: SGLang's ``ServerArgs``, or None.

    Raises:
        ValueError: a key or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    environment = os.environ if environment is None else environment
    extra, values = read_own(environment), read_flexkv(environment)
    store = _store_of(values)
    if store is not None and "store" not in extra:
        extra["store"] = store
    config, origins, own = read_keys(VARIABLE, extra, _KEYS, _engine_values(values, server_args))
    if config.get("store.driver").origin == "default" and own["server"] is None:
        config.set("store.driver", "mem")  # as FlexKV without an SSD: CPU memory alone
        config.set("store.write", "off")
        origins["store.driver"] = origins["store.write"] = "no store is named"
    has_store = own["server"] is not None or origins.get("store.write") != "no store is named"
    return Settings(config, origins, **own, is_device_named="device" in extra, prefetch=has_store)
