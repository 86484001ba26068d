"""What the scheduler's side tells the workers in each step, and what they answer. Plain data, sent by vLLM's channel.

The scheduler decides and workers apply: a plan is numbered, and jobs are numbered through the engine's life, so that an
answer belongs to one job only, whatever became of its request meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..common.address import Instance, PoolAddress


@dataclass(slots=True)
class Copies:
    """Copies of one group: device block ``blocks[i]`` and the slot at ``places[i]``, bytes from the pool's start."""

    group: int
    places: list[int]
    blocks: list[int]


@dataclass(slots=True)
class LoadJob:
    """Slots to device blocks, for one request.

    Attributes:
        number: of the job.
        request: id of the request.
        is_sync: the step's forward needs it; else the end is reported as ``finished_recving``.
        copies: per group.
        broken: blocks that nothing can fill, though vLLM was promised them: reported as failed.
    """

    number: int
    request: str
    is_sync: bool
    copies: list[Copies]
    broken: list[int] | None = None


@dataclass(slots=True)
class SaveJob:
    """Device blocks to the slots of a put, after the step's forward."""

    number: int
    request: str
    copies: list[Copies]


@dataclass(slots=True)
class StepPlan:
    """One step's work for all workers.

    Attributes:
        number: grows by one with each step.
        instance: life of the cache that the places belong to.
        pool: to attach to, until every worker said that it has.
        loads: jobs that begin in this step.
        saves: jobs of this step.
    """

    number: int
    instance: Instance = (0, 0)
    pool: PoolAddress | None = None
    loads: list[LoadJob] = field(default_factory=list)
    saves: list[SaveJob] = field(default_factory=list)


@dataclass(slots=True)
class StepReport:
    """What workers did; those of all ranks are added up on the way to the scheduler.

    Attributes:
        attached: ranks that mapped the pool.
        refusals: why ranks could not.
        ended: per job (ranks that ended it, blocks that failed on any of them).
        loaded_bytes: copied from slots.
        saved_bytes: copied into slots.
        copy_s: seconds that the copies took.
    """

    attached: int = 0
    refusals: list[str] = field(default_factory=list)
    ended: dict[int, tuple[int, int]] = field(default_factory=dict)
    loaded_bytes: int = 0
    saved_bytes: int = 0
    copy_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.attached or self.refusals or self.ended)

    def end(self, job: int, failed: int) -> None:
        """Notes the end of a job on this rank."""
        ranks, before = self.ended.get(job, (0, 0))
        self.ended[job] = (ranks + 1, max(before, failed))

    def aggregate(self, other: StepReport) -> StepReport:
        """Adds another rank's report (the name is vLLM's)."""
        self.attached += other.attached
        self.refusals.extend(other.refusals)
        for job, (ranks, failed) in other.ended.items():
            have, before = self.ended.get(job, (0, 0))
            self.ended[job] = (have + ranks, max(before, failed))
        self.loaded_bytes += other.loaded_bytes
        self.saved_bytes += other.saved_bytes
        self.copy_s = max(self.copy_s, other.copy_s)
        return self
