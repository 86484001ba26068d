"""What a request says for itself: the same keys in every engine, in whatever the engine passes on with a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import forebay


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of one request.

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


_MOST_AMOUNT = 1 << 40  # tokens or seconds: as much as the configuration accepts of tokens


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST_AMOUNT


REQUEST_KEYS: dict[str, Callable[[Any], bool]] = {
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


def read_options(given: Mapping[str, Any], what: str, log: logging.Logger) -> RequestOptions:
    """A request's options. What is not accepted is left out, with a line in the log: a request never fails for it.

    Args:
        given: keys of :data:`REQUEST_KEYS`.
        what: where they were found, for the log.
        log: of the engine's connector.
    """
    taken = {}
    for key, value in given.items():
        if key in REQUEST_KEYS and REQUEST_KEYS[key](value):
            taken[key] = value
        else:
            log.warning("forebay: %s: %s=%r is not accepted and has no effect", what, key, value)
    session = {key: value for key, value in taken.items() if key not in _OTHERS}
    return RequestOptions(session, taken.get("load", True), taken.get("save", True), taken.get("tenant"))
