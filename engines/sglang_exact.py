#!/usr/bin/env python3
"""Does a restored request give exactly the tokens of a cold one? The unpatched SGLang server with Forebay in it.

    python engines/sglang_exact.py --tiny        the set for every change: tiny seeded models, minutes
    python engines/sglang_exact.py --real        Gemma-3 270M and SmolLM2-135M, before a release
        --only TEXT    rigs or rows whose name contains it; may be repeated
        --list         what would run
        --json         a JSON object in place of the table

Run it below `scripts/with-engine sglang`; scripts/test-engines does. Redis and Mooncake are started with
scripts/with-store. Each row: prompts are computed and stored, forgotten or the server started again, and asked for once
more over HTTP; tokens are compared with those of a server without Forebay, and what was restored with what the row says
(engines/sglang_rows.py), by SGLang's own count and by Forebay's, which have to agree.
The last line is "N passed, N failed, N skipped". Exit 0: nothing failed. 1: something did. 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import exact_report
import models
import real
import sglang_hurt
import sglang_plays
import sglang_rows
import sglang_surfaces
from exact_report import Result
from prompts import digest
from sglang_plays import Asked
from sglang_rows import Rig, Row
from sglang_server import Engine, Server
from sglang_stage import Stage, Truth, prompts_of, section_of

PLAYS = sglang_plays.PLAYS | sglang_hurt.PLAYS
TRUTH_TOKENS = 12_288  # of the device's pool without Forebay


def _plan(arguments: argparse.Namespace) -> list[tuple[Rig, list[Row]]]:
    """Rigs with the rows that are wanted of them."""

    def wanted(row: Row) -> bool:
        return not arguments.only or any(text in row.rig or text in row.name for text in arguments.only)

    rows = [row for row in sglang_rows.rows(arguments.which) if wanted(row)]
    plan = [(rig, [row for row in rows if row.rig == rig.name]) for rig in sglang_rows.rigs(arguments.which)]
    return [(rig, found) for rig, found in plan if found]


def _missing_model(name: str) -> str:
    try:
        models.make(name)
    except real.UnavailableError as problem:
        return str(problem)
    return ""


def _why_not(rig: Rig, missing: dict[str, str]) -> str:
    """Why a rig cannot run here; empty when it can."""
    isolated = os.environ.get("FOREBAY_WITH_STORE_ISOLATED") == "1"
    link = "a slow link needs a network namespace of its own" if rig.link_mbit is not None and not isolated else ""
    return missing.get(rig.store, "") or link


def truth_of(model: str, wanted: Sequence[tuple[Rig, Row]]) -> Truth:
    """The right tokens of all prompts of a model, from a server without Forebay and without a prefix cache."""
    asked: dict[str, tuple[list[int], int]] = {}
    for rig, row in wanted:
        for prompt in prompts_of(rig, row):
            most = asked.get(digest(prompt), (prompt, 0))[1]
            asked[digest(prompt)] = prompt, max(most, row.tokens)
    threads = max(int(rig.engine.get("threads", 1)) for rig, _ in wanted)
    described = Engine(
        models.make(model), options={"disable_radix_cache": True}, max_total_tokens=TRUTH_TOKENS, threads=threads
    )
    with Server(described) as server:
        return {key: server.ask([prompt], tokens)[0].tokens for key, (prompt, tokens) in asked.items()}


def _needs_section(rig: Rig, rows: Sequence[Row]) -> bool:
    return rig.host == "server" or any(row.play == "corrupted" for row in rows)


def _play(stage: Stage, row: Row, truth: Truth, result: Result) -> None:
    """One row, from the cold run to its verdicts."""
    stage.cold(row, truth)
    if row.play not in ("cold", "corrupted", "all corrupted"):
        stage.forget(row.forget)
    prompts = prompts_of(stage.rig, row)

    def judge(asked: Asked) -> None:
        result.verdicts.append(stage.judge(prompts[asked.number], asked, truth, row.tokens))

    PLAYS[row.play](stage, row, prompts, judge)
    result.error = stage.threads_problem()


def run_rig(rig: Rig, rows: Sequence[Row], truth: Truth, quiet: bool) -> list[Result]:
    """All rows of a rig. After a row that broke the rig starts anew."""
    results = [Result(rig, row) for row in rows]
    left = list(results)
    while left:
        result = left[0]
        directory = Path(tempfile.mkdtemp(prefix="forebay-exact-"))
        try:
            section = section_of(rig, directory) if _needs_section(rig, rows) else None
            with Stage(rig, directory, section) as stage:
                while left:
                    result = left[0]
                    _play(stage, rows[len(results) - len(left)], truth, result)
                    left.pop(0)
        except Exception as problem:
            left.pop(0)
            result.error = f"{type(problem).__name__}: {str(problem)[:2000]}"
            if not quiet:
                traceback.print_exc()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return results


def _run(plan: list[tuple[Rig, list[Row]]], quiet: bool) -> list[Result]:
    missing, results = exact_report.missing_stores(), list[Result]()
    for model in dict.fromkeys(rig.model for rig, _ in plan):
        mine = [(rig, rows) for rig, rows in plan if rig.model == model]
        why = _missing_model(model)
        started = time.monotonic()
        truth = {} if why else truth_of(model, [(rig, row) for rig, rows in mine for row in rows])
        if not quiet:
            print(f"  -- {model} without Forebay: {len(truth)} prompts, {time.monotonic() - started:.1f} s", flush=True)
        for rig, rows in mine:
            started = time.monotonic()
            reason = why or _why_not(rig, missing)
            skipped = [Result(rig, row, skipped=reason) for row in rows]
            found = skipped if reason else run_rig(rig, rows, truth, quiet)
            results += found
            if not quiet:
                exact_report.show(found, time.monotonic() - started)
    return results


def main() -> int:
    """The command."""
    arguments = exact_report.arguments(__doc__)
    plan = _plan(arguments)
    if arguments.list:
        for rig, rows in plan:
            for row in rows:
                print(f"{rig.model:12} {rig.store:8} {rig.name}: {row.name} {list(row.lengths)}")
        return 0
    stores = sorted({rig.store for rig, _ in plan} - {"file"})
    if stores and exact_report.INSIDE not in os.environ:
        return exact_report.with_stores(stores, exact_report.STORE_SIZE[arguments.which])
    sglang_surfaces.prepare()
    results: list[Any] = _run(plan, arguments.json)
    return exact_report.finish(results, arguments.which, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
