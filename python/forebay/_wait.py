"""Waiting calls that an interrupt from the keyboard can end, and waits in an event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable

from ._errors import WaitTimeoutError, error

_SLICE_S = 0.25
"""How long the main thread waits before signal handlers get their turn: only it runs them."""


def wait_in_slices(call: Callable[[float], int], timeout: float | None) -> None:
    """Calls with a timeout in seconds until it answers something other than ``-ETIMEDOUT``, or the time passed.

    Other threads than the main one wait in one piece.

    Args:
        call: takes seconds (negative: for ever), returns a code. It waits without the interpreter's lock.
        timeout: seconds; None waits for ever, 0 does not wait.

    Raises:
        WaitTimeoutError: the time passed.
        ForebayError: what the call answered.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout is {timeout!r}; accepted: seconds from 0 on, or None for ever")
    in_main = threading.current_thread() is threading.main_thread()
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        code = call(_SLICE_S if in_main and not 0 <= left <= _SLICE_S else left)
        if code == 0:
            return
        if code != -errno.ETIMEDOUT or (deadline is not None and time.monotonic() >= deadline):
            raise error(code)


def _settle(ready: asyncio.Future[None]) -> None:
    """The descriptor stays readable: only the first report counts."""
    if not ready.done():
        ready.set_result(None)


async def wait_readable(descriptor: int, timeout: float | None, what: str) -> None:
    """Waits in an event loop until a descriptor is readable; closes it in any case.

    Args:
        descriptor: the caller gives it away.
        timeout: seconds; None waits for ever.
        what: did not happen; for the message.

    Raises:
        WaitTimeoutError: the time passed.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _settle, ready)
        await asyncio.wait_for(ready, timeout)
    except asyncio.TimeoutError:
        raise WaitTimeoutError(-errno.ETIMEDOUT, f"{what} in {timeout} s") from None
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
