"""Settings: ``kv_connector_extra_config`` of the engine, ``kv_transfer_params`` of a request, Forebay's configuration.

Precedence, highest first: a request's own parameters; Forebay's configuration (``config``: keys or a file; then the
environment ``FOREBAY_*``); the plain keys beside it, which are the engine's arguments; Forebay's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import forebay

from .complaints import log
from .stores import parse_store

# Plain keys of the extra configuration that stand for a key of Forebay's.
_SHORT = {
    "policy": "prefetch.policy",
    "stop_mode": "prefetch.stop_mode",
    "predictive": "prefetch.predictive",
    "timeout_budget_s": "prefetch.timeout_budget_s",
    "min_tokens": "prefetch.min_tokens",
    "chunk_max_blocks": "prefetch.chunk_max_blocks",
    "max_inflight_chunks": "prefetch.max_inflight_chunks",
    "recompute_tokens_per_s": "prefetch.recompute_tokens_per_s",
    "pool_bytes": "pool.bytes",
}

# The connector's own keys: type, default.
_OWN: dict[str, tuple[type, Any]] = {
    "sync_load": (bool, False),
    "save": (bool, True),
    "device": (str, "host"),
    "copy_threads": (int, 1),
    "journal": (str, None),
    "server": (str, None),
    "reset_bumps_epoch": (bool, False),
    "idle_wait_ms": (float, 1.0),
}

_EVERY = sorted({"config", "store", *_SHORT, *_OWN})

# Keys that a session may name for itself, and how their text is read.
_SESSION: dict[str, Callable[[str], Any]] = {
    "prefetch.policy": str,
    "prefetch.stop_mode": str,
    "prefetch.predictive": lambda text: text == "true",
    "prefetch.timeout_budget_s": float,
    "prefetch.min_tokens": int,
}

_SHOWN = ("prefetch.", "pool.bytes", "pool.group_bytes", "store.driver", "store.host", "store.verify", "store.write")


def _whole_config(given: Any) -> forebay.Config:
    if given is None or isinstance(given, Mapping):
        return forebay.Config(given)
    if isinstance(given, (str, os.PathLike)):
        return forebay.Config(path=given)
    raise TypeError(f"config is a {type(given).__name__}; accepted: the path of a file, or a mapping of keys")


def _set_default(config: forebay.Config, origins: dict[str, str], key: str, value: Any) -> None:
    """Sets a key that neither configuration nor environment has."""
    if config.get(key).origin == "default":
        config.set(key, value)
        origins[key] = "engine"


def _take_store(config: forebay.Config, origins: dict[str, str], text: str) -> None:
    if config.get("store.driver").origin != "default":
        return
    store = parse_store(text)
    _set_default(config, origins, "store.driver", store.driver)
    if store.host is not None:
        _set_default(config, origins, "store.host", store.host)
    for name, value in store.options.items():
        config.set(f"store.options.{name}", value)


def _decide_runtime(config: forebay.Config, origins: dict[str, str]) -> None:
    """No chunk runtime for an effective policy of wait_complete; one for every other (docs/policies.md)."""
    policy, enabled = config.get("prefetch.policy").value, config.get("prefetch.enabled")
    wanted = policy != "wait_complete"
    if enabled.origin == "default":
        config.set("prefetch.enabled", wanted)
        origins["prefetch.enabled"] = f"follows from policy {policy}"
    elif wanted and enabled.value != "true":
        raise ValueError(f"prefetch.enabled is false ({enabled.origin}) but the policy is {policy!r}; accepted: true")


@dataclass(frozen=True)
class Settings:
    """What the engine's side of the connector goes by.

    Attributes:
        config: for the cache; the model's fields are still missing.
        origins: where a value came from that neither configuration nor environment gave, by key.
        sync_load: loads before the forward of the step that matched, in place of between steps.
        save: computed blocks are put into the cache.
        device: back end of the ranks' copies, ``"host"`` or ``"cuda"``.
        copy_threads: threads of one rank's host copies.
        journal: file that gets one JSON line per finished request, or None.
        server: socket of a server that has the cache, or None: the cache is in the scheduler's process.
        reset_bumps_epoch: a reset of the engine's cache makes the store's objects unreachable too.
        idle_wait_ms: how long a step with nothing to run waits for a prefetch to end, instead of asking again at once.
    """

    config: forebay.Config
    origins: dict[str, str]
    sync_load: bool
    save: bool
    device: str
    copy_threads: int
    journal: str | None
    server: str | None
    reset_bumps_epoch: bool
    idle_wait_ms: float

    def effective(self) -> list[forebay.Setting]:
        """The settings that matter for prefetching, with the origin of each."""
        rows = []
        for row in self.config.each():
            if row.key.startswith(_SHOWN):
                rows.append(forebay.Setting(row.key, row.value, self.origins.get(row.key, row.origin)))
        return rows

    def session_options(self) -> dict[str, Any]:
        """Arguments of every session. {} for an own cache, whose configuration has them; a server has its own."""
        if self.server is None:
            return {}
        rows = {row.key.removeprefix("prefetch."): row for row in self.config.each() if row.key in _SESSION}
        return {name: _SESSION[row.key](row.value) for name, row in rows.items() if row.origin != "default"}

    def log_once(self) -> None:
        """One line with what is in force; defaults are left out."""
        rows = [row for row in self.effective() if row.origin != "default" or row.key == "prefetch.policy"]
        log.info("forebay: %s", ", ".join(f"{row.key}={row.value} ({row.origin})" for row in rows))


def _own(extra: Mapping[str, Any], name: str) -> Any:
    kind, default = _OWN[name]
    value = extra.get(name, default)
    if value is default:
        return value
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}; accepted: a {kind.__name__}")
    if kind in (int, float) and not (isinstance(value, (int, float)) and value >= 0):
        raise ValueError(f"{name} is {value!r}; accepted: a number from 0 on")
    return value


def read_settings(extra: Mapping[str, Any]) -> Settings:
    """Settings from ``kv_connector_extra_config``.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    unknown = sorted(set(extra) - set(_EVERY))
    if unknown:
        raise ValueError(f"kv_connector_extra_config has unknown keys {unknown}; accepted: {', '.join(_EVERY)}")
    config, origins = _whole_config(extra.get("config")), dict[str, str]()
    for short, key in _SHORT.items():
        if short in extra:
            _set_default(config, origins, key, extra[short])
    if "store" in extra:
        _take_store(config, origins, str(extra["store"]))
    _decide_runtime(config, origins)
    own = {name: _own(extra, name) for name in _OWN}
    if own["device"] not in ("host", "cuda"):
        raise ValueError(f"device is {own['device']!r}; accepted: host, cuda")
    return Settings(config, origins, **own)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a request says for itself, in ``kv_transfer_params``: flat, or under ``"forebay"``.

    Attributes:
        session: arguments of :meth:`forebay.Cache.start`.
        load: False: nothing is restored.
        save: False: nothing is kept.
        tenant: a part of the namespace, or None.
    """

    session: dict[str, Any]
    load: bool = True
    save: bool = True
    tenant: str | None = None


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


_REQUEST_KEYS: dict[str, Callable[[Any], bool]] = {
    "policy": lambda value: value in tuple(forebay.Policy),
    "stop_mode": lambda value: value in tuple(forebay.StopMode),
    "predictive": _is_truth,
    "timeout_budget_s": _is_amount,
    "min_tokens": lambda value: _is_amount(value) and isinstance(value, int),
    "load": _is_truth,
    "save": _is_truth,
    "tenant": lambda value: isinstance(value, str),
}
_OTHERS = frozenset({"load", "save", "tenant"})


def read_request(params: Mapping[str, Any] | None) -> RequestOptions:
    """A request's options. What is not accepted is left out, with a line in the log: a request never fails for it.

    Keys of other connectors may stand beside ours when ours are under ``"forebay"``.
    """
    if not params:
        return RequestOptions({})
    nested = params.get("forebay")
    given = nested if isinstance(nested, Mapping) else {key: params[key] for key in _REQUEST_KEYS if key in params}
    taken = {}
    for key, value in given.items():
        if key in _REQUEST_KEYS and _REQUEST_KEYS[key](value):
            taken[key] = value
        else:
            log.warning("forebay: kv_transfer_params: %s=%r is not accepted and has no effect", key, value)
    session = {key: value for key, value in taken.items() if key not in _OTHERS}
    return RequestOptions(session, taken.get("load", True), taken.get("save", True), taken.get("tenant"))
