"""Forebay: a request's KV cache comes from a remote store into CPU memory while the request waits in the queue.

The package is the C library's API with Python's habits; the library is inside. docs/python.md is the guide.

    with forebay.Cache("forebay.yaml") as cache:
        sequence = cache.sequence(prompt)
        with cache.start(sequence) as session:
            ...  # the request waits in the queue
            session.demand()  # the scheduler wants it
            answer = session.wait()
            with session.take() as hold:
                hold.copy_to(kv_buffer)  # answer.delivered_tokens are there
"""

from __future__ import annotations

from ._cache import Cache, CloseReport, Group, Health, Model, Stats
from ._config import Config, Setting
from ._errors import (
    AbandonedError,
    AccessError,
    ArgumentError,
    BusyError,
    CapacityError,
    ClosedError,
    ConfigError,
    ForebayError,
    ForkedError,
    FormatError,
    MissingFileError,
    NotEnabledError,
    OutOfMemoryError,
    PoisonedError,
    StaleError,
    StateError,
    StoreError,
    SystemCallError,
    WaitTimeoutError,
    errname,
    raise_error,
    strerror,
    text,
)
from ._events import Event, Subscription
from ._forebay import ffi, lib
from ._hold import Hold
from ._names import Breaker, EventType, Namespace, Outcome, Policy, Reason, State, StopMode
from ._put import Put, PutResult, Stored
from ._quick import Snapshot, bind
from ._sequence import Sequence
from ._session import Session

__version__: str = text(lib.fby_version())

__all__ = [
    "AbandonedError",
    "AccessError",
    "ArgumentError",
    "Breaker",
    "BusyError",
    "Cache",
    "CapacityError",
    "CloseReport",
    "ClosedError",
    "Config",
    "ConfigError",
    "Event",
    "EventType",
    "ForebayError",
    "ForkedError",
    "FormatError",
    "Group",
    "Health",
    "Hold",
    "MissingFileError",
    "Model",
    "Namespace",
    "NotEnabledError",
    "OutOfMemoryError",
    "Outcome",
    "PoisonedError",
    "Policy",
    "Put",
    "PutResult",
    "Reason",
    "Sequence",
    "Session",
    "Setting",
    "Snapshot",
    "StaleError",
    "State",
    "StateError",
    "Stats",
    "StopMode",
    "StoreError",
    "Stored",
    "Subscription",
    "SystemCallError",
    "WaitTimeoutError",
    "__version__",
    "errname",
    "strerror",
]


def _bind() -> None:
    """Gives the quick module the library's functions and what snapshots are made of."""

    def address(name: str) -> int:
        return int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))

    bind(
        address("fby_session_poll"),
        address("fby_session_progress"),
        tuple(State),
        tuple(Outcome),
        tuple(Reason),
        raise_error,
    )


_bind()
