"""What SGLang's integration does not pass on: of which request a call is, and what keeps that request apart."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from forebay.engines.common.options import RequestOptions

_USUAL = RequestOptions({})


@dataclass(frozen=True, slots=True)
class Scope:
    """One request, while a call for it runs.

    Attributes:
        handle: SGLang's handle of the attempt, or None.
        label: the request's id, for logs and the journal.
        extra_key: of the request; it has the LoRA adapter in it.
        cache_salt: of the request.
        device_tokens: prefix that the device has.
        options: what the request says for itself.
    """

    handle: Hashable | None = None
    label: str = ""
    extra_key: str | None = None
    cache_salt: str | None = None
    device_tokens: int = 0
    options: RequestOptions = _USUAL


NOBODY = Scope()
_now = threading.local()


def current() -> Scope:
    """Of which request this thread's call is."""
    scope: Scope = getattr(_now, "scope", NOBODY)
    return scope


@contextlib.contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Calls inside are this request's."""
    before, _now.scope = current(), scope
    try:
        yield
    finally:
        _now.scope = before
