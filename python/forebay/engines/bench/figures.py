"""Figures with goals, their intervals, and the three forms in which they are printed."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESAMPLES = 10000
LOW, HIGH = 0.025, 0.975


@dataclass(frozen=True)
class Figure:
    """One figure. ``value`` None: not measured; ``op`` None: no goal; ``lo``, ``hi``: its 95 % interval, or None."""

    name: str
    value: float | None
    unit: str
    op: str | None = None
    goal: float | None = None
    lo: float | None = None
    hi: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.op is None or self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.op == ">=" else self.value <= self.goal


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def interval(values: Sequence[float], seed: int) -> tuple[float, float, float]:
    """Median, and the ends of its 95 % percentile-bootstrap interval. ``values`` has one at least."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.median(values), _quantile(medians, LOW), _quantile(medians, HIGH)


def of_rounds(
    name: str, values: Sequence[float], unit: str, seed: int, op: str | None = None, goal: float | None = None
) -> Figure:
    """The median over rounds with its interval."""
    median, low, high = interval(values, seed)
    return Figure(name, median, unit, op, goal, low, high)


@dataclass
class Report:
    """Everything that one run says.

    Attributes:
        rounds: that counted.
        facts: name and text of what was run: engine, model, prompt, load.
        notes: sentences about figures that are missing or lack their goal.
    """

    rounds: int
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def _plain(text: str) -> str:
    return " ".join(text.split())


def lines(report: Report) -> str:
    """For ``forebay bench engine``: a line per fact, note and figure, fields between tabs, numbers or ``-``."""
    made = [f"fact\t{name}\t{_plain(text)}" for name, text in report.facts.items()]
    made += [f"note\t{_plain(text)}" for text in report.notes]
    for one in report.figures:
        numbers = ["-" if number is None else repr(number) for number in (one.value, one.goal, one.lo, one.hi)]
        value, goal, low, high = numbers
        made.append("\t".join(("figure", one.name, value, one.unit, one.op or "-", goal, low, high)))
    return "\n".join([*made, "end"]) + "\n"


def machine() -> str:
    """Processor, cores and system, as the command says it."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") / 2**30
    system = platform.uname()
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {system.system} {system.release}, {system.machine}"


def as_json(report: Report) -> str:
    """The form of docs/bench.md, one line."""
    rows: list[dict[str, Any]] = [
        {
            "name": one.name,
            "value": one.value,
            "unit": one.unit,
            "op": one.op if one.met is not None else None,
            "goal": one.goal if one.met is not None else None,
            "met": one.met,
            "lo": one.lo,
            "hi": one.hi,
        }
        for one in report.figures
    ]
    whole = {
        "bench": "engine",
        "machine": machine(),
        "rounds": report.rounds,
        **report.facts,
        "notes": report.notes,
        "figures": rows,
    }
    return json.dumps(whole, ensure_ascii=False) + "\n"


def table(report: Report) -> str:
    """For people."""
    made = [f"Machine: {machine()}", f"Rounds: {report.rounds}, and one to warm up"]
    made += [f"{name.capitalize()}: {text}" for name, text in report.facts.items()]
    made += [f"Note: {text}" for text in report.notes] + [""]
    for one in report.figures:
        value = "not measured" if one.value is None else f"{one.value:.4f}"
        goal = "" if one.met is None else f"{one.op} {one.goal:g}  {'met' if one.met else 'NOT MET'}"
        span = "" if one.lo is None or one.hi is None else f"[{one.lo:.4f}, {one.hi:.4f}]"
        made.append(f"{one.name:28}{value:>14} {one.unit:10}{goal:18}{span}".rstrip())
    return "\n".join(made) + "\n"
