"""A request as the integration knows it, between its arrival and its release."""

from __future__ import annotations

import array
import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import forebay

from ..common.options import RequestOptions
from .namespace import Parts, namespace_of, tokens_of


class Match(NamedTuple):
    """What a prefetch came to; in tokens from the prompt's start. Plain data: the same on all ranks.

    Attributes:
        first: the hold has nothing before it: the engine's own pages must reach so far.
        end: of what can be loaded; 0: nothing.
        span_start: where what was read from the store begins.
        span_end: where it ends.
    """

    first: int = 0
    end: int = 0
    span_start: int = 0
    span_end: int = 0


NOTHING = Match()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as the engine's scheduler hands it over.

    Attributes:
        handle: names it; one per attempt.
        name: its id, for logs and the journal.
        tokens: its token ids so far, 64-bit.
        extra_key: of its namespace.
        cache_salt: likewise.
        options: its own.
        key: what the engine finds its pages with.
        owner: tells requests of one handle apart; 0: not known.
    """

    handle: Hashable
    name: str
    tokens: Any
    extra_key: str | None
    cache_salt: str | None
    options: RequestOptions
    key: Any = None
    owner: int = 0

    @property
    def namespace(self) -> Parts:
        """Parts that keep it apart."""
        return namespace_of(self.extra_key, self.cache_salt, self.options.tenant)

    def ids(self, start: int = 0, end: int | None = None) -> array.array[int]:
        """Tokens ``[start, end)`` as 32-bit ids."""
        return tokens_of(self.tokens[start:end], start)


class Held(Protocol):
    """What the engine has of a request at a checkpoint."""

    def arrival(self) -> Arrival:
        """The request, with its tokens so far."""

    def pages(self, start: int, end: int) -> Sequence[Sequence[int]]:
        """Per group the pages of blocks ``[start, end)``; of a window any number where it has none."""

    def window_from(self) -> list[int]:
        """Per group the first block from which on it has all."""

    def lock(self) -> Callable[[], None]:
        """Keeps the pages from being used anew, until what it returns is called."""


@dataclass(slots=True)
class Entry:
    """What is kept for a request. Sessions, holds, puts and sequences are the leader's alone.

    Attributes:
        name: the request's id.
        options: its own options.
        namespace: parts that keep it apart.
        limit: end of what may be restored, in tokens: whole blocks, and one token at least is left to compute.
        on_device: tokens that the device had at arrival.
        key: what the engine finds its pages with; dropped with the answer.
        waiting: its prefetch is not answered.
        demanded: the scheduler has asked for it.
        match: the answer; None: it was not asked for one.
        is_told: the span was handed to the scheduler.
        sequence: of its tokens so far.
        length: tokens in the sequence.
        session: its prefetch.
        attempts: sessions so far.
        answer: what was seen last of its last session.
        lost: that session went with its server.
        hold: what was matched and is not loaded.
        matched: tokens given to the engine beyond its own.
        failed: blocks of failed loads; then the request gets no more.
        put: of its last range, kept through the prefill.
        staging: puts whose copies are under way.
        staged: end of the blocks that were staged last.
        saved: end of the blocks that were looked at; the same on all ranks.
        save: whether its blocks are kept.
        owner: the request that it is of; 0: not known.
    """

    name: str
    options: RequestOptions
    namespace: Parts
    limit: int = 0
    on_device: int = 0
    key: Any = None
    waiting: bool = False
    demanded: bool = False
    match: Match | None = None
    is_told: bool = False
    sequence: forebay.Sequence | None = None
    length: int = 0
    session: forebay.Session | None = None
    attempts: int = 0
    answer: forebay.Snapshot | None = None
    lost: bool = False
    hold: forebay.Hold | None = None
    matched: int = 0
    failed: int = 0
    put: forebay.Put | None = None
    staging: set[int] = field(default_factory=set)
    staged: int = 0
    saved: int = 0
    save: bool = True
    owner: int = 0

    def drop_session(self) -> None:
        """Ends the prefetch: an abort, if it is not answered. What was seen last stays in ``answer``."""
        session, self.session = self.session, None
        if session is None:
            return
        with contextlib.suppress(forebay.ForebayError):
            self.answer = session.poll()
        with contextlib.suppress(forebay.ForebayError):
            session.release()

    def drop_hold(self) -> None:
        """Lets go of a match that is not loaded."""
        hold, self.hold = self.hold, None
        if hold is not None:
            with contextlib.suppress(forebay.ForebayError):  # its server may be gone
                hold.release()

    def drop_put(self) -> None:
        """Lets go of the prefill's pin."""
        put, self.put = self.put, None
        if put is not None:
            with contextlib.suppress(forebay.ForebayError):
                put.release()
