"""Settings that every engine's connector understands, and how they come together with Forebay's configuration.

Precedence, highest first: what a request says for itself; Forebay's configuration (``config``: keys or a file; then the
environment ``FOREBAY_*``); the plain keys beside it; the engine's own arguments; Forebay's defaults.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import forebay

from .stores import parse_store

# Plain keys that stand for a key of Forebay's.
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

Keys = Mapping[str, tuple[type, Any]]
"""The plain keys that an engine's connector has of its own: type and default."""

COMMON: Keys = {
    "save": (bool, True),
    "device": (str, "host"),
    "copy_threads": (int, 1),
    "journal": (str, None),
    "server": (str, None),
    "reset_bumps_epoch": (bool, False),
}

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


def _set_default(config: forebay.Config, origins: dict[str, str], key: str, value: Any, origin: str = "engine") -> None:
    """Sets a key that neither configuration nor environment has."""
    if config.get(key).origin == "default":
        config.set(key, value)
        origins[key] = origin


def _take_store(config: forebay.Config, origins: dict[str, str], text: Any) -> None:
    if not isinstance(text, str):
        raise ValueError(f"store is {text!r}; accepted: a text, such as file:DIRECTORY or DRIVER:key=value,key=value")
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
class CommonSettings:
    """What the engine's side of a connector goes by.

    Attributes:
        config: for the cache; the model's fields are still missing.
        origins: where a value came from that neither configuration nor environment gave, by key.
        save: computed blocks are put into the cache.
        device: back end of the ranks' copies, ``"host"`` or ``"cuda"``.
        copy_threads: threads of one rank's host copies.
        journal: file that gets one JSON line per finished request, or None.
        server: socket of a server that has the cache, or None: the cache is in the scheduler's process.
        reset_bumps_epoch: a reset of the engine's cache makes the store's objects unreachable too.
    """

    config: forebay.Config
    origins: dict[str, str]
    save: bool
    device: str
    copy_threads: int
    journal: str | None
    server: str | None
    reset_bumps_epoch: bool

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

    def log_once(self, log: logging.Logger) -> None:
        """One line with what is in force; defaults are left out."""
        rows = [row for row in self.effective() if row.origin != "default" or row.key == "prefetch.policy"]
        log.info("forebay: %s", ", ".join(f"{row.key}={row.value} ({row.origin})" for row in rows))


def _own(extra: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = extra.get(name, default)
    if value is default:
        return value
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}; accepted: a {kind.__name__}")
    if kind in (int, float) and not (isinstance(value, (int, float)) and value >= 0):
        raise ValueError(f"{name} is {value!r}; accepted: a number from 0 on")
    return value


class ReadKeys(NamedTuple):
    """What :func:`read_keys` found: for the cache, where values came from, and the plain keys by name."""

    config: forebay.Config
    origins: dict[str, str]
    own: dict[str, Any]


def read_keys(
    what: str, extra: Mapping[str, Any], keys: Keys, engine: Mapping[str, tuple[Any, str]] | None = None
) -> ReadKeys:
    """Settings from an engine's mapping of plain keys.

    Args:
        what: the mapping's name, for messages.
        extra: keys of ``keys``, ``config``, ``store``, and the short names of Forebay's keys.
        keys: which plain keys there are.
        engine: values of the engine's own arguments by Forebay's key, each with the argument's name.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    accepted = sorted({"config", "store", *_SHORT, *keys})
    unknown = sorted(set(extra) - set(accepted))
    if unknown:
        raise ValueError(f"{what} has unknown keys {unknown}; accepted: {', '.join(accepted)}")
    config, origins = _whole_config(extra.get("config")), dict[str, str]()
    for short, key in _SHORT.items():
        if short in extra:
            _set_default(config, origins, key, extra[short])
    if "store" in extra:
        _take_store(config, origins, extra["store"])
    for key, (value, argument) in (engine or {}).items():
        _set_default(config, origins, key, value, argument)
    _decide_runtime(config, origins)
    own = {name: _own(extra, name, kind, default) for name, (kind, default) in keys.items()}
    if own.get("device", "host") not in ("host", "cuda"):
        raise ValueError(f"device is {own['device']!r}; accepted: host, cuda")
    return ReadKeys(config, origins, own)
