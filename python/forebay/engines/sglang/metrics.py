"""Forebay's figures among SGLang's own metrics: Prometheus series of the scheduler's process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..common.figures import COUNTERS, GAUGES, differences

if TYPE_CHECKING:
    from .connector import Connector
    from .startup import Prepared

EVERY_S = 1.0


class Metrics:
    """``sglang:forebay_*``. One thread calls it.

    Args:
        connector: whose figures they are.
        labels: of every series.
        client: the module ``prometheus_client``.
    """

    def __init__(self, connector: Connector, labels: dict[str, str], client: Any) -> None:
        self._connector = connector
        self._before: dict[str, int] = {}
        self._at = 0.0
        names = list(labels)
        self._counters = {
            name: client.Counter(f"sglang:forebay_{name}", f"Forebay: {text}.", names).labels(**labels)
            for name, text in COUNTERS.items()
        }
        self._gauges = {
            name: client.Gauge(
                f"sglang:forebay_{name}", f"Forebay: {text}.", names, multiprocess_mode="mostrecent"
            ).labels(**labels)
            for name, text in GAUGES.items()
        }

    @classmethod
    def made(cls, prepared: Prepared, connector: Connector) -> Metrics | None:
        """None where the engine has no metrics, and on other ranks than the leader."""
        if prepared.labels is None or not prepared.ranks.is_leader:
            return None
        import prometheus_client  # type: ignore[import-not-found, unused-ignore]

        return cls(connector, prepared.labels, prometheus_client)

    def update(self) -> None:
        """Adds what happened since; at most once in a while."""
        now = time.monotonic()
        if now - self._at < EVERY_S:
            return
        self._at = now
        totals = self._connector.figures()
        for name, value in differences(totals, self._before).items():
            if name in self._gauges:
                self._gauges[name].set(value)
            elif name in self._counters:
                self._counters[name].inc(value)
        self._before = totals or self._before
