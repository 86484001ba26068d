"""vLLM's statistics hooks: log line and Prometheus series from :mod:`.figures`. Imports vLLM."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge  # type: ignore[import-not-found, unused-ignore]
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (  # type: ignore[import-not-found, unused-ignore]
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from .figures import COUNTERS, GAUGES, add


class ForebayStats(KVConnectorStats):  # type: ignore[misc, unused-ignore]
    """Figures of one interval; ``data`` is plain and may be sent between processes."""

    def reset(self) -> None:
        """Empties it."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: Any) -> ForebayStats:
        """Adds a later interval."""
        add(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        """What the log line shows: what is not zero."""
        return {f"forebay_{name}": value for name, value in self.data.items() if value}

    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not self.data


class ForebayPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc, unused-ignore]
    """``vllm:forebay_*`` in the engine's own exposition, one series per engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        made = {}
        for kind, table in ((Counter, COUNTERS), (Gauge, GAUGES)):
            for name, text in table.items():
                made[name] = metric_types[kind](
                    name=f"vllm:forebay_{name}", documentation=f"Forebay: {text}.", labelnames=labelnames
                )
        self._series = {
            (engine, name): metric.labels(*values)
            for engine, values in per_engine_labelvalues.items()
            for name, metric in made.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds one interval; names that are not known are left out."""
        for name, value in transfer_stats_data.items():
            series = self._series.get((engine_idx, name))
            if series is None:
                continue
            if name in GAUGES:
                series.set(value)
            elif value > 0:
                series.inc(value)
