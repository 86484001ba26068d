from collections.abc import Callable
from typing import Any, NamedTuple

from ._names import Outcome, Reason, State

class Snapshot(NamedTuple):
    """A consistent picture of a session (``fby_snapshot_t``). Immutable; a named tuple.

    Once ``answered`` is true, the fields from ``outcome`` to ``span_end_block`` (``lease_valid`` apart) do not change.
    Tokens and blocks are counted from the start of the sequence; times are nanoseconds of the monotonic clock.
    """

    state: State
    handle: int
    version: int
    answered: bool
    outcome: Outcome
    reason: Reason
    error: int
    lease_valid: bool
    planned_final: bool
    found_tokens: int
    planned_tokens: int
    loaded_tokens: int
    delivered_tokens: int
    start_blocks: int
    committed_blocks: int
    cursor_blocks: int
    delivered_blocks: int
    span_start_block: int
    span_end_block: int
    inflight_chunks: int
    inflight_bytes: int
    submitted: int
    sealed_submit_seq: int
    created_ns: int
    sealed_ns: int
    answered_ns: int
    terminal_ns: int

def bind(
    poll: int,
    progress: int,
    states: tuple[State, ...],
    outcomes: tuple[Outcome, ...],
    reasons: tuple[Reason, ...],
    raise_error: Callable[[int], Any],
    /,
) -> None: ...
def poll(cache: int, session: int, /) -> Snapshot: ...
def progress(cache: int, sessions: list[int], demand: list[bool] | None, /) -> list[Snapshot]: ...
def snapshot(address: int, /) -> Snapshot: ...
