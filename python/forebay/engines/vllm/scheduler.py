"""The scheduler's side: it decides. Prefetches, matches, loads, saves, and what workers answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import forebay

from ..common import attach
from ..common.journal import Journal
from ..common.opening import model_section, open_cache
from .complaints import complain, log
from .config import Settings, read_request
from .events import BlockEvents
from .figures import cache_figures, differences
from .journal import record
from .matching import Matcher
from .metadata import LoadJob, SaveJob, StepPlan, StepReport
from .requests import Entry, is_served
from .saving import Saver, full_blocks

if TYPE_CHECKING:
    from ..common.model import EngineModel

ATTACH_LIMIT_S = 60.0
"""How long requests wait for all workers to map the pool; then the engine computes alone."""

CLOSE_LIMIT_S = 10.0
RESET_LIMIT_S = 10.0
"""How long a reset waits for what is held, read or being written."""

STATS_EVERY_S = 1.0


class SchedulerSide:
    """Opens the cache, and decides for all ranks. vLLM's scheduler thread calls it.

    Args:
        settings: of the engine.
        model: what the engine runs.
        load: blocks are restored (the engine is a consumer).
        save: blocks are kept (the engine is a producer).
        event_makers: what makes the engine's block events, or None: it wants none.

    Raises:
        forebay.ForebayError: the cache cannot be opened; the message says why.
    """

    def __init__(
        self,
        settings: Settings,
        model: EngineModel,
        *,
        load: bool,
        save: bool,
        event_makers: tuple[Any, Any] | None = None,
    ) -> None:
        settings.log_once(log)
        self._settings = settings
        self._model = model
        self._save = save and settings.save
        self._policy = settings.config.get("prefetch.policy").value
        self._stop_mode = settings.config.get("prefetch.stop_mode").value
        self.cache = open_cache(settings, model, "vllm scheduler")
        verify = settings.config.get("store.verify").value == "on_load"
        self._pool = attach.PublishedPool(self.cache, model, server=settings.server, verify=verify)
        is_sync = settings.sync_load and len(model.groups) == 1
        if settings.sync_load and not is_sync:
            log.warning("forebay: sync_load has no effect with %d KV cache groups: loads are async", len(model.groups))
        self._matcher = Matcher(
            self.cache,
            model,
            load=load,
            is_sync=is_sync,
            usual=settings.session_options(),
            is_own=settings.server is None,
        )
        self._saver = Saver(self.cache, model)
        self._journal = Journal(settings.journal, complain)
        self._events = BlockEvents(self.cache, model, *event_makers) if event_makers is not None else None
        self._entries: dict[str, Entry] = {}
        self._loads: list[LoadJob] = []
        self._ranks_done: dict[int, tuple[int, int]] = {}
        self._next_job = 1
        self._step = 0
        self._attached = 0
        self._was_lost = False
        self._asked_at: float | None = None  # the workers, for the first time since they had no pool
        self._off: str | None = None
        self._figures: dict[str, int] = dict.fromkeys(("rank_bytes_loaded", "rank_bytes_saved", "failed_blocks"), 0)
        self._reported: dict[str, int] = {}
        self._reported_at = 0.0

    # ---- Requests ----

    def begin(self, request: Any) -> None:
        """A request has come into the queue."""
        if self._off is not None or not is_served(request):
            return
        options = read_request(request.kv_transfer_params)
        entry = self._matcher.begin(request, options)
        self._entries[request.request_id] = entry
        if self._events is not None:
            self._events.learn(entry)

    def match(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """What ``get_num_new_matched_tokens`` answers. Never raises."""
        entry = self._entries.get(request.request_id)
        if entry is None or entry.failed:
            return 0, False
        try:
            if self._attached < self._model.ranks and not self._may_load():
                return (0, False) if self._off is not None or self._was_lost else (None, False)
            tokens = self._matcher.match(entry, computed)
        except Exception as error:
            complain("matching", error)
            entry.failed = 1
            return 0, False
        return tokens, bool(tokens) and not self._matcher.is_sync

    def _may_load(self) -> bool:
        """False until all workers have the pool. When that takes too long, the engine computes alone for good.

        Workers are asked in steps, and an idle engine makes none: the limit counts from the first one that asked.
        """
        if self._asked_at is not None and time.monotonic() - self._asked_at > ATTACH_LIMIT_S:
            self._turn_off(
                f"{self._attached} of {self._model.ranks} workers came for the pool in {ATTACH_LIMIT_S:.0f} s"
            )
        return False

    def _turn_off(self, why: str) -> None:
        if self._off is None:
            self._off = why
            log.error("forebay: is off, the engine computes alone: %s", why)

    def allocated(self, request: Any, block_ids: Sequence[Sequence[int]], external: int) -> None:
        """For ``update_state_after_alloc``: what was promised becomes a job, if need be one that fails."""
        entry = self._entries.get(request.request_id)
        if external == 0:
            if entry is not None:
                entry.drop_hold()
            return
        number = self._take_number()
        try:
            if entry is None:
                raise ValueError("the request is not known")
            self._loads.append(self._matcher.allocated(entry, external, block_ids, number))
        except Exception as error:
            complain("preparing a load", error)
            broken = [block for blocks in block_ids for block in blocks if block]
            start = entry.computed // self._model.block_tokens if entry is not None else 0
            if len(block_ids) == 1:
                broken = list(block_ids[0])[start : start + external // self._model.block_tokens]
            if entry is not None:
                entry.failed += len(broken)
            self._loads.append(LoadJob(number, request.request_id, self._matcher.is_sync, [], broken))

    def finished(self, request: Any) -> None:
        """The request is over: done, aborted or failed, in whatever state."""
        entry = self._entries.pop(request.request_id, None)
        if entry is None:
            return
        self._matcher.finished(entry)
        self._saver.finished(entry)
        row = record(entry, policy=self._policy, stop_mode=self._stop_mode, is_async=not self._matcher.is_sync)
        if row is not None:
            self._journal.write(row)

    # ---- Steps ----

    def _take_number(self) -> int:
        number, self._next_job = self._next_job, self._next_job + 1
        return number

    def plan(self, output: Any) -> StepPlan:
        """For ``build_connector_meta``: loads that were promised, and blocks that this step fills."""
        self._step += 1
        self._saver.collect()
        loads, self._loads = self._loads, []
        is_there = self._settings.server is None or self._pool.is_current()
        if not is_there:
            self._lose(loads)
        waiting = self._attached < self._model.ranks and self._off is None
        if not waiting or not is_there:
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = time.monotonic()
        address = self._pool.address
        plan = StepPlan(self._step, address.instance, address if waiting else None, loads)
        if self._save and self._off is None and self._attached >= self._model.ranks:
            for request_id, scheduled in output.num_scheduled_tokens.items():
                entry = self._entries.get(request_id)
                if entry is not None and entry.save:
                    self._stage(plan.saves, entry, scheduled, output)
        if output.total_num_scheduled_tokens == 0 and not loads and self._settings.idle_wait_ms > 0:
            self._matcher.wait_a_little(self._settings.idle_wait_ms / 1000)
        return plan

    def _lose(self, loads: list[LoadJob]) -> None:
        """The server is gone, or is another one: its places mean nothing any more. The engine computes meanwhile."""
        if not self._was_lost:
            log.warning("forebay: the server is gone; the engine computes alone until it is back")
        self._was_lost, self._attached = True, 0
        for job in loads:
            job.broken = [block for one in job.copies for block in one.blocks]
        self._saver.void()
        for entry in self._entries.values():
            entry.drop_put()
        self._pool.renew()

    def _stage(self, saves: list[SaveJob], entry: Entry, scheduled: int, output: Any) -> None:
        full = full_blocks(entry.request, scheduled, self._model.block_tokens)
        if full <= entry.saved:
            return
        try:
            block_ids = output.kv_connector_block_state.get_block_ids(entry.request.request_id)
            if block_ids is None:
                return
            if self._events is not None:
                entry.grow()
                self._events.learn(entry, entry.saved)
            for end in self._saver.checkpoints(entry, full):
                job = self._saver.stage(entry, end, block_ids, self._take_number())
                if job is not None:
                    saves.append(job)
        except forebay.CapacityError:
            entry.saved = full  # no room for its prefix now: the next block asks again
        except forebay.ForebayError as error:
            complain("saving", error)
            entry.save = False

    def take_report(self, report: StepReport | None) -> None:
        """What the workers of one step did."""
        if report is None:
            return
        for refusal in report.refusals:
            self._turn_off(refusal)
        if report.attached:
            self._attached += report.attached
            if self._attached >= self._model.ranks:
                self._pool.close()
                self._was_lost = False
        self._figures["rank_bytes_loaded"] += report.loaded_bytes
        self._figures["rank_bytes_saved"] += report.saved_bytes
        spoiled = False
        for job, (ranks, failed) in report.ended.items():
            have, before = self._ranks_done.pop(job, (0, 0))
            ranks, failed = ranks + have, max(failed, before)
            if ranks < self._model.ranks:
                self._ranks_done[job] = (ranks, failed)
            elif self._matcher.is_loading(job):
                entry = self._matcher.ended(job, failed)
                self._figures["failed_blocks"] += failed
                spoiled = spoiled or (entry is not None and self._matcher.is_sync)
            else:
                if spoiled:
                    self._saver.void()
                self._saver.ended(job, failed)
        if spoiled:
            self._saver.void()

    # ---- The cache as a whole ----

    def section(self) -> dict[str, Any]:
        """The ``model`` section that a server for this engine needs."""
        return model_section(self._settings, self._model)

    def reset(self) -> bool:
        """For ``reset_cache``: forgets every resident block. True: the next lookup is a miss."""
        self._saver.collect(wait=True)
        for entry in self._entries.values():
            entry.drop_session()
            entry.drop_hold()
            entry.drop_put()
            entry.saved = 0
        return self.cache.reset(RESET_LIMIT_S, bump_epoch=self._settings.reset_bumps_epoch)

    def take_figures(self) -> dict[str, int]:
        """Figures since the last call that gave some; {} in between: the cache's are not for every step.

        A step that leaves no request always gives some: no other may come for long.
        """
        now = time.monotonic()
        if now - self._reported_at < STATS_EVERY_S and self._entries:
            return {}
        self._reported_at = now
        try:
            totals = cache_figures(self.cache.stats()) | self._figures
        except forebay.ForebayError:
            return {}  # its server is away
        made, self._reported = differences(totals, self._reported), totals
        return made

    def take_events(self) -> Iterable[Any]:
        """Block events since the last call."""
        return self._events.take() if self._events is not None else ()

    def has_work(self) -> bool:
        """Whether a step must come although no request waits: a worker owes an answer."""
        return bool(self._saver)

    def close(self) -> None:
        """Ends everything and closes the cache."""
        for entry in list(self._entries.values()):
            self.finished(entry.request)
        self._matcher.close()
        self._saver.close()
        self._pool.close()
        if self._events is not None:
            self._events.close()
        self.cache.close(CLOSE_LIMIT_S)
