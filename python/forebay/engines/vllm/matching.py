"""Matching: a request's prefetch from its start to a hold, and the loads that copy it into the engine's blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import forebay

from .complaints import complain
from .config import RequestOptions
from .metadata import Copies, LoadJob
from .requests import Entry, namespace_of, tokens_of

if TYPE_CHECKING:
    from ..common.model import EngineModel

_NULL_BLOCK = 0  # vLLM's: a sliding window does not need this block


class Matcher:
    """The scheduler's side of loading. One thread calls it.

    Args:
        cache: that has the blocks.
        model: its groups.
        load: False: nothing is restored.
        is_sync: loads end before the forward of their step.
        usual: arguments of every session that its request does not name.
        is_own: the cache is of this process, not a server's.
    """

    def __init__(
        self,
        cache: forebay.Cache,
        model: EngineModel,
        *,
        load: bool,
        is_sync: bool,
        usual: dict[str, Any],
        is_own: bool,
    ) -> None:
        self._cache = cache
        self._model = model
        self._load = load
        self.is_sync = is_sync
        self._usual = usual
        self._is_own = is_own
        self._loading: dict[int, tuple[Entry, forebay.Hold]] = {}
        self._draining: dict[str, Entry] = {}

    # ---- A request arrives ----

    def begin(self, request: Any, options: RequestOptions) -> Entry:
        """Hashes a request's prompt and starts its prefetch."""
        sequence = self._cache.sequence(tokens_of(request), namespace_of(request, options))
        entry = Entry(request, options, sequence, request.num_tokens, save=options.save)
        if self._load and options.load and not request.skip_reading_prefix_cache:
            entry.session = self._start(entry)
        return entry

    def _start(self, entry: Entry) -> forebay.Session | None:
        label = str(entry.request.request_id)
        try:
            return self._cache.start(entry.sequence, label=label, **self._usual | entry.options.session)
        except (forebay.NotEnabledError, forebay.ConfigError) as error:
            complain("a policy of a request", error)
        except forebay.BusyError as error:
            complain("starting a prefetch", error)
            return None
        return self._cache.start(entry.sequence, label=label)

    # ---- The scheduler asks ----

    def match(self, entry: Entry, computed: int) -> int | None:
        """Tokens that can be loaded beyond the engine's own; None: ask again. The same answer until it is allocated."""
        hold = entry.hold
        if hold is None:
            if entry.session is not None:
                try:
                    if not self._is_answered(entry, entry.session):
                        return None
                    self._take(entry, entry.session)
                except forebay.StaleError:
                    self._lose(entry)
            else:
                self._look_up(entry)
            hold = entry.hold
            if hold is None:
                return 0
        entry.computed = computed
        return max(0, hold.tokens - computed)

    def _is_answered(self, entry: Entry, session: forebay.Session) -> bool:
        """The quick path of a waiting request: one poll."""
        if not entry.demanded:
            entry.demanded = True
            session.demand()
        snapshot = session.poll()
        if not snapshot.answered:
            self._draining[entry.request.request_id] = entry
            entry.seen = snapshot
            return False
        entry.answer = snapshot
        self._draining.pop(entry.request.request_id, None)
        return True

    def _lose(self, entry: Entry) -> None:
        """The prefetch is gone: with its server and all that it had read, or forgotten, answered long ago."""
        self._draining.pop(entry.request.request_id, None)
        entry.drop_session()
        entry.lost = not self._is_own
        if self._is_own:
            self._look_up(entry)

    def _take(self, entry: Entry, session: forebay.Session) -> None:
        """The answer becomes a hold; one whose lease has ended is looked up anew."""
        entry.session = None
        assert entry.answer is not None
        if entry.answer.delivered_tokens == 0:
            session.release()
            return
        try:
            entry.hold = session.take()
        except forebay.StaleError:
            self._look_up(entry)

    def _look_up(self, entry: Entry) -> None:
        """What is resident, for a request that comes again (preempted) or too late."""
        if not self._load or not entry.options.load or entry.failed or entry.request.skip_reading_prefix_cache:
            return
        entry.grow()
        with contextlib.suppress(forebay.CapacityError, forebay.BusyError):
            hold = self._cache.lookup(entry.sequence)
            if hold.tokens > 0:
                entry.hold = hold
            else:
                hold.release()

    def wait_a_little(self, seconds: float) -> None:
        """Waits for one of the prefetches that the scheduler asked for: there is nothing else to run."""
        for entry in self._draining.values():
            if entry.session is not None:
                with contextlib.suppress(forebay.WaitTimeoutError, forebay.StaleError):
                    entry.session.wait(seconds)
                return

    # ---- Allocated ----

    def allocated(self, entry: Entry, external: int, block_ids: Sequence[Sequence[int]], number: int) -> LoadJob:
        """The load of a match whose blocks are allocated.

        Args:
            entry: of the request.
            external: tokens to load beyond ``entry.computed``.
            block_ids: per group the engine's blocks of the request, from its first.
            number: of the job.

        Raises:
            forebay.ForebayError: the match is not there any more.
            ValueError: it does not cover what the engine counts on.
        """
        hold, entry.hold = entry.hold, None
        if hold is None:
            raise ValueError("nothing is matched")
        tokens = self._model.block_tokens
        start, end = entry.computed // tokens, (entry.computed + external) // tokens
        try:
            if hold.tokens > end * tokens and hold.trim(end * tokens) != end * tokens:
                raise ValueError(f"block {end} is no checkpoint")
            copies = self._copies(hold, start, end, block_ids)
        except BaseException:
            hold.release()
            raise
        if entry.matched == 0:
            entry.matched = external
        self._loading[number] = (entry, hold)
        return LoadJob(number, entry.request.request_id, self.is_sync, copies)

    def _copies(self, hold: forebay.Hold, start: int, end: int, block_ids: Sequence[Sequence[int]]) -> list[Copies]:
        made = []
        for index, group in enumerate(self._model.groups):
            places, blocks = hold.places(index, start, end), block_ids[group.index][start:end]
            if len(blocks) < end - start:
                raise ValueError(f"the engine has {len(blocks)} blocks for {end - start}")
            wanted = [i for i, block in enumerate(blocks) if block != _NULL_BLOCK]
            if any(places[i] == forebay.NO_PLACE for i in wanted):
                raise ValueError(f"group {index} lacks blocks that the engine needs to resume at {end}")
            if wanted:
                made.append(Copies(index, [places[i] for i in wanted], [blocks[i] for i in wanted]))
        return made

    def is_loading(self, number: int) -> bool:
        """Whether a job is a load of ours that has not ended."""
        return number in self._loading

    def ended(self, number: int, failed: int) -> Entry | None:
        """All ranks have copied: lets the hold go. The entry when blocks failed."""
        entry, hold = self._loading.pop(number)
        with contextlib.suppress(forebay.ForebayError):  # its server may be gone
            hold.release()
        if failed == 0:
            return None
        entry.failed += failed
        return entry

    # ---- The end ----

    def finished(self, entry: Entry) -> None:
        """The request is over, in whatever state. A load under way keeps its hold: ranks still read it."""
        self._draining.pop(entry.request.request_id, None)
        if entry.answer is None and entry.session is not None:
            try:
                entry.answer = entry.session.poll()
            except forebay.ForebayError:
                entry.lost = True
        entry.drop_session()
        entry.drop_hold()

    def close(self) -> None:
        """Lets everything go."""
        self._draining.clear()
        for _, hold in self._loading.values():
            with contextlib.suppress(forebay.ForebayError):
                hold.release()
        self._loading.clear()

    def __bool__(self) -> bool:
        return bool(self._loading)
