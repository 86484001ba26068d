"""The connector's class against the vLLM that is installed: every hook exists there, with the same arguments."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here")

from forebay.engines import vllm as ours

BORROWED = {"__init__", "requires_kv_delivery"}


@pytest.fixture(scope="module")
def base() -> Any:
    from vllm.distributed.kv_transfer.kv_connector.v1 import base  # type: ignore[import-not-found, unused-ignore]

    return base


def test_this_version_is_one_that_works() -> None:
    import vllm  # type: ignore[import-not-found, unused-ignore]

    ours.check_version(vllm.__version__)


def test_nothing_abstract_is_left(base: Any) -> None:
    made = ours.ForebayConnector
    assert issubclass(made, base.KVConnectorBase_V1)
    assert base.supports_hma(made)
    assert not inspect.isabstract(made)


def test_every_hook_is_one_of_vllm_s_with_its_arguments(base: Any) -> None:
    parents = (base.KVConnectorBase_V1, base.SupportsHMA)
    own = {
        name: member
        for name, member in vars(ours.ForebayConnector).items()
        if callable(getattr(member, "__func__", member))
    }
    assert len(own) > 20
    for name in own:
        if name.startswith("_") or name in BORROWED:
            continue
        theirs = next((getattr(parent, name) for parent in parents if hasattr(parent, name)), None)
        assert theirs is not None, f"vLLM has no hook {name}"
        mine = inspect.signature(getattr(ours.ForebayConnector, name)).parameters
        wanted = inspect.signature(theirs).parameters
        assert list(mine) == list(wanted), name
        assert [one.kind for one in mine.values()] == [one.kind for one in wanted.values()], name


def test_plans_and_reports_are_what_vllm_passes_on(base: Any) -> None:
    import pickle

    from forebay.engines.vllm.metadata import Copies, SaveJob, StepPlan, StepReport

    ours.__getattr__("ForebayConnector")  # registers both kinds
    plan = StepPlan(3, (1, 2), saves=[SaveJob(4, "r", [Copies(0, [4096], [7])])])
    assert isinstance(plan, base.KVConnectorMetadata)
    assert pickle.loads(pickle.dumps(plan)) == plan
    report = StepReport()
    report.end(4, 0)
    assert isinstance(report, base.KVConnectorWorkerMetadata)
    assert pickle.loads(pickle.dumps(report)) == report


def test_no_exception_of_ours_reaches_the_scheduler() -> None:
    made: Any = ours.ForebayConnector.__new__(ours.ForebayConnector)

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    made._scheduler, made._worker = Broken(), Broken()
    request = SimpleNamespace(request_id="r")
    assert made.on_new_request(request) is None
    assert made.update_state_after_alloc(request, SimpleNamespace(get_block_ids=lambda: ([1],)), 1) is None
    assert made.build_connector_meta(SimpleNamespace()).number == 0
    assert made.update_connector_output(SimpleNamespace(kv_connector_worker_meta=None)) is None
    assert made.request_finished_all_groups(request, ([1],)) == (False, None)
    assert made.reset_cache() is False
    assert list(made.take_events()) == []
    assert made.has_pending_push_work() is False
    assert made.get_transfer_results(set()).finished_recving == set()
    assert made.get_block_ids_with_load_errors() == set()
    assert made.get_kv_connector_stats() is None
    assert made.shutdown() is None


def test_figures_become_series_and_a_log_line() -> None:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram

    kinds = {Counter: Counter, Gauge: Gauge, Histogram: Histogram}
    config = SimpleNamespace(kv_transfer_config=None)
    metrics = ours.ForebayConnector.build_prom_metrics(config, kinds, ["engine"], {0: ["0"]})
    metrics.observe({"sessions": 3, "pinned_bytes": 7, "not_known": 1})
    metrics.observe({"sessions": 2, "pinned_bytes": 4})
    labels = {"engine": "0"}
    assert REGISTRY.get_sample_value("vllm:forebay_sessions_total", labels) == 5
    assert REGISTRY.get_sample_value("vllm:forebay_pinned_bytes", labels) == 4
    stats = ours.ForebayConnector.build_kv_connector_stats({"sessions": 1})
    total = stats.aggregate(ours.ForebayConnector.build_kv_connector_stats({"sessions": 2, "pinned_bytes": 0}))
    assert total.reduce() == {"forebay_sessions": 3}
    total.reset()
    assert total.is_empty()
