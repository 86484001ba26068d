"""Settings: ``kv_connector_extra_config`` of the engine, ``kv_transfer_params`` of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import forebay

from ..common.settings import COMMON, CommonSettings, Keys, read_keys
from .complaints import log

_KEYS: Keys = {**COMMON, "sync_load": (bool, False), "idle_wait_ms": (float, 1.0)}


@dataclass(frozen=True)
class Settings(CommonSettings):
    """What the engine's side of the connector goes by.

    Attributes:
        sync_load: loads before the forward of the step that matched, in place of between steps.
        idle_wait_ms: how long a step with nothing to run waits for a prefetch to end, instead of asking again at once.
    """

    sync_load: bool
    idle_wait_ms: float


def read_settings(extra: Mapping[str, Any]) -> Settings:
    """Settings from ``kv_connector_extra_config``.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    config, origins, own = read_keys("kv_connector_extra_config", extra, _KEYS)
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
