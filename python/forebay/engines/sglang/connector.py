"""The integration without SGLang: prefetches, loads and saves of one rank, in step with the others.

One rank, the leader, has the cache and decides. What another rank must know reaches it through :mod:`.ranks`, at the
same place of the same step; every method here is called by all ranks in the same order, with the same arguments.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import forebay

from ..common.journal import Journal
from .complaints import complain, log
from .copying import Copier, Outcome, Pages, Streams
from .journal import record
from .leader import Leader
from .ranks import Attached, Ranks, RanksError, attach_all
from .requests import NOTHING, Arrival, Entry, Held, Match
from .underway import Saves

if TYPE_CHECKING:
    from ..common.model import EngineModel
    from .config import Settings

LOST = b"lost"
"""In a decision to stop: the pool is not there any more."""


class Connector:
    """One rank. The scheduler's thread calls it.

    Args:
        settings: of the engine.
        model: that it runs.
        ranks: that share the cache.
        register: registers this rank's KV tensors.
        streams: of the engine; None on the host.

    Raises:
        ValueError: the settings or the server's model are not accepted; the message says what is.
        forebay.ForebayError: the cache cannot be opened.
        RanksError: the same with several ranks, on all of them; or they differ.
    """

    def __init__(
        self,
        settings: Settings,
        model: EngineModel,
        ranks: Ranks,
        register: Callable[[forebay.Rank], None],
        *,
        streams: Streams | None = None,
    ) -> None:
        self.ranks = ranks
        self.model = model
        self._settings, self._register = settings, register
        self._has_windows = any(group.trailing for group in model.groups)
        self._policy = str(settings.config.get("prefetch.policy").value)
        self._stop_mode = str(settings.config.get("prefetch.stop_mode").value)
        self._copier = Copier(streams)
        self._journal = Journal(settings.journal if ranks.is_leader else None, complain)
        self._entries: dict[Hashable, Entry] = {}
        self._asked: dict[Hashable, Entry] = {}  # of several ranks: answers come with the next step
        self._saves = Saves(ranks, self._copier, self._saved)
        self._is_mixed = False  # the device may have pages of other weights than the model's
        self._attached: Attached | None = None
        self._leader: Leader | None = None
        self._off: str | None = None
        self.loaded_bytes = self.failed_blocks = 0
        self._open()

    # ---- Start ----

    def _open(self) -> None:
        error: Exception | None = None
        if self.ranks.is_leader:
            self._settings.log_once(log)
            try:
                self._leader = Leader(self._settings, self.model)
            except (forebay.ForebayError, ValueError, OSError) as found:
                error = found
        if self.ranks.size == 1 and error is not None:
            raise error
        try:
            self.ranks.agree(self._alike(), problem=None if error is None else str(error))
            self._attach()
        except BaseException:
            if self._leader is not None:
                self._leader.close()
            raise

    def _alike(self) -> dict[str, str]:
        """What has to be equal on all ranks: the model, and every setting that decides when they talk to each other."""
        own = self._settings
        return self.model.digest() | {"save": str(own.save), "server": own.server or "none", "device": own.device}

    def _attach(self) -> None:
        published = self._leader.published if self._leader is not None else None
        self._attached = attach_all(
            self.ranks,
            published,
            self.model,
            self._register,
            device=self._settings.device,
            threads=self._settings.copy_threads,
        )
        log.info("forebay: rank %d of %d uses the pool", self.ranks.rank, self.ranks.size)

    def _detach(self) -> None:
        attached, self._attached = self._attached, None
        if attached is not None:
            try:
                attached.close()
            except forebay.ForebayError as error:
                complain("letting the pool go", error)

    def _turn_off(self, why: str) -> None:
        if self._off is None:
            self._off = why
            log.error("forebay: is off, the engine computes alone: %s", why)

    def _lose(self) -> None:
        """The server is gone, or is another one: its places mean nothing any more. The engine computes meanwhile."""
        log.warning("forebay: the server is gone; the engine computes alone until it is back")
        self._saves.finish(wait=True)
        self._detach()
        for entry in self._entries.values():
            entry.lost = entry.lost or entry.session is not None
            self._forget(entry)

    def _find_again(self) -> bool:
        """Attaches to a server that came back. Whether the pool is there."""
        if self._attached is not None or self._off is not None:
            return self._attached is not None
        try:
            if self.ranks.share(self._leader.found_again() if self._leader is not None else None):
                self._attach()
        except RanksError as error:
            complain("attaching to the server again", error)
            if not error.is_away:
                self._turn_off(str(error))
        return self._attached is not None

    # ---- Requests ----

    def begin(self, arrival: Arrival, limit: int, on_device: int, *, is_whole: bool = True) -> None:
        """A request has come into the queue: starts its prefetch where there is something to fetch.

        Args:
            arrival: with a token beyond ``limit``.
            limit: end of what may be restored, in tokens.
            on_device: tokens that the device has.
            is_whole: the last token is the request's own, not a stand-in.
        """
        known = self._entries.get(arrival.handle)
        if known is not None and known.owner != arrival.owner:
            self._forget(known)  # of another request: what was fetched for it is not for this one
        if self._off is not None or known is not None or not self._find_again():
            return
        tokens = self.model.block_tokens
        entry = Entry(arrival.name, arrival.options, arrival.namespace, limit // tokens * tokens, on_device)
        entry.save = self._settings.save and arrival.options.save
        entry.waiting = arrival.options.load and entry.limit > on_device // tokens * tokens
        entry.key = arrival.key if entry.waiting else None
        entry.owner = arrival.owner
        self._entries[arrival.handle] = entry
        if self._leader is None:
            return
        try:
            self._leader.begin(entry, arrival)
        except forebay.ForebayError as error:
            complain("starting a prefetch", error)
        if not is_whole:
            entry.sequence, entry.length = None, 0

    def check(self, handle: Hashable, on_device: Callable[[Entry], int]) -> bool:
        """Demand and poll: False while it drains. Quick as long as it is False.

        Args:
            handle: of the request.
            on_device: asked once it is answered: tokens that the device has of its prompt.
        """
        entry = self._entries.get(handle)
        if entry is None or not entry.waiting:
            return True
        if self.ranks.size > 1:
            self._asked.setdefault(handle, entry)
            return self.ranks.lost is not None  # then it is a miss
        assert self._leader is not None
        match = self._leader.poll(entry, lambda: on_device(entry))
        if match is None:
            return False
        self._answered(entry, match)
        return True

    def _answered(self, entry: Entry, match: Match) -> None:
        entry.waiting, entry.match, entry.key = False, match, None

    def _share_answers(self, on_device: Callable[[Entry], int]) -> None:
        """The answers that the leader has by now, on all ranks. No message when nothing was asked for."""
        if not self._asked or self.ranks.lost is not None:
            return
        asked = list(self._asked.items())
        answers: list[tuple[int, bool, Match | None]] = []
        if self._leader is not None:
            polled = [self._polled(entry, on_device) for _, entry in asked]
            answers = [(i, looked, match) for i, (looked, match) in enumerate(polled) if looked or match is not None]
        for i, looked, match in self.ranks.share(answers):
            handle, entry = asked[i]
            if looked and self._leader is None:
                self._look_too(entry, on_device)
            if match is not None:
                del self._asked[handle]
                self._answered(entry, match)

    def _polled(self, entry: Entry, on_device: Callable[[Entry], int]) -> tuple[bool, Match | None]:
        """The leader's answer, and whether its tree was looked at for it."""
        assert self._leader is not None
        looked = []

        def look() -> int:
            looked.append(entry)
            return on_device(entry)

        match = self._leader.poll(entry, look)
        return bool(looked), match

    @staticmethod
    def _look_too(entry: Entry, on_device: Callable[[Entry], int]) -> None:
        """A look counts as a use: what is evicted first has to stay the same on all ranks."""
        try:
            on_device(entry)
        except Exception as error:
            complain("matching", error)

    def span(self, handle: Hashable) -> tuple[int, int | None]:
        """Tokens that the request's prefetch read from the store, and where they begin; once."""
        entry = self._entries.get(handle)
        if entry is None or entry.match is None or entry.is_told:
            return 0, None
        entry.is_told = True
        tokens = entry.match.span_end - entry.match.span_start
        return (tokens, entry.match.span_start) if tokens > 0 else (0, None)

    def match(self, handle: Hashable, on_device: int, limit: int) -> Match:
        """What can be loaded beyond the device's tokens; its end is 0 when there is nothing.

        The same until it is loaded or the request ends, as far as the device allows.

        Args:
            handle: of the request.
            on_device: tokens that the device has now.
            limit: end of what the engine wants, in tokens.
        """
        entry = self._entries.get(handle)
        if entry is None or entry.waiting or entry.failed or not entry.options.load:
            return NOTHING
        tokens = self.model.block_tokens
        limit = min(limit // tokens * tokens, entry.limit)
        if entry.match is None:
            if on_device >= limit or self._attached is None:
                return NOTHING
            # All was on the device at arrival: it evicted some of it since.
            entry.match = self.ranks.share(self._look_up(entry, on_device))
        found = entry.match
        end = min(found.end, limit)
        if end <= on_device or on_device < found.first:
            return NOTHING
        return Match(found.first, end, max(found.span_start, on_device), min(found.span_end, end))

    def _look_up(self, entry: Entry, on_device: int) -> Match:
        if self._leader is None:
            return NOTHING
        try:
            return self._leader.look_up(entry, on_device)
        except forebay.ForebayError as error:
            complain("looking up", error)
            return NOTHING

    # ---- Loading ----

    def load(self, handle: Hashable, start: int, end: int, pages: Pages | None) -> bool:
        """Copies blocks ``[start, end)`` from the pool into pages. All of them are right on return, or False.

        After False the request gets no more: it is computed.

        Args:
            handle: of the request.
            start: first block.
            end: of the blocks.
            pages: per group the pages of the blocks; None: there were none to be had.
        """
        entry = self._entries.get(handle)
        if entry is None:
            return False
        if self.ranks.size > 1:
            self._saves.finish(wait=True)  # answers come in the order of decisions
        decision = self._decided(self._load_decision(entry, start, end, pages))
        if decision is None:
            entry.failed += end - start
        else:
            entry.failed += self._load(decision, start, end, pages)
        entry.drop_hold()
        entry.match = NOTHING
        if entry.failed:
            self.failed_blocks += entry.failed
            return False
        if entry.matched == 0:
            entry.matched = (end - start) * self.model.block_tokens
        return True

    def _load_decision(self, entry: Entry, start: int, end: int, pages: Pages | None) -> list[forebay.Decision]:
        if self._leader is None or pages is None:
            return []
        try:
            if not self._leader.is_current():
                return [forebay.Decision(forebay.DecisionKind.STOP, extra=LOST)]
            ranges = self._leader.ranges(entry, start, end)
        except (forebay.ForebayError, ValueError) as error:
            complain("preparing a load", error)
            return []
        return [forebay.Decision(forebay.DecisionKind.LOAD, tokens=end * self.model.block_tokens, ranges=ranges)]

    def _decided(self, made: list[forebay.Decision]) -> forebay.Decision | None:
        """The one decision of this place, on all ranks; None: there is nothing to do."""
        decisions = self.ranks.decide(made if self.ranks.is_leader else None)
        for decision in decisions:
            if decision.kind == forebay.DecisionKind.STOP:
                self._lose()
                return None
        return decisions[0] if decisions else None

    def _load(self, decision: forebay.Decision, start: int, end: int, pages: Pages | None) -> int:
        """Blocks that failed on any rank."""
        outcome = Outcome(-errno.ENOMEM)
        if pages is not None and self._attached is not None:
            outcome = self._copier.load(self._attached, decision.ranges, pages, start)
            self.loaded_bytes += outcome.bytes
        result = self.ranks.conclude(decision.number, outcome.code, outcome.failed)
        if result.ok:
            return 0
        return len({one.block for one in result.failed}) or end - start

    # ---- Saving ----

    def save(self, handle: Hashable, full: int, held: Held, *, again: int = 0, more: bool = False) -> None:
        """Keeps what is missing of a request's first blocks.

        With sliding windows also a checkpoint where the same prompt may resume: a token of it is left to compute.

        Args:
            handle: of the request.
            full: end of the blocks that the device has.
            held: what the engine has of it.
            again: the greatest block where the same prompt may resume.
            more: the prompt goes on.
        """
        entry = self._entries.get(handle)
        if self._is_mixed or self._attached is None or (entry is not None and full <= entry.saved):
            return
        request = held.arrival()
        if entry is None:
            entry = self._entries[handle] = Entry(request.name, request.options, request.namespace)
            entry.save, entry.owner = self._settings.save and request.options.save, request.owner
        if entry.owner not in (0, request.owner):
            return  # another request has its name and has not ended
        before, entry.saved = entry.saved, full
        if not entry.save:
            return
        if self._has_windows and before < again < full:
            self._save_to(entry, request, again, held, more=True)
        self._save_to(entry, request, full, held, more=more)

    def _save_to(self, entry: Entry, request: Arrival, end: int, held: Held, *, more: bool) -> None:
        decision = self._decided(self._save_decision(entry, request, end, held, more=more))
        if decision is None or not decision.ranges or self._attached is None:
            return
        self._saves.start(self._attached, decision, held)
        self._saves.finish(wait=self._settings.device == "host")

    def _save_decision(
        self, entry: Entry, request: Arrival, end: int, held: Held, *, more: bool
    ) -> list[forebay.Decision]:
        if self._leader is None:
            return []
        try:
            if not self._leader.is_current():
                return [forebay.Decision(forebay.DecisionKind.STOP, extra=LOST)]
            window_from = held.window_from() if self._has_windows else []
            staging = self._leader.stage(entry, request, end, window_from, more=more)
        except forebay.CapacityError:
            return []  # no room for its prefix now: a later checkpoint asks again
        except (forebay.ForebayError, ValueError) as error:
            complain("saving", error)
            entry.save = False
            return []
        if staging is None:
            return []
        return [forebay.Decision(forebay.DecisionKind.SAVE, tag=staging.number, ranges=staging.ranges)]

    def _saved(self, tag: int, is_right: bool) -> None:
        if self._leader is not None:
            self._leader.saved(tag, is_right=is_right)

    # ---- Ends ----

    def _forget(self, entry: Entry) -> None:
        entry.drop_session()
        entry.drop_hold()
        entry.drop_put()
        entry.waiting, entry.match = False, NOTHING

    def admitted(self, handle: Hashable) -> None:
        """The request runs: what was matched for it and not loaded is not needed any more."""
        entry = self._entries.get(handle)
        if entry is not None and not entry.waiting:
            entry.drop_hold()
            entry.match = NOTHING

    def end(self, handle: Hashable) -> None:
        """The request is over, in whatever state; also for one that was never here. Copies under way still count."""
        entry = self._entries.pop(handle, None)
        self._asked.pop(handle, None)
        if entry is None:
            return
        if self._leader is not None:
            self._leader.finished(entry)
            row = record(entry, policy=self._policy, stop_mode=self._stop_mode)
            if row is not None:
                self._journal.write(row)

    def step(self, on_device: Callable[[Entry], int]) -> None:
        """Once per pass of the scheduler, before it asks for requests."""
        self._share_answers(on_device)
        self._saves.finish()
        if self._leader is not None:
            self._leader.collect()

    def has_work(self) -> bool:
        """Whether the device's pages or the cache's answers are still waited for."""
        return bool(self._saves) or any(entry.waiting or entry.hold is not None for entry in self._entries.values())

    def reset(self, *, new_epoch: bool | None = None) -> bool:
        """Ends all requests and forgets every block of the pool. Whether the next lookup is a miss.

        Args:
            new_epoch: makes the store's objects unreachable too; None: as configured.
        """
        self._is_mixed = False
        for handle in list(self._entries):
            self.end(handle)
        return self._clear(new_epoch=self._settings.reset_bumps_epoch if new_epoch is None else new_epoch)

    def _clear(self, *, new_epoch: bool) -> bool:
        self._saves.finish(wait=True)
        return bool(self.ranks.share(self._leader.reset(new_epoch) if self._leader is not None else None))

    def new_weights(self, *, is_empty: bool = False) -> None:
        """What was computed so far is out of reach, in the store too; what runs on with it is not kept.

        Args:
            is_empty: the device has no page of the old weights. Else nothing is kept until it is reset: its pages
                would be found as ones of the new weights.
        """
        self._is_mixed = not is_empty
        for entry in self._entries.values():
            self._forget(entry)
            entry.save = False
        self._clear(new_epoch=True)

    def figures(self) -> dict[str, int]:
        """Totals for the engine's metrics; {} on other ranks than the leader, or without the server."""
        if self._leader is None:
            return {}
        own = {
            "rank_bytes_loaded": self.loaded_bytes,
            "rank_bytes_saved": self._saves.bytes,
            "failed_blocks": self.failed_blocks,
        }
        totals = self._leader.figures()
        return totals | own if totals else {}

    def close(self) -> None:
        """Ends everything. Idempotent."""
        self._saves.finish(wait=True)
        for handle in list(self._entries):
            self.end(handle)
        self._detach()
        leader, self._leader = self._leader, None
        if leader is not None:
            leader.close()

    @property
    def cache(self) -> Any:
        """The leader's cache; None on other ranks."""
        return self._leader.cache if self._leader is not None else None
