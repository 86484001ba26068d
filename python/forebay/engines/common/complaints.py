"""Log lines, and the rule that no exception of ours reaches the engine."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

REPEAT_S = 30.0
"""The same complaint is not logged more often than this."""

Call = TypeVar("Call", bound=Callable[..., Any])


class Complaints:
    """The log of one engine's connector. Thread-safe.

    Args:
        logger: its name; below the engine's own logger, so that the engine's handlers and level apply.

    Attributes:
        log: the logger.
    """

    def __init__(self, logger: str) -> None:
        self.log = logging.getLogger(logger)
        self._last: dict[str, float] = {}

    def complain(self, what: str, error: BaseException) -> None:
        """One line for a failure that the engine must not see; the trace at debug level.

        Rate-limited by what failed and the kind of the error.
        """
        key = f"{what}: {type(error).__name__}"
        now = time.monotonic()
        if now - self._last.get(key, -REPEAT_S) < REPEAT_S:
            return
        self._last[key] = now
        self.log.warning("forebay: %s failed, the engine goes on without: %s: %s", what, type(error).__name__, error)
        self.log.debug("forebay: %s", what, exc_info=error)

    def guarded(self, answer: Callable[[], Any]) -> Callable[[Call], Call]:
        """A method whose exceptions become one log line and ``answer()``."""

        def decorate(call: Call) -> Call:
            @functools.wraps(call)
            def run(*arguments: Any, **keywords: Any) -> Any:
                try:
                    return call(*arguments, **keywords)
                except Exception as error:
                    self.complain(call.__name__, error)
                    return answer()

            return run  # type: ignore[return-value]

        return decorate
