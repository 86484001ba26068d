"""Errors at start that would be repeated in vain.

SGLang's integration tries a registration that raises once a second for six minutes. What no repetition mends is kept
here instead, and raised by the next call of that process that is not repeated.
"""

from __future__ import annotations

_pending: list[Exception] = []


def remember(error: Exception) -> None:
    """Keeps an error for :func:`raise_pending`."""
    _pending.append(error)


def raise_pending() -> None:
    """Raises the first error that was kept.

    Raises:
        RuntimeError: there was one; its cause is that error.
    """
    if _pending:
        error = _pending[0]
        _pending.clear()
        raise RuntimeError(f"flexkv: {error}") from error
