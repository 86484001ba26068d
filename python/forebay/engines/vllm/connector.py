"""The class that vLLM loads: its hooks, each handed to the side that it belongs to. Imports vLLM.

No exception of ours reaches the engine from here: it becomes one line in the log, and an answer that lets the engine
compute by itself. Only the constructor raises: a wrong configuration is an error at start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_events import (  # type: ignore[import-not-found, unused-ignore]
    BlockRemoved,
    BlockStored,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # type: ignore[import-not-found, unused-ignore]
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.v1.core.kv_cache_utils import (  # type: ignore[import-not-found, unused-ignore]
    maybe_convert_block_hash,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # type: ignore[import-not-found, unused-ignore]

from .complaints import guarded, log
from .config import read_settings
from .events import MEDIUM
from .metadata import StepPlan, StepReport
from .model import describe
from .scheduler import SchedulerSide
from .stats import ForebayPromMetrics, ForebayStats
from .worker import WorkerSide

KVConnectorMetadata.register(StepPlan)
KVConnectorWorkerMetadata.register(StepReport)


def _nothing() -> None:
    return None


def _stored(block_tokens: int) -> Any:
    def make(own: Any, parent: Any, tokens: list[int], lora: str | None) -> Any:
        return BlockStored(
            block_hashes=[maybe_convert_block_hash(own)],
            parent_block_hash=maybe_convert_block_hash(parent) if parent is not None else None,
            token_ids=tokens,
            block_size=block_tokens,
            lora_id=None,
            medium=MEDIUM,
            lora_name=lora,
        )

    return make


def _removed(own: Any) -> Any:
    return BlockRemoved(block_hashes=[maybe_convert_block_hash(own)], medium=MEDIUM)


class ForebayConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc, unused-ignore]
    """Forebay for vLLM: ``docs/vllm.md`` is the guide.

    Args:
        vllm_config: the engine's.
        role: scheduler or worker.
        kv_cache_config: the engine's KV cache groups.

    Raises:
        ValueError: a setting that is not accepted, or a model that cannot be served; the message says what is.
        forebay.ForebayError: the cache cannot be opened.
    """

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        settings = read_settings(transfer.kv_connector_extra_config or {})
        model = describe(vllm_config, kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role is KVConnectorRole.WORKER:
            self._worker = WorkerSide(settings, model, _tensor_rank())
            return
        if transfer.kv_load_failure_policy != "recompute":
            log.warning(
                "forebay: kv_load_failure_policy is 'fail': a load that fails ends its request; prefer 'recompute'"
            )
        events = vllm_config.kv_events_config
        makers = (_stored(model.block_tokens), _removed)
        self._scheduler = SchedulerSide(
            settings,
            model,
            load=bool(transfer.is_kv_consumer),
            save=bool(transfer.is_kv_producer),
            event_makers=makers if events is not None and events.enable_kv_cache_events else None,
        )

    @property
    def requires_kv_delivery(self) -> bool:
        """A dropped save is a miss later, nothing else."""
        return False

    # ---- Scheduler ----

    @guarded(_nothing)
    def on_new_request(self, request: Any) -> None:
        """Starts the prefetch."""
        assert self._scheduler is not None
        self._scheduler.begin(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Demand and poll; the same answer until the request is allocated. Asked in each pass for each that waits."""
        return self._scheduler.match(request, num_computed_tokens)  # type: ignore[union-attr]

    @guarded(_nothing)
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Prepares the load of what was matched."""
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    @guarded(lambda: StepPlan(0))
    def build_connector_meta(self, scheduler_output: Any) -> StepPlan:
        """The step's plan for the workers."""
        assert self._scheduler is not None
        return self._scheduler.plan(scheduler_output)

    @guarded(_nothing)
    def update_connector_output(self, connector_output: Any) -> None:
        """What the workers did."""
        assert self._scheduler is not None
        self._scheduler.take_report(connector_output.kv_connector_worker_meta)

    @guarded(lambda: (False, None))
    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:  # noqa: ARG002
        """Ends the request; its blocks are free at once."""
        assert self._scheduler is not None
        self._scheduler.finished(request)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        """The same for models with several KV cache groups."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    @guarded(lambda: False)
    def reset_cache(self) -> bool:
        """Forgets what is resident."""
        assert self._scheduler is not None
        return self._scheduler.reset()

    @guarded(tuple)
    def take_events(self) -> Iterable[Any]:
        """Block events."""
        return list(self._scheduler.take_events()) if self._scheduler is not None else ()

    @guarded(lambda: False)
    def has_pending_push_work(self) -> bool:
        """Whether the engine must step once more for an answer of the workers."""
        return self._scheduler is not None and self._scheduler.has_work()

    # ---- Worker ----

    @guarded(_nothing)
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Takes this rank's KV tensors."""
        assert self._worker is not None
        self._worker.register(kv_caches)

    @guarded(_nothing)
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Starts the step's loads; before the forward when it needs them, else behind it."""
        assert self._worker is not None
        self._worker.begin(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: what a forward needs has ended before it began."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: blocks are saved whole, behind the forward."""

    @guarded(_nothing)
    def wait_for_save(self) -> None:
        """Copies what the step computed."""
        assert self._worker is not None
        self._worker.save(self._get_connector_metadata())

    @guarded(KVConnectorTransferResults)
    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:  # noqa: ARG002
        """Loads that ended."""
        assert self._worker is not None
        results = self._worker.results()
        return KVConnectorTransferResults(finished_recving=results.finished, failed_recving=results.failed)

    @guarded(set)
    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks that loads did not fill; models with several groups report requests instead."""
        return self._worker.failed_blocks() if self._worker is not None else set()

    @guarded(_nothing)
    def build_connector_worker_meta(self) -> StepReport | None:
        """The step's report for the scheduler."""
        return self._worker.report() if self._worker is not None else None

    # ---- Both ----

    @guarded(_nothing)
    def get_kv_connector_stats(self) -> ForebayStats | None:
        """Figures since the last call, about once a second; the scheduler's side has those of all ranks."""
        figures = self._scheduler.take_figures() if self._scheduler is not None else None
        return ForebayStats(figures) if figures else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> ForebayStats:
        """Statistics from their plain form."""
        return ForebayStats(dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> ForebayPromMetrics:
        """Prometheus series."""
        return ForebayPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @guarded(_nothing)
    def shutdown(self) -> None:
        """Ends this side; idempotent."""
        scheduler, self._scheduler = self._scheduler, None
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        if scheduler is not None:
            scheduler.close()


def _tensor_rank() -> int:
    from vllm.distributed.parallel_state import (  # type: ignore[import-not-found, unused-ignore]
        get_tensor_model_parallel_rank,
    )

    return int(get_tensor_model_parallel_rank())
