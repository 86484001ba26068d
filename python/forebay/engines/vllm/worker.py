"""The worker's side: copies between the pool and this rank's KV tensors, as the step's plan says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import forebay

from ..common import attach
from ..common.address import Instance, PoolAddress
from .complaints import complain, log
from .metadata import Copies, LoadJob, SaveJob, StepPlan, StepReport

if TYPE_CHECKING:
    from ..common.model import EngineModel
    from .config import Settings


class _Running(NamedTuple):
    """A load whose copies may still be under way."""

    job: LoadJob
    copies: list[tuple[forebay.Copy, Copies]]


class LoadResults(NamedTuple):
    """What ended since the last question: requests, those among them that failed, and blocks that did."""

    finished: set[str]
    failed: set[str]
    failed_blocks: set[int]


class WorkerSide:
    """One rank. One thread calls it.

    Args:
        settings: of the engine.
        model: its groups.
        rank: number of this rank.
    """

    def __init__(self, settings: Settings, model: EngineModel, rank: int) -> None:
        self._settings = settings
        self._model = model
        self._number = rank
        self._tensors: Mapping[str, Any] = {}
        self._rank: forebay.Rank | None = None
        self._kept: Any = None
        self._instance: Instance | None = None
        self._plan_instance: Instance = (0, 0)
        self._verify = False
        self._running: list[_Running] = []
        self._results = LoadResults(set(), set(), set())
        self._report = StepReport()
        self._spoiled = False  # a load that this step's forward needed has failed

    def register(self, tensors: Mapping[str, Any]) -> None:
        """Takes the KV tensors, by layer; they are compiled when the pool is there."""
        self._tensors = dict(tensors)

    # ---- A step ----

    def begin(self, plan: StepPlan) -> None:
        """Starts the step's loads; those that its forward needs have ended on return."""
        if plan.pool is not None and self._instance != plan.pool.instance:
            self._attach(plan.pool)
        self._plan_instance = plan.instance
        self._spoiled = False
        for job in plan.loads:
            self._load(job)

    def save(self, plan: StepPlan) -> None:
        """Copies what the step computed; has ended on return, so the blocks may be used anew."""
        for job in plan.saves:
            self._save(job)

    def results(self) -> LoadResults:
        """Loads that ended, once each."""
        self._poll(wait=False)
        results, self._results = self._results, LoadResults(set(), set(), self._results.failed_blocks)
        return results

    def failed_blocks(self) -> set[int]:
        """Device blocks that loads did not fill, once."""
        blocks, self._results = self._results.failed_blocks, self._results._replace(failed_blocks=set())
        return blocks

    def report(self) -> StepReport | None:
        """The step's report for the scheduler; None: nothing to say."""
        report, self._report = self._report, StepReport()
        return report if report else None

    def close(self) -> None:
        """Waits for copies and lets the pool go."""
        rank, self._rank = self._rank, None
        kept, self._kept = self._kept, None
        self._instance = None
        if rank is not None:
            rank.detach()
        if kept is not None:
            kept.close(0)

    # ---- Parts ----

    def _attach(self, address: PoolAddress) -> None:
        try:
            self.close()
            rank, kept = attach.attach_pool(
                address,
                self._model,
                self._number,
                device=self._settings.device,
                threads=self._settings.copy_threads,
                name="vllm",
            )
            attach.register_tensors(rank, self._model, self._number, self._tensors)
        except attach.AwayError as error:
            complain(f"attaching rank {self._number} to the pool", error)
            return
        except Exception as error:
            complain(f"attaching rank {self._number} to the pool", error)
            self._report.refusals.append(f"rank {self._number}: {error}")
            return
        self._rank, self._kept, self._verify, self._instance = rank, kept, address.verify, address.instance
        self._report.attached += 1
        log.info("forebay: rank %d of %d uses the pool of process %d", self._number, self._model.ranks, address.process)

    def _live(self) -> forebay.Rank:
        if self._rank is None or self._instance != self._plan_instance:
            raise attach.AttachError(f"rank {self._number} is not attached to the pool")
        return self._rank

    def _after(self) -> int:
        """The engine's stream as an event that copies begin behind; 0 where there is no stream."""
        if self._settings.device != "cuda":
            return 0
        import torch  # type: ignore[import-not-found, unused-ignore]

        self._event = torch.cuda.Event()
        self._event.record()
        return int(self._event.cuda_event)

    def _load(self, job: LoadJob) -> None:
        copies: list[tuple[forebay.Copy, Copies]] = []
        try:
            if job.broken is not None:
                raise attach.AttachError("the scheduler's side could not prepare it")
            rank, began = self._live(), time.perf_counter()
            for one in job.copies:
                copy = rank.load(one.group, one.places, one.blocks, verify=self._verify, after=self._after())
                copies.append((copy, one))
            self._report.copy_s += time.perf_counter() - began
        except Exception as error:
            complain("a load", error)
            self._wait(copies)
            blocks = job.broken if job.broken is not None else [block for one in job.copies for block in one.blocks]
            self._loaded(job, blocks)
            return
        self._running.append(_Running(job, copies))
        if job.is_sync:
            self._poll(wait=True)

    def _wait(self, copies: list[tuple[forebay.Copy, Copies]]) -> None:
        for copy, _ in copies:
            try:
                copy.wait()
            except forebay.ForebayError as error:
                complain("waiting for a copy", error)

    def _poll(self, *, wait: bool) -> None:
        """Ends loads whose copies have ended; with ``wait`` those that the forward needs, whatever it takes."""
        running, self._running = self._running, []
        for one in running:
            if wait and one.job.is_sync:
                self._wait(one.copies)
            try:
                failed = self._failed(one)
            except Exception as error:
                complain("a load", error)
                failed = [block for copies in one.job.copies for block in copies.blocks]
            if failed is None:
                self._running.append(one)
            else:
                self._loaded(one.job, failed)

    def _failed(self, running: _Running) -> list[int] | None:
        """Blocks that a load did not fill; None: it is under way."""
        statuses = [copy.poll() for copy, _ in running.copies]
        failed: list[int] = []
        for (copy, one), status in zip(running.copies, statuses, strict=True):
            if status is None:
                return None
            if status.blocks_failed == len(one.blocks):
                failed.extend(one.blocks)
            elif status.blocks_failed > 0:
                failed.extend(block for block, code in zip(one.blocks, copy.results, strict=True) if code != 0)
            self._report.loaded_bytes += status.bytes
        return failed

    def _loaded(self, job: LoadJob, failed: list[int]) -> None:
        """The one end of a load on this rank."""
        if failed:
            if len(self._model.groups) == 1:
                self._results.failed_blocks.update(failed)
            else:
                self._results.failed.add(job.request)
            self._spoiled = self._spoiled or job.is_sync
        if not job.is_sync:
            self._results.finished.add(job.request)
        self._report.end(job.number, len(failed))

    def _save(self, job: SaveJob) -> None:
        blocks = sum(len(one.blocks) for one in job.copies)
        if self._spoiled:
            self._report.end(job.number, blocks)
            return
        copies: list[tuple[forebay.Copy, Copies]] = []
        failed = 0
        began = time.perf_counter()
        try:
            rank = self._live()
            for one in job.copies:
                copies.append((rank.save(one.group, one.places, one.blocks, after=self._after()), one))
            for copy, _ in copies:
                status = copy.wait()
                failed += status.blocks_failed
                self._report.saved_bytes += status.bytes
        except Exception as error:
            complain("a save", error)
            self._wait(copies)
            failed = blocks
        self._report.copy_s += time.perf_counter() - began
        self._report.end(job.number, failed)
