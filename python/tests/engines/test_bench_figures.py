"""The figures of the engine benchmark: medians, intervals, goals, and the forms in which they are printed."""

from __future__ import annotations

import json

from forebay.engines.bench.figures import Figure, Report, as_json, interval, lines, of_rounds, table

REPORT = Report(
    3,
    {"engine": "vllm 1.2.3"},
    ["one\tnote\nin lines"],
    [
        Figure("a_us", 1.5, "us", "<=", 2, 1.25, 1.75),
        Figure("b_ratio", 0.5, "", ">=", 0.75),
        Figure("c", None, "", "<=", 1),
        Figure("d", 7.0, "1/s"),
    ],
)


def test_a_goal_is_met_or_not_or_there_is_none() -> None:
    assert [one.met for one in REPORT.figures] == [True, False, None, None]
    assert Figure("edge", 2.0, "", "<=", 2).met is True
    assert Figure("edge", 2.0, "", ">=", 2).met is True


def test_the_interval_holds_the_median_and_is_the_same_each_time() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    median, low, high = interval(values, 1)
    assert (median, low, high) == (3.0, 1.0, 5.0)
    assert interval(values, 1) == (median, low, high)
    assert interval([2.0], 1) == (2.0, 2.0, 2.0)
    assert of_rounds("x", [1.0, 2.0], "us", 1, "<=", 1) == Figure("x", 1.5, "us", "<=", 1, 1.0, 2.0)


def test_lines_are_what_the_command_reads() -> None:
    assert lines(REPORT) == (
        "fact\tengine\tvllm 1.2.3\n"
        "note\tone note in lines\n"
        "figure\ta_us\t1.5\tus\t<=\t2\t1.25\t1.75\n"
        "figure\tb_ratio\t0.5\t\t>=\t0.75\t-\t-\n"
        "figure\tc\t-\t\t<=\t1\t-\t-\n"
        "figure\td\t7.0\t1/s\t-\t-\t-\t-\n"
        "end\n"
    )


def test_json_has_the_form_of_every_benchmark() -> None:
    whole = json.loads(as_json(REPORT))
    assert list(whole) == ["bench", "machine", "rounds", "engine", "notes", "figures"]
    assert whole["figures"][0] == {
        "name": "a_us", "value": 1.5, "unit": "us", "op": "<=", "goal": 2, "met": True, "lo": 1.25, "hi": 1.75,
    }  # fmt: skip
    assert whole["figures"][2] == {
        "name": "c", "value": None, "unit": "", "op": None, "goal": None, "met": None, "lo": None, "hi": None,
    }  # fmt: skip


def test_people_see_what_was_not_measured() -> None:
    rows = {line.split()[0]: line for line in table(REPORT).splitlines() if line}
    assert rows["c"].endswith("not measured")
    assert "NOT MET" in rows["b_ratio"]
    assert rows["a_us"].endswith("[1.2500, 1.7500]")
