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

``forebay.connect(path)`` gives the same object for a cache of another process.
"""

from __future__ import annotations

from ._cache import Cache, connect
from ._card import Card, Ranks, compare_cards
from ._config import Config, Setting
from ._errors import (
    AbandonedError,
    AccessError,
    ArgumentError,
    AwayError,
    BusyError,
    CapacityError,
    ChecksumError,
    ClosedError,
    ConfigError,
    ForebayError,
    ForkedError,
    FormatError,
    LeaderLostError,
    MissingDecisionError,
    MissingFileError,
    NotEnabledError,
    OutOfMemoryError,
    PoisonedError,
    RankLostError,
    RefusedError,
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
from ._group import (
    BlockRange,
    Decision,
    FailedBlock,
    Follower,
    Leader,
    Message,
    Result,
    Verdict,
    parse_message,
)
from ._hold import Hold
from ._names import (
    Breaker,
    DecisionKind,
    EventType,
    LayoutKind,
    MessageType,
    Namespace,
    Outcome,
    Policy,
    Reason,
    State,
    StopMode,
)
from ._pool import NO_PLACE, Pool, PoolGroup
from ._put import Put, PutResult, Stored
from ._quick import Snapshot, bind
from ._rank import Copy, CopyStatus, Layout, Rank, Tensor
from ._records import CloseReport, Group, Health, Model, Stats
from ._sequence import Sequence
from ._server import RankGroup, ServerClient, ServerInfo
from ._session import Session

__version__: str = text(lib.fby_version())

__all__ = [
    "NO_PLACE",
    "AbandonedError",
    "AccessError",
    "ArgumentError",
    "AwayError",
    "BlockRange",
    "Breaker",
    "BusyError",
    "Cache",
    "CapacityError",
    "Card",
    "ChecksumError",
    "CloseReport",
    "ClosedError",
    "Config",
    "ConfigError",
    "Copy",
    "CopyStatus",
    "Decision",
    "DecisionKind",
    "Event",
    "EventType",
    "FailedBlock",
    "Follower",
    "ForebayError",
    "ForkedError",
    "FormatError",
    "Group",
    "Health",
    "Hold",
    "Layout",
    "LayoutKind",
    "Leader",
    "LeaderLostError",
    "Message",
    "MessageType",
    "MissingDecisionError",
    "MissingFileError",
    "Model",
    "Namespace",
    "NotEnabledError",
    "OutOfMemoryError",
    "Outcome",
    "PoisonedError",
    "Policy",
    "Pool",
    "PoolGroup",
    "Put",
    "PutResult",
    "Rank",
    "RankGroup",
    "RankLostError",
    "Ranks",
    "Reason",
    "RefusedError",
    "Result",
    "Sequence",
    "ServerClient",
    "ServerInfo",
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
    "Tensor",
    "Verdict",
    "WaitTimeoutError",
    "__version__",
    "compare_cards",
    "connect",
    "errname",
    "parse_message",
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
