"""From samples to figures: a table side by side for people, and the JSON of every benchmark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compare_arms import ARMS, PAIRS, POLICIES
from compare_samples import Aborts, Hang, Queue, Samples, Slow
from forebay.engines.bench.figures import Figure, Report, as_json, machine, of_rounds

QUANTILES = (50, 90, 99)
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """A line of the table: a part, what is counted, its unit, and one figure for each arm that has one."""

    part: str
    name: str
    unit: str
    by_arm: Mapping[str, Figure]


def quantile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of a hundred lie, nearest rank: one that was measured. Errors: ValueError."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def full_name(arm: str, part: str, name: str) -> str:
    """A figure's name in the JSON."""
    return "_".join((arm, part, name)).replace("-", "_")


def _over_rounds(arm: str, part: str, name: str, unit: str, values: Sequence[float], seed: int) -> Figure | None:
    """The median over the rounds with its interval; None: no round has a value."""
    return of_rounds(full_name(arm, part, name), values, unit, seed) if values else None


def _row(part: str, name: str, unit: str, found: Mapping[str, Figure | None]) -> Row:
    return Row(part, name, unit, {arm: figure for arm, figure in found.items() if figure is not None})


def _queue_rows(samples: Samples, seed: int) -> list[Row]:
    def of(name: str, unit: str, value: Callable[[Queue], float]) -> Row:
        return _row("queue", name, unit, {
            arm: _over_rounds(arm, "queue", name, unit, [value(one) for one in rounds if one.ttft_s], seed)
            for arm, rounds in samples.queue.items()
        })  # fmt: skip

    made = [
        of(f"ttft_p{percent}_ms", "ms", lambda one, percent=percent: 1000 * quantile(one.ttft_s, percent))  # type: ignore[misc]
        for percent in QUANTILES
    ]
    return [*made, of("restored", "", lambda one: one.restored / one.possible)]


def _paired(samples: Samples, ours: str, theirs: str, percent: int) -> list[float]:
    """Ratios of the same repetition: time to first token of ours over theirs."""
    return [
        quantile(mine.ttft_s, percent) / quantile(other.ttft_s, percent)
        for mine, other in zip(samples.queue.get(ours, ()), samples.queue.get(theirs, ()), strict=False)
        if mine.ttft_s and other.ttft_s
    ]


def _ratio_rows(samples: Samples, seed: int) -> list[Row]:
    rows = []
    for percent in QUANTILES:
        name = f"ttft_p{percent}_over_hicache"
        rows.append(_row("queue", name, "", {
            ours: _over_rounds(ours, "queue", name, "", _paired(samples, ours, theirs, percent), seed)
            for ours, theirs in PAIRS
        }))  # fmt: skip
    return rows


def _slow_rows(samples: Samples, policy: str, seed: int) -> list[Row]:
    part = f"slow_{policy}"

    def of(name: str, unit: str, value: Callable[[Slow], float]) -> Row:
        return _row(part, name, unit, {
            arm: _over_rounds(arm, part, name, unit, [value(one) for one in rounds if one.waits_s], seed)
            for (arm, its_policy), rounds in samples.slow.items() if its_policy == policy
        })  # fmt: skip

    return [
        of("wait_p50_ms", "ms", lambda one: 1000 * quantile(one.waits_s, 50)),
        of("wait_most_ms", "ms", lambda one: 1000 * max(one.waits_s)),
        of("ttft_p50_ms", "ms", lambda one: 1000 * quantile(one.ttft_s, 50)),
        of("restored", "", lambda one: one.restored / one.possible),
        of("check_us", "us", lambda one: 1e6 * one.check_s / max(one.checks, 1)),
    ]


def _held_ms(one: Hang) -> float:
    """A lower bound where the request was still held."""
    return 1000 * (one.limit_s if one.held_s is None else one.held_s)


def _hang_rows(samples: Samples, policy: str) -> list[Row]:
    part = f"hang_{policy}"

    def of(name: str, unit: str, value: Callable[[Hang], float | None]) -> Row:
        return _row(part, name, unit, {
            arm: Figure(full_name(arm, part, name), value(one), unit)
            for (arm, its_policy), one in samples.hang.items() if its_policy == policy
        })  # fmt: skip

    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else 1000 * seconds

    return [
        of("held_ms", "ms", _held_ms),
        of("other_ttft_ms", "ms", lambda one: ms(one.other_s)),
        of("cold_ttft_ms", "ms", lambda one: ms(one.cold_s)),
        of("healthy", "", lambda one: float(one.healthy)),
        of("restored_after", "", lambda one: one.again / one.possible),
    ]


def _abort_rows(samples: Samples) -> list[Row]:
    def of(name: str, unit: str, value: Callable[[Aborts], float]) -> Row:
        return _row("aborts", name, unit, {
            arm: Figure(full_name(arm, "aborts", name), value(one), unit) for arm, one in samples.aborts.items()
        })  # fmt: skip

    return [
        of("unscheduled", "requests", lambda one: one.unscheduled),
        of("rss_growth_mib", "MiB", lambda one: (one.after.rss_bytes - one.before.rss_bytes) / MIB),
        of("threads_growth", "threads", lambda one: one.after.threads - one.before.threads),
        of("descriptors_growth", "descriptors", lambda one: one.after.descriptors - one.before.descriptors),
        of("held_tokens", "tokens", lambda one: one.after.tokens),
        of("device_tokens", "tokens", lambda one: one.after.device_tokens),
    ]


def rows(samples: Samples, seed: int) -> list[Row]:
    """Every line that has a figure."""
    made = [*_queue_rows(samples, seed), *_ratio_rows(samples, seed)]
    for policy in POLICIES:
        made += _slow_rows(samples, policy, seed)
    for policy in POLICIES:
        made += _hang_rows(samples, policy)
    return [row for row in [*made, *_abort_rows(samples)] if row.by_arm]


def bounds(samples: Samples) -> list[str]:
    """A sentence for each figure that is only a bound."""
    return [
        f"{full_name(arm, f'hang_{policy}', 'held_ms')}: the request was still held after {one.limit_s:g} s"
        for (arm, policy), one in samples.hang.items()
        if one.held_s is None
    ]


def report(samples: Samples, facts: Mapping[str, str], repetitions: int, seed: int) -> Report:
    """Everything of one run."""
    notes = [f"{arm} did not run: {reason}" for arm, reason in samples.failed.items()]
    notes += samples.notes + bounds(samples)
    if samples.wrong:
        notes.append(f"{samples.wrong} of {samples.asked} answers have other tokens than the server without a store")
    figures = [figure for row in rows(samples, seed) for figure in row.by_arm.values()]
    figures.append(Figure("other_tokens", float(samples.wrong), "answers"))
    return Report(repetitions, dict(facts), notes, figures)


def to_json(made: Report) -> str:
    """The form of docs/bench.md, one line."""
    return json.dumps({**json.loads(as_json(made)), "bench": "sglang"}, ensure_ascii=False) + "\n"


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.value is None:
        return "none"
    digits = 0 if abs(figure.value) >= 100 or figure.value == round(figure.value) else 2
    text = f"{figure.value:.{digits}f}"
    if figure.lo is None or figure.hi is None or figure.lo == figure.hi:
        return text
    return f"{text} [{figure.lo:.{digits}f}, {figure.hi:.{digits}f}]"


def cells(samples: Samples, seed: int) -> list[list[str]]:
    """A head with the arms, then a line for each figure, a column for each arm."""
    found = rows(samples, seed)
    arms = [name for name in ARMS if any(name in row.by_arm for row in found)]
    lines = [[f"{row.part} {row.name}", *(_cell(row.by_arm.get(arm)) for arm in arms)] for row in found]
    return [["", *arms], *lines]


def _head(made: Report) -> list[str]:
    text = [f"Machine: {machine()}", f"Repetitions: {made.rounds}"]
    text += [f"{name.capitalize()}: {value}" for name, value in made.facts.items()]
    return [*text, *(f"Note: {note}" for note in made.notes), ""]


def to_table(samples: Samples, made: Report, seed: int) -> str:
    """For people."""
    lines = cells(samples, seed)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = _head(made)
    for line in lines:
        first, *others = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        text.append("  ".join([line[0].ljust(len(first)), *others]).rstrip())
    return "\n".join(text) + "\n"


def to_markdown(samples: Samples, made: Report, seed: int) -> str:
    """For a document."""
    head, *lines = cells(samples, seed)
    table = [head, ["---"] * len(head), *lines]
    return "\n".join([*_head(made), *("| " + " | ".join(line) + " |" for line in table)]) + "\n"
