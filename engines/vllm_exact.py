#!/usr/bin/env python3
"""Does a restored request give exactly the tokens of a cold one? vLLM with Forebay, on stores that fail and do not.

    python engines/vllm_exact.py --tiny          the set for every change: tiny seeded models, minutes
    python engines/vllm_exact.py --real          Gemma-3 270M and SmolLM2-135M, before a release
        --only TEXT    rigs or rows whose name contains it; may be repeated
        --list         what would run
        --json         a JSON object in place of the table

Run it with the interpreter of `scripts/install-engine vllm`, with the package forebay on PYTHONPATH, as
scripts/test-engines does. Redis and Mooncake are started with scripts/with-store. Each row: cold run, reset or restart,
restored run; tokens are compared with an engine without Forebay, and what was restored with what the row says
(engines/exact_rows.py, engines/exact_real.py).
The last line is "N passed, N failed, N skipped". Exit 0: nothing failed. 1: something did. 2: wrong arguments.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import exact_real
import exact_report
import exact_rows
import models
import real
import rig as engines
from exact_report import Result
from exact_rows import Rig, Row

PRELOADED = ("vllm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker", "compressed_tensors")


def _plan(which: str, only: Sequence[str]) -> list[tuple[Rig, list[Row]]]:
    """Rigs with the rows that are wanted of them."""

    def wanted(row: Row) -> bool:
        return not only or any(text in row.rig or text in row.name for text in only)

    matrix = {"tiny": exact_rows, "real": exact_real}[which]
    rows = [row for row in matrix.rows() if wanted(row)]
    plan = [(rig, [row for row in rows if row.rig == rig.name]) for rig in matrix.rigs()]
    return [(rig, found) for rig, found in plan if found]


def _preload(which: str) -> None:
    """What every forked engine needs, imported once. OpenMP takes its number of threads when it is loaded."""
    engines.prepare()
    if which == "tiny":
        os.environ.update(engines.Engine(Path()).environment())
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # an engine's end collects garbage twice: not that of all modules


def _missing_model(name: str) -> str:
    try:
        models.make(name)
    except real.UnavailableError as problem:
        return str(problem)
    return ""


def _no_link(rig: Rig) -> str:
    isolated = os.environ.get("FOREBAY_WITH_STORE_ISOLATED") == "1"
    return "a slow link needs a network namespace of its own" if rig.link_mbit is not None and not isolated else ""


def _run(plan: list[tuple[Rig, list[Row]]], quiet: bool) -> list[Result]:
    import exact_run

    missing, results = exact_report.missing_stores(), list[Result]()
    for model in dict.fromkeys(rig.model for rig, _ in plan):
        mine = [(rig, rows) for rig, rows in plan if rig.model == model]
        why = _missing_model(model)
        truth = {} if why else exact_run.truth_of(model, [(rig, row) for rig, rows in mine for row in rows])
        for rig, rows in mine:
            started = time.monotonic()
            reason = why or missing.get(rig.store, "") or _no_link(rig)
            skipped = [Result(rig, row, skipped=reason) for row in rows]
            found = skipped if reason else exact_run.run_rig(rig, rows, truth)
            results += found
            if not quiet:
                exact_report.show(found, time.monotonic() - started)
    return results


def main() -> int:
    """The command."""
    arguments = exact_report.arguments(__doc__)
    plan = _plan(arguments.which, arguments.only)
    if arguments.list:
        for rig, rows in plan:
            for row in rows:
                print(f"{rig.model:12} {rig.store:8} {rig.name}: {row.name} {list(row.lengths)}")
        return 0
    stores = sorted({rig.store for rig, _ in plan} - {"file"})
    if stores and exact_report.INSIDE not in os.environ:
        return exact_report.with_stores(stores, exact_report.STORE_SIZE[arguments.which])
    _preload(arguments.which)
    return exact_report.finish(_run(plan, arguments.json), arguments.which, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
