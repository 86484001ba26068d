"""The engine benchmark's order of events, with engines that only say that they did what they were told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forebay.engines.bench import measure
from forebay.engines.bench.__main__ import _make_figures, _notes
from forebay.engines.bench.process import EngineError, EngineProcess

PLAN = measure.Plan(Path("model"), 512, 100, (2, 40, 4), 32, 3, 1, "float32", 1)
RESTORABLE = 96


class Fake:
    """An engine by the name of its log. Times say which arm it was."""

    refused: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    log: list[tuple[str, str]] = []  # noqa: RUF012

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self.name = log.stem
        self.directory = log.parent
        self.environment = environment

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *arguments: object) -> None:
        self.close()

    def close(self) -> None:
        self.log.append((self.name, "close"))

    def call(self, do: str, **told: Any) -> dict[str, Any]:
        self.log.append((self.name, do if do != "ask" else f"ask {told['reset']}"))
        if do == "start":
            if self.name in self.refused:
                raise EngineError("wants a GPU")
            return {"version": "1.2.3"}
        if do == "match":
            assert len(told["prompts"]) == 256
            return {"calls": [2.0] * told["rounds"], "passes": [150.0] * told["rounds"]}
        if do == "serve":
            slow = self.name == "forebay" and told["params"] is None
            return {"seconds": 2.0 if slow else 1.0, "answers": []}
        (self.directory / "journal").write_text("first\nlast\n")
        restored = 0 if self.name == "plain" or told["reset"] in self.short else RESTORABLE
        ttft = {"plain": 8.0, "forebay": 2.0 if told["reset"] == "everything" else 1.0}.get(self.name, 4.0)
        return {"ttft_s": ttft, "tokens": [1, 2], "restored": restored}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "EngineProcess", Fake)
    monkeypatch.setattr(measure, "REST_S", 0.0)
    monkeypatch.setattr(Fake, "log", [])


def figures(samples: measure.Samples) -> dict[str, float | None]:
    return {one.name: one.value for one in _make_figures(PLAN, samples, is_tiny=False)}


def test_arms_are_compared_and_every_engine_ends() -> None:
    samples = measure.Bench(PLAN).run()
    assert figures(samples) == {
        "match_call_us": 2.0, "scheduler_pass_256_us": 150.0, "save_overhead_ratio": 0.5, "unsaved_ratio": 1.0,
        "plain_tokens_per_s": 88.0, "saving_tokens_per_s": 44.0, "restored_ttft_ratio": 0.25,
        "resident_ttft_ratio": 0.125, "builtin_ttft_ms": 4000.0, "recompute_ttft_ms": 8000.0,
        "resident_ttft_ms": 1000.0, "restored_ttft_ms": 2000.0, "vs_builtin_ratio": 0.25, "other_tokens": 0.0,
    }  # fmt: skip
    assert samples.builtin == "OffloadingConnector"
    assert {name: len(values) for name, values in samples.ttft.items()} == dict.fromkeys(samples.ttft, 3)
    names = ["stuck", "plain", "forebay", "OffloadingConnector"]
    assert [name for name, what in Fake.log if what == "start"] == names
    assert sorted(name for name, what in Fake.log if what == "close") == sorted(names)
    assert Fake.log.index(("stuck", "close")) < Fake.log.index(("plain", "start"))


def test_what_is_to_be_in_memory_is_brought_there_in_each_round() -> None:
    measure.Bench(PLAN).run()
    asked = [what for name, what in Fake.log if name == "forebay"]
    rounds = PLAN.rounds + 1
    assert asked.count("serve") == 2 * rounds
    assert asked.count("ask engine") == 2 * rounds
    assert asked.count("ask everything") == rounds


def test_without_a_connector_of_vllms_own_its_figure_is_missing_and_its_reasons_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fake, "refused", tuple(measure.BUILTIN))
    samples = measure.Bench(PLAN).run()
    assert (samples.builtin, figures(samples)["vs_builtin_ratio"]) == (None, None)
    assert "builtin" not in samples.ttft
    assert _notes(PLAN, samples, is_tiny=False)[0] == (
        "vs_builtin_ratio: no CPU offload connector of vLLM 1.2.3 runs here: OffloadingConnector: wants a GPU; "
        "SimpleCPUOffloadConnector: wants a GPU"
    )
    assert sorted(name for name, what in Fake.log if what == "close") == sorted(
        name for name, what in Fake.log if what == "start"
    )


def test_a_time_without_its_restored_tokens_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "short", ("everything",))
    with pytest.raises(
        EngineError, match=r"^0 of 96 tokens were restored after a reset of everything; the journal: last$"
    ):
        measure.Bench(PLAN).run()
    assert sorted(name for name, what in Fake.log if what == "close") == sorted(
        name for name, what in Fake.log if what == "start"
    )


def test_an_engines_end_is_told_with_its_last_words(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "log", {})
    with engine, pytest.raises(EngineError, match="RuntimeError: no engine is started"):
        engine.call("ask", prompt=[1], tokens=1, params=None, reset="nothing")
    engine = EngineProcess(tmp_path / "log", {})
    with engine, pytest.raises(EngineError, match="ended with status 1: AttributeError: "):
        engine.call("explode")


def test_ratios_have_goals_only_where_they_mean_something() -> None:
    samples = measure.Bench(PLAN).run()
    real = {one.name: one.goal for one in _make_figures(PLAN, samples, is_tiny=False)}
    tiny = {one.name: one.goal for one in _make_figures(PLAN, samples, is_tiny=True)}
    assert (real["save_overhead_ratio"], real["restored_ttft_ratio"], real["match_call_us"]) == (0.97, None, 5)
    assert (tiny["save_overhead_ratio"], tiny["restored_ttft_ratio"], tiny["match_call_us"]) == (None, None, 5)
