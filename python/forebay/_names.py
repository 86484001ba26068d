"""Names that appear in snapshots, options and events: the tables of forebay.h as enumerations.

Members of the string enumerations equal their C texts (``Reason.DEMAND == "demand"``); their order is that of the C
enumerations, which a test compares with the library's own tables.
"""

from __future__ import annotations

import enum


class _Text(str, enum.Enum):
    """A string enumeration whose members print as their text."""

    def __str__(self) -> str:
        return str(self.value)


class State(_Text):
    """What a session may be doing (``fby_state_t``; docs/sessions.md)."""

    PLANNING = "planning"
    ACTIVE = "active"
    DRAINING = "draining"
    TERMINAL = "terminal"
    EXPIRED = "expired"


class Outcome(_Text):
    """What an answer amounts to (``fby_outcome_t``)."""

    NONE = "none"
    COMPLETE = "complete"
    PARTIAL = "partial"
    EMPTY = "empty"
    FAILED = "failed"
    ABORTED = "aborted"
    EXPIRED = "expired"


class Reason(_Text):
    """Why a session stopped claiming (``fby_reason_t``)."""

    NONE = "none"
    COMPLETE = "complete"
    DEADLINE = "deadline"
    DEMAND = "demand"
    CAPACITY_RESERVED = "capacity_reserved"
    CAPACITY_PINNED = "capacity_pinned"
    CAPACITY_POOL = "capacity_pool"
    BELOW_THRESHOLD = "below_threshold"
    PARTIAL_READ = "partial_read"
    QUERY_ERROR = "query_error"
    STORE_ERROR = "store_error"
    IO_TIMEOUT = "io_timeout"
    BREAK_EVEN = "break_even"
    ABORT = "abort"
    RESET = "reset"
    SHUTDOWN = "shutdown"


class Policy(_Text):
    """When a session stops claiming (``fby_policy_t``; docs/policies.md)."""

    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"
    BEST_EFFORT = "best_effort"
    BREAK_EVEN = "break_even"


class StopMode(_Text):
    """What a policy stop does with claimed work (``fby_stop_mode_t``; docs/stopping.md)."""

    DRAIN = "drain"
    RECALL = "recall"
    DETACH = "detach"


class Namespace(_Text):
    """Kinds of namespace parts (``fby_ns_type_t``; docs/keys.md)."""

    ADAPTER = "adapter"
    SALT = "salt"
    TENANT = "tenant"
    TEXT = "text"


class LayoutKind(_Text):
    """How the tensors of one group lie (``fby_layout_kind_t``; docs/ranks.md)."""

    SPLIT = "split"
    PACKED = "packed"
    MLA = "mla"
    BLOCK_FIRST = "block_first"


class DecisionKind(_Text):
    """What all ranks do (``fby_decision_kind_t``; docs/ranks.md)."""

    LOAD = "load"
    SAVE = "save"
    RELEASE = "release"
    STOP = "stop"
    RESET = "reset"
    END = "end"


class MessageType(_Text):
    """What a message between ranks is (``FBY_MESSAGE_...``; docs/ranks.md)."""

    CARD = "card"
    DECISIONS = "decisions"
    REPORT = "report"
    VERDICT = "verdict"
    ACKNOWLEDGEMENT = "acknowledgement"


class EventType(enum.IntEnum):
    """Kinds of events (``fby_event_type_t``), with the C values."""

    PUBLISHED = 1
    REMOVED = 2
    SESSION = 3
    RESET = 4
    LOST = 5


class Breaker(enum.IntEnum):
    """State of the store's breaker in :class:`Health`, with the C values (docs/errors.md)."""

    CLOSED = 0
    OPEN = 1
    PROBING = 2


POLICY_NUMBERS: dict[str, int] = {policy: number for number, policy in enumerate(Policy)}
STOP_MODE_NUMBERS: dict[str, int] = {mode: number for number, mode in enumerate(StopMode)}
NAMESPACE_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(Namespace, start=1)}
LAYOUT_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(LayoutKind)}
DECISION_NUMBERS: dict[str, int] = {kind: number for number, kind in enumerate(DecisionKind, start=1)}
DECISION_KINDS: dict[int, DecisionKind] = dict(enumerate(DecisionKind, start=1))
MESSAGE_TYPES: dict[int, MessageType] = dict(enumerate(MessageType, start=1))


def number_of(table: dict[str, int], what: str, name: str) -> int:
    """The C number of a name.

    Raises:
        ValueError: the name is not in the table; the message lists what is.
    """
    try:
        return table[name]
    except KeyError:
        accepted = ", ".join(str(key) for key in table)
        raise ValueError(f"{what} is {str(name)!r}; accepted: {accepted}") from None
