"""What is measured, before it becomes figures (engines/compare_figures.py)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Queue:
    """One round of requests that come faster than they are served.

    Attributes:
        ttft_s: of each request, from its sending to its first token.
        restored: tokens that came from the store, of `possible`.
    """

    ttft_s: list[float]
    restored: int
    possible: int


@dataclass(frozen=True)
class Slow:
    """One round of requests whose prefixes come from a slow store.

    Attributes:
        waits_s: of each request, from its candidacy to its scheduling.
        ttft_s: of each request.
        restored: tokens that came from the store, of `possible`.
        checks: calls of check_prefetch_progress, which took `check_s` together.
    """

    waits_s: list[float]
    ttft_s: list[float]
    restored: int
    possible: int
    checks: int
    check_s: float


@dataclass(frozen=True)
class Hang:
    """A store that stops answering.

    Attributes:
        held_s: how long the request whose prefix is there was held; None: to the end of the wait.
        limit_s: how long was waited.
        other_s: time to the first token of a request that wants nothing from the store; None: not within the limit.
        cold_s: the same of one with a prompt that the store is asked about and does not have.
        healthy: what /health said meanwhile.
        again: tokens restored of `possible` by the same request, once the store answers again.
    """

    held_s: float | None
    limit_s: float
    other_s: float | None
    cold_s: float | None
    healthy: bool
    again: int
    possible: int


@dataclass(frozen=True)
class Held:
    """What a server holds when nothing runs in it.

    Attributes:
        rss_bytes: of its processes, without mappings that are pools.
        tokens: of CPU memory that is not free for others: HiCache's host pool after a flush, Forebay's pins,
            reservations and quarantine.
        device_tokens: in use of the engine's own KV cache after a flush.
    """

    rss_bytes: int
    threads: int
    descriptors: int
    tokens: int
    device_tokens: int


@dataclass(frozen=True)
class Aborts:
    """Requests that were aborted, and what the server held before and after them."""

    count: int
    unscheduled: int
    before: Held
    after: Held


@dataclass
class Samples:
    """Everything of one run. Of an arm, or an arm and a policy, a list with one entry for each repetition."""

    queue: dict[str, list[Queue]] = field(default_factory=dict)
    slow: dict[tuple[str, str], list[Slow]] = field(default_factory=dict)
    hang: dict[tuple[str, str], Hang] = field(default_factory=dict)
    aborts: dict[str, Aborts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    wrong: int = 0
    asked: int = 0
