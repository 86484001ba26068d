"""What a cache says about itself: model, health, counters, and the report of a close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._errors import check, text
from ._forebay import ffi, lib
from ._names import Breaker, Reason


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What close could not prove ended (``fby_close_report_t``).

    Attributes:
        sessions_aborted: sessions without an answer.
        operations_abandoned: store operations that did not end.
        bytes_abandoned: memory that stays mapped until the process exits.
    """

    sessions_aborted: int
    operations_abandoned: int
    bytes_abandoned: int


@dataclass(frozen=True, slots=True)
class Group:
    """A payload group of a model.

    Attributes:
        name: as configured.
        payload_bytes: bytes of one block.
        slot_bytes: payload, trailer and padding.
        trailing: 0 for the rule ``all``, n for ``trailing(n)``.
    """

    name: str
    payload_bytes: int
    slot_bytes: int
    trailing: int


@dataclass(frozen=True, slots=True)
class Model:
    """The model as configured (``fby_model_t``).

    Attributes:
        block_tokens: tokens of one block.
        groups: its payload groups, in order.
        fingerprint: hex digest of all that makes bytes incompatible.
    """

    block_tokens: int
    groups: tuple[Group, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Health:
    """What an operator's probe asks (``fby_health_t``). Ages and times are nanoseconds.

    Attributes:
        healthy: False: poisoned, or a breaker is open, or an operation is over half its limit.
        oldest_operation_ns: age of the oldest store operation outstanding; 0: none.
        oldest_draining_ns: age of the oldest session that drains; 0: none.
        quarantined_bytes: bytes of slots whose operation is not proven ended.
        last_completion_ns: age of the last store completion; 0: none yet.
        breaker: state of the store's breaker.
        breaker_retry_ns: time to its next probe; 0: closed.
        message: what is wrong, or "".
    """

    healthy: bool
    oldest_operation_ns: int
    oldest_draining_ns: int
    quarantined_bytes: int
    last_completion_ns: int
    breaker: Breaker
    breaker_retry_ns: int
    message: str


class Stats(dict[str, int]):
    """Counters and gauges of one moment by their C names (``fby_stats_t``): ``stats["tokens_delivered"]``.

    Counters only grow; names that end in ``_gauge`` are gauges.

    Attributes:
        sessions_by_reason: answered sessions by why they stopped.
    """

    __slots__ = ("sessions_by_reason",)

    sessions_by_reason: dict[Reason, int]


COUNTERS = tuple(
    name for name, _ in ffi.typeof("fby_stats_t").fields if name not in ("size", "reserved0", "sessions_by_reason")
)


def sized(kind: str) -> Any:
    """A struct whose `size` is set."""
    made = ffi.new(f"{kind} *")
    made.size = ffi.sizeof(kind)
    return made


def read_model(pointer: Any) -> Model:
    """``fby_cache_model``; see :attr:`Cache.model`."""
    model = sized("fby_model_t")
    check(lib.fby_cache_model(pointer, model))
    groups = tuple(
        Group(text(group.name), int(group.payload_bytes), int(group.slot_bytes), int(group.trailing))
        for group in model.group[0 : model.groups]
    )
    return Model(int(model.block_tokens), groups, text(model.fingerprint))
