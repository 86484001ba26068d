"""Settings: what is given to the engine, and what a request says for itself (docs/sglang.md, "Configuration")."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.options import RequestOptions, read_options
from ..common.settings import COMMON, CommonSettings, read_keys
from .complaints import log

VARIABLE = "FOREBAY_SGLANG"
"""Environment variable with the settings: a JSON object, or ``@`` and the path of a JSON or YAML file."""

ARGUMENT = "--hicache-storage-backend-extra-config"
POLICY_ARGUMENT = "--hicache-storage-prefetch-policy"
POLICY_DEFAULT = "timeout"  # of SGLang, for its own storage: not a wish of whoever started the engine


@dataclass(frozen=True)
class Settings(CommonSettings):
    """What the integration goes by.

    Attributes:
        metrics: Forebay's figures are among the engine's own metrics when those are on.
    """

    metrics: bool


def _parsed(text: str, where: str, *, is_yaml: bool) -> Any:
    if is_yaml:
        try:
            import yaml  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ValueError(f"{where} is YAML and PyYAML is not installed; accepted: JSON") from None
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{where} is not YAML: {error}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error


def keys_in(text: str | None, where: str) -> dict[str, Any]:
    """The keys of a text: a JSON object, or ``@`` and the path of a file with one (``.yaml`` and ``.yml`` too).

    Args:
        text: None or empty: no keys.
        where: it was given, for messages.

    Raises:
        ValueError: it is not such a text, or the file cannot be read.
    """
    if not text:
        return {}
    is_yaml = False
    if text.startswith("@"):
        path = Path(text[1:])
        where, is_yaml = f"{where} ({path})", path.suffix in (".yaml", ".yml")
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{where} cannot be read: {error.strerror}") from error
    found = _parsed(text, where, is_yaml=is_yaml)
    if not isinstance(found, dict):
        raise ValueError(f"{where} is {found!r}; accepted: an object of keys, or @ and the path of a file with one")
    return found


def policy_given(server_args: Any) -> tuple[str, str] | None:
    """The policy that the engine was started with, and the argument's name; None: it was not named.

    SGLang's default is not a wish. Where a program starts the engine without a command line, its default cannot be told
    from the same policy given.
    """
    value = str(server_args.hicache_storage_prefetch_policy)
    command = getattr(server_args, "_launch_command", None) or ()
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    if value != POLICY_DEFAULT or any(word.partition("=")[0] == POLICY_ARGUMENT for word in words):
        return value, POLICY_ARGUMENT
    return None


def read_settings(
    argument: str | None = None,
    variable: str | None = None,
    *,
    policy: tuple[str, str] | None = None,
    device: str = "host",
) -> Settings:
    """Settings from the engine's argument and from the environment; a key in the argument wins.

    Args:
        argument: of :data:`ARGUMENT`.
        variable: of :data:`VARIABLE`.
        policy: from :func:`policy_given`.
        device: back end of copies when no key names one.

    Raises:
        ValueError: a key that is not known, or a value that is not accepted; the message says what is.
        forebay.ConfigError: likewise, from Forebay's configuration.
    """
    extra = keys_in(variable, VARIABLE) | keys_in(argument, ARGUMENT)
    what = ARGUMENT if argument else VARIABLE
    engine = {} if policy is None else {"prefetch.policy": policy}
    keys = {**COMMON, "device": (str, device), "metrics": (bool, True)}
    config, origins, own = read_keys(what, extra, keys, engine)
    return Settings(config, origins, **own)


def settings_of(server_args: Any, device: str) -> Settings:
    """Settings of an engine from its arguments and this process's environment; as :func:`read_settings`."""
    return read_settings(
        server_args.hicache_storage_backend_extra_config,
        os.environ.get(VARIABLE),
        policy=policy_given(server_args),
        device=device,
    )


def read_request(custom_params: Any) -> RequestOptions:
    """A request's own options: the object under ``"forebay"`` in ``sampling_params.custom_params``."""
    given = custom_params.get("forebay") if isinstance(custom_params, Mapping) else None
    if given is None:
        return RequestOptions({})
    if not isinstance(given, Mapping):
        log.warning("forebay: custom_params.forebay is a %s and has no effect", type(given).__name__)
        return RequestOptions({})
    return read_options(given, "custom_params.forebay", log)
