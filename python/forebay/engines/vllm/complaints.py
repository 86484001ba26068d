"""Log lines, and the rule that no exception of ours reaches the engine."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("vllm.forebay")
"""Below vLLM's own logger, so that its handlers and its level apply."""

REPEAT_S = 30.0
"""The same complaint is not logged more often than this."""

Call = TypeVar("Call", bound=Callable[..., Any])

_last: dict[str, float] = {}


def complain(what: str, error: BaseException) -> None:
    """One line for a failure that the engine must not see; the trace at debug level. Rate-limited by what and kind."""
    key = f"{what}: {type(error).__name__}"
    now = time.monotonic()
    if now - _last.get(key, -REPEAT_S) < REPEAT_S:
        return
    _last[key] = now
    log.warning("forebay: %s failed, the engine goes on without: %s: %s", what, type(error).__name__, error)
    log.debug("forebay: %s", what, exc_info=error)


def guarded(answer: Callable[[], Any]) -> Callable[[Call], Call]:
    """A method whose exceptions become one log line and ``answer()``."""

    def decorate(call: Call) -> Call:
        @functools.wraps(call)
        def run(*arguments: Any, **keywords: Any) -> Any:
            try:
                return call(*arguments, **keywords)
            except Exception as error:
                complain(call.__name__, error)
                return answer()

        return run  # type: ignore[return-value]

    return decorate
