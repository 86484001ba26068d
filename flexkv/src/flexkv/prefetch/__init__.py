"""Prefetches as sessions, for schedulers that call them: handles, options, snapshots, capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class PrefetchHandle:
    """One session.

    Attributes:
        epoch: of the manager; a handle of another one is not known.
        session_id: of the session.
    """

    epoch: str
    session_id: int


@dataclass(frozen=True, slots=True)
class PrefetchOptions:
    """How a session stops. None: as configured.

    Attributes:
        policy: ``"wait_complete"``, ``"timeout"`` or ``"best_effort"``.
        timeout_budget_s: seconds.
        candidate_start_token: first token that the device lacks.
    """

    policy: str | None = None
    timeout_budget_s: float | None = None
    candidate_start_token: int = 0


@dataclass(frozen=True, slots=True)
class PrefetchSnapshot:
    """A session at one moment. Positions are tokens from the start.

    Attributes:
        handle: of it.
        version: grows.
        state: ``planning``, ``active``, ``draining``, ``terminal`` or ``expired``.
        terminal: the answer is final.
        outcome: ``complete``, ``partial``, ``empty``, ``failed``, ``aborted``, ``expired``, or None.
        stop_reason: why it stopped, or None.
        planned_end_token: what it means to bring.
        reusable_prefix_end_token: what can be used.
        l3_loaded_spans: what it brought, as (start, end).
        inflight_chunks: under way.
        inflight_bytes: likewise.
        submitted_chunks: so far.
        sealed_submit_seq: when it stopped.
        lease_valid: the result is protected.
        error: a text, or None.
    """

    handle: PrefetchHandle
    version: int
    state: str
    terminal: bool
    outcome: str | None
    stop_reason: str | None
    planned_end_token: int
    reusable_prefix_end_token: int
    l3_loaded_spans: tuple[tuple[int, int], ...]
    inflight_chunks: int
    inflight_bytes: int
    submitted_chunks: int
    sealed_submit_seq: int
    lease_valid: bool
    error: str | None

    @property
    def loaded_tokens(self) -> int:
        """Tokens that it brought."""
        return sum(end - start for start, end in self.l3_loaded_spans)


@dataclass(frozen=True, slots=True)
class PrefetchCapabilities:
    """What the sessions can.

    Attributes:
        protocol_version: of these calls.
        policies: that are accepted.
        stop_and_drain: a stop drains what is under way.
        partial_dense: a part of a prefix is delivered.
        partial_swa_checkpoints: likewise with windows.
    """

    protocol_version: int
    policies: tuple[str, ...]
    stop_and_drain: bool
    partial_dense: bool
    partial_swa_checkpoints: bool


def make_snapshot(handle: PrefetchHandle, raw: Any, block_tokens: int) -> PrefetchSnapshot:
    """A snapshot of Forebay's in these words."""
    end = int(raw.span_end_block) * block_tokens
    span = (max(0, end - int(raw.loaded_tokens)), end)
    return PrefetchSnapshot(
        handle=handle,
        version=int(raw.version),
        state=str(raw.state),
        terminal=bool(raw.answered),
        outcome=str(raw.outcome) if raw.answered else None,
        stop_reason=str(raw.reason) if str(raw.reason) != "none" else None,
        planned_end_token=int(raw.planned_tokens),
        reusable_prefix_end_token=int(raw.delivered_tokens),
        l3_loaded_spans=(span,) if raw.loaded_tokens > 0 else (),
        inflight_chunks=int(raw.inflight_chunks),
        inflight_bytes=int(raw.inflight_bytes),
        submitted_chunks=int(raw.submitted),
        sealed_submit_seq=int(raw.sealed_submit_seq),
        lease_valid=bool(raw.lease_valid),
        error=f"code {raw.error}" if raw.error else None,
    )
