"""The rank that has the cache, or the connection to its server: it decides for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import forebay

from ..common import attach
from ..common.figures import cache_figures
from ..common.opening import open_cache
from .complaints import complain, log
from .matching import Matcher
from .requests import NOTHING, Arrival, Entry, Match
from .saving import Saver, Staging

if TYPE_CHECKING:
    from ..common.model import EngineModel
    from .config import Settings

CLOSE_LIMIT_S = 10.0
RESET_LIMIT_S = 2.0
"""How long a reset waits for what is held, read or being written; it takes effect at once."""

AGAIN_S = 1.0
"""A server that is gone is looked for not more often than this."""

AGAIN_SHARE = 20
"""Nor for more than one in so many seconds: a server that hangs lets each look wait."""


class Leader:
    """Cache, sessions, holds and puts. The scheduler's thread calls it.

    Args:
        settings: of the engine.
        model: that it runs.

    Raises:
        ValueError: the server's model is not the engine's.
        forebay.ForebayError: the cache cannot be opened.
    """

    def __init__(self, settings: Settings, model: EngineModel) -> None:
        self._settings, self._model = settings, model
        self.cache = open_cache(settings, model, "sglang scheduler")
        try:
            verify = settings.config.get("store.verify").value == "on_load"
            self.published = attach.PublishedPool(self.cache, model, server=settings.server, verify=verify)
        except BaseException:
            self.cache.close(CLOSE_LIMIT_S)
            raise
        self._matcher = Matcher(self.cache, model, settings.session_options())
        self._saver = Saver(self.cache, model)
        self._next_look = 0.0

    # ---- The server ----

    def is_current(self) -> bool:
        """Whether places of the cache still mean the pool that the ranks have."""
        return self._settings.server is None or self.published.is_current()

    def found_again(self) -> bool:
        """Whether a server that was gone is there again; asked at most once in a while."""
        began = time.monotonic()
        if began < self._next_look:
            return False
        is_there = self.published.renew()
        ended = time.monotonic()
        self._next_look = ended + max(AGAIN_S, AGAIN_SHARE * (ended - began))
        return is_there

    # ---- Requests ----

    def begin(self, entry: Entry, arrival: Arrival) -> None:
        """Hashes a request's prompt and starts its prefetch, if it has one.

        Raises:
            forebay.ForebayError: it could not be; there is no session then.
        """
        entry.sequence = self.cache.sequence(arrival.ids(), entry.namespace)
        entry.length = len(arrival.tokens)
        if entry.waiting:
            self._matcher.start(entry, entry.on_device)

    def poll(self, entry: Entry, on_device: Callable[[], int]) -> Match | None:
        """Demand and poll; see :meth:`Matcher.poll`. What fails is a miss."""
        try:
            return self._matcher.poll(entry, on_device)
        except Exception as error:
            complain("matching", error)
            entry.lost = self._settings.server is not None and not self.is_current()
            entry.drop_session()
            entry.drop_hold()
            return NOTHING

    def look_up(self, entry: Entry, on_device: int) -> Match:
        """See :meth:`Matcher.look_up`."""
        return self._matcher.look_up(entry, on_device)

    def ranges(self, entry: Entry, start: int, end: int) -> tuple[forebay.BlockRange, ...]:
        """See :meth:`Matcher.ranges`."""
        return self._matcher.ranges(entry, start, end)

    def stage(self, entry: Entry, arrival: Arrival, full: int, window_from: list[int], *, more: bool) -> Staging | None:
        """Stages what is missing of a request's first blocks; see :meth:`Saver.stage`."""
        self._grow(entry, arrival)
        return self._saver.stage(entry, full, window_from or [0] * len(self._model.groups), keep=more)

    def _grow(self, entry: Entry, arrival: Arrival) -> None:
        """Takes over the tokens that the request got since."""
        if entry.sequence is None:
            entry.sequence = self.cache.sequence(arrival.ids(), entry.namespace)
            entry.length = len(arrival.tokens)
        elif len(arrival.tokens) > entry.length:
            entry.sequence.append(arrival.ids(entry.length))
            entry.length = len(arrival.tokens)

    def saved(self, number: int, *, is_right: bool) -> None:
        """All ranks have copied a save."""
        self._saver.ended(number, is_right=is_right)

    def finished(self, entry: Entry) -> None:
        """The request is over, in whatever state."""
        self._matcher.finished(entry)
        self._saver.finished(entry)

    # ---- The cache as a whole ----

    def collect(self) -> None:
        """Takes in what was committed meanwhile."""
        self._saver.collect()

    def reset(self, bump_epoch: bool) -> bool:
        """Forgets every resident block; takes effect at the call. Whether all of it is free already."""
        self._saver.collect(wait=True)
        try:
            done = self.cache.reset(RESET_LIMIT_S, bump_epoch=bump_epoch)
            if bump_epoch:
                log.warning(
                    "forebay: the weights epoch is %d now: a store that keeps it refuses an engine that starts with "
                    "less (model.weights_epoch in config)",
                    self.cache.epoch,
                )
            return done
        except forebay.ForebayError as error:
            complain("resetting", error)
            return False

    def figures(self) -> dict[str, int]:
        """Totals; {}: its server is away."""
        try:
            return cache_figures(self.cache.stats())
        except forebay.ForebayError:
            return {}

    def close(self) -> None:
        """Ends what is under way and closes the cache."""
        self._saver.close()
        self.published.close()
        try:
            self.cache.close(CLOSE_LIMIT_S)
        except forebay.ForebayError as error:
            complain("closing the cache", error)
