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


def described(**changes: Any) -> dict[str, Any]:
    """Forebay's section for a small model, one thing of whose engine is another."""
    import torch  # type: ignore[import-not-found, unused-ignore]
    from forebay.engines.vllm.model import describe
    from toy import FullAttentionSpec

    given = {"dtype": torch.float32, "kv": "auto", "block": 32, "ranks": 1, "layers": ["a", "b"], "head": 32} | changes
    config = {"hidden_size": given.get("hidden", 64), "_name_or_path": "anywhere"}
    model = SimpleNamespace(
        model="org/name", quantization=given.get("quantization"), revision=given.get("revision"), dtype=given["dtype"],
        hf_config=SimpleNamespace(to_dict=lambda: config, _commit_hash=given.get("commit")), hf_overrides=None,
        get_head_size=lambda: given["head"],
    )  # fmt: skip
    spec = FullAttentionSpec(block_size=given["block"], page_size_bytes=given["block"] * 256)
    caches = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=given["layers"], kv_cache_spec=spec)])
    engine = SimpleNamespace(
        parallel_config=SimpleNamespace(tensor_parallel_size=given["ranks"]), model_config=model,
        cache_config=SimpleNamespace(cache_dtype=given["kv"]),
    )  # fmt: skip
    return describe(engine, caches).section()


def test_whatever_changes_the_bytes_of_a_block_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from forebay.engines.common.opening import fingerprint
    from vllm.v1.attention.backends import cpu_attn  # type: ignore[import-not-found, unused-ignore]

    monkeypatch.setattr(cpu_attn, "_get_attn_isa", lambda *_: "vec16")
    one = fingerprint(described())
    assert fingerprint(described()) == one
    changes: list[dict[str, Any]] = [
        {"dtype": torch.bfloat16}, {"kv": "fp8"}, {"block": 64}, {"ranks": 2}, {"layers": ["a", "c"]},
        {"layers": ["a"]}, {"hidden": 128}, {"revision": "other"}, {"commit": "0123"}, {"quantization": "awq"},
    ]  # fmt: skip
    made = [fingerprint(described(**change)) for change in changes]
    for name, value in (("_get_attn_isa", lambda *_: "amx"), ("__version__", "0.33.0")):
        with monkeypatch.context() as patch:
            import vllm

            patch.setattr(cpu_attn if name.startswith("_get") else vllm, name, value)
            made.append(fingerprint(described()))
    assert len({one, *made}) == 1 + len(changes) + 2


@pytest.mark.parametrize("name", ["pipeline_parallel_size", "decode_context_parallel_size"])
def test_layouts_that_are_not_served_are_refused(name: str) -> None:
    from forebay.engines.vllm.model import describe

    engine = SimpleNamespace(parallel_config=SimpleNamespace(**{name: 2}), model_config=None)
    with pytest.raises(ValueError, match=f"{name} is 2; accepted: 1"):
        describe(engine, None)


def test_a_version_that_does_not_work_is_refused_when_the_connector_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.31.0")
    with pytest.raises(ImportError, match=r"vLLM 0\.31\.0 .* accepted: 0\.32\.0"):
        _ = ours.__getattr__("ForebayConnector")
