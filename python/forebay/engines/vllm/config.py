"""Settings: ``kv_connector_extra_config`` of the engine, ``kv_transfer_params`` of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..common.options import REQUEST_KEYS, RequestOptions, read_options
from ..common.settings import COMMON, CommonSettings, Keys, read_keys
from .complaints import log

__all__ = ["RequestOptions", "Settings", "read_request", "read_settings"]

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


def read_request(params: Mapping[str, Any] | None) -> RequestOptions:
    """A request's options. What is not accepted is left out, with a line in the log: a request never fails for it.

    Keys of other connectors may stand beside ours when ours are under ``"forebay"``.
    """
    if not params:
        return RequestOptions({})
    nested = params.get("forebay")
    given = nested if isinstance(nested, Mapping) else {key: params[key] for key in REQUEST_KEYS if key in params}
    return read_options(given, "kv_transfer_params", log)
