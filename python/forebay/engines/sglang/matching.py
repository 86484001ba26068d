"""Matching, the leader's part: a request's prefetch from its start to a hold, and the slots that a load reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import forebay

from .complaints import complain
from .requests import NOTHING, Entry, Match

if TYPE_CHECKING:
    from ..common.model import EngineModel

MOST_ATTEMPTS = 3
"""Sessions of one request: each after the first because the device lost what the one before counted on."""


class Matcher:
    """Sessions and holds of the process that has the cache. One thread calls it.

    Args:
        cache: that has the blocks.
        model: its groups.
        usual: arguments of every session that its request does not name.
    """

    def __init__(self, cache: forebay.Cache, model: EngineModel, usual: dict[str, Any]) -> None:
        self._cache = cache
        self._model = model
        self._usual = usual

    # ---- A prefetch ----

    def start(self, entry: Entry, on_device: int) -> None:
        """Starts a prefetch of what the device lacks. Without a session afterwards, it could not be.

        Args:
            entry: with its sequence.
            on_device: tokens that the device has; nothing before is read from the store.
        """
        assert entry.sequence is not None
        entry.attempts += 1
        fixed: dict[str, Any] = {
            "label": entry.name,
            "candidate_start_token": on_device,
            "have_blocks": on_device // self._model.block_tokens,
        }
        try:
            entry.session = self._cache.start(entry.sequence, **fixed, **self._usual | entry.options.session)
            return
        except (forebay.NotEnabledError, forebay.ConfigError) as error:
            complain("a policy of a request", error)
        entry.session = self._cache.start(entry.sequence, **fixed)

    def poll(self, entry: Entry, on_device: Callable[[], int]) -> Match | None:
        """Demand, once, and poll. None: it drains.

        Args:
            entry: with a session.
            on_device: asked when it is answered: tokens that the device has by now.
        """
        session = entry.session
        if session is None:
            return NOTHING
        if not entry.demanded:
            entry.demanded = True
            session.demand()
        entry.answer = snapshot = session.poll()
        if not snapshot.answered:
            return None
        return self._taken(entry, session, snapshot, on_device())

    def _taken(self, entry: Entry, session: forebay.Session, answer: forebay.Snapshot, on_device: int) -> Match | None:
        """The answer as a hold. None: a new session runs, since the device lost what this one counted on."""
        entry.session = None
        tokens = self._model.block_tokens
        if answer.delivered_tokens <= on_device:
            session.release()
            return NOTHING
        try:
            hold = session.take()
        except forebay.StaleError:  # it waited for longer than its lease
            return self.look_up(entry, on_device)
        except forebay.ForebayError:
            entry.session = session  # whoever takes the error lets it go, and its lease
            raise
        first, end = hold.first_block * tokens, min(hold.tokens, entry.limit)
        if first > on_device and entry.attempts < MOST_ATTEMPTS:
            hold.release()
            entry.demanded = False
            self.start(entry, on_device)
            return None
        if first > on_device or end <= on_device:
            hold.release()
            return NOTHING
        entry.hold = hold
        span_start, span_end = answer.span_start_block * tokens, min(answer.span_end_block * tokens, end)
        return Match(first, end, min(span_start, span_end), span_end)

    def look_up(self, entry: Entry, on_device: int) -> Match:
        """What is resident, for a request whose prefetch is not there any more, or that needed none at arrival."""
        if entry.sequence is None or entry.failed:
            return NOTHING
        with contextlib.suppress(forebay.CapacityError, forebay.BusyError):
            hold = self._cache.lookup(entry.sequence)
            end = min(hold.tokens, entry.limit)
            if end > on_device:
                entry.hold = hold
                return Match(0, end)
            hold.release()
        return NOTHING

    # ---- A load ----

    def ranges(self, entry: Entry, start: int, end: int) -> tuple[forebay.BlockRange, ...]:
        """Slots of blocks ``[start, end)`` that resuming at ``end`` needs, by group.

        Raises:
            forebay.ForebayError: the match is not there any more.
            ValueError: it does not cover that.
        """
        hold, tokens = entry.hold, self._model.block_tokens
        if hold is None:
            raise ValueError("nothing is matched")
        if hold.tokens > end * tokens and hold.trim(end * tokens) != end * tokens:
            raise ValueError(f"block {end} is no checkpoint")
        made = []
        for index, group in enumerate(self._model.groups):
            first = max(start, end - group.trailing) if group.trailing else start
            places = hold.places(index, first, end)
            if forebay.NO_PLACE in places:
                raise ValueError(f"group {group.name} lacks blocks that are needed to resume at {end}")
            made.append(forebay.BlockRange(index, first, end - first, places, list(range(end - first))))
        return tuple(made)

    def finished(self, entry: Entry) -> None:
        """The request is over, in whatever state."""
        entry.drop_session()
        entry.drop_hold()
