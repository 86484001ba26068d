#!/usr/bin/env python3
"""Does a restored request give exactly the tokens of a cold one? vLLM with Forebay, on stores that fail and do not.

    python engines/vllm_exact.py --tiny          the set for every change: tiny seeded models, minutes
    python engines/vllm_exact.py --real          Gemma-3 270M and SmolLM2-135M, before a release
        --only TEXT    rigs or rows whose name contains it; may be repeated
        --list         what would run
        --json         a JSON object in place of the table

Run it with the interpreter that scripts/install-vllm names, and the package forebay on PYTHONPATH; scripts/test-engines
does both. Redis and Mooncake are started with scripts/with-store. Each row: cold run, reset or restart, restored run;
tokens are compared with an engine without Forebay, and what was restored with what the row says
(engines/exact_rows.py).
The last line is "N passed, N failed, N skipped". Exit 0: nothing failed. 1: something did. 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import exact_rows
import models
import real
import rig as engines
from exact_rows import Rig, Row

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "FOREBAY_EXACT_INSIDE"  # set below with-store: which stores there are, and why the others are not
STORE_SIZE = {"tiny": "512MiB", "real": "3GiB"}
PRELOADED = ("vllm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker", "compressed_tensors")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tiny", dest="which", action="store_const", const="tiny")
    which.add_argument("--real", dest="which", action="store_const", const="real")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> list[tuple[Rig, list[Row]]]:
    """Rigs with the rows that are wanted of them."""

    def wanted(row: Row) -> bool:
        return not arguments.only or any(text in row.rig or text in row.name for text in arguments.only)

    rows = [row for row in exact_rows.rows(arguments.which) if wanted(row)]
    plan = [(rig, [row for row in rows if row.rig == rig.name]) for rig in exact_rows.rigs(arguments.which)]
    return [(rig, found) for rig, found in plan if found]


def _why_not(store: str) -> str:
    """Why a store cannot be started here; empty when it can."""
    if store == "redis":
        there = shutil.which("redis-server") or shutil.which("valkey-server")
        return "" if there else "neither redis-server nor valkey-server is there"
    installed = subprocess.run([ROOT / "scripts/install-mooncake"], stdout=subprocess.DEVNULL)
    return "" if installed.returncode == 0 else "Mooncake's wheel cannot be installed"


def _with_stores(stores: Sequence[str], size: str) -> int:
    """Runs this program again below with-store, once for all stores."""
    missing = {store: why for store in stores if (why := _why_not(store))}
    command = [sys.executable, *sys.argv]
    for store in stores:
        if store not in missing:
            command = [str(ROOT / "scripts/with-store"), store, "--size", size, "--", *command]
    return subprocess.run(command, env={**os.environ, INSIDE: json.dumps(missing)}).returncode


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


def _run(plan: list[tuple[Rig, list[Row]]], missing: dict[str, str], quiet: bool) -> list[Any]:
    import exact_run

    results: list[exact_run.Result] = []
    for model in dict.fromkeys(rig.model for rig, _ in plan):
        mine = [(rig, rows) for rig, rows in plan if rig.model == model]
        why = _missing_model(model)
        truth = {} if why else exact_run.truth_of(model, [(rig, row) for rig, rows in mine for row in rows])
        for rig, rows in mine:
            started = time.monotonic()
            reason = why or missing.get(rig.store, "") or _no_link(rig)
            found = (
                [exact_run.Result(rig, row, skipped=reason) for row in rows]
                if reason
                else exact_run.run_rig(rig, rows, truth)
            )
            results += found
            if not quiet:
                _show(found, time.monotonic() - started)
    return results


def _span(values: Sequence[object]) -> str:
    low, high = values[0], values[-1]
    return str(low) if low == high else f"{low} to {high}"


def _line(result: Any) -> str:
    row, rig = result.row, result.rig
    head = f"{rig.model:12} {rig.store:8} {rig.name + ': ' + row.name:46}"
    if result.skipped or not result.verdicts:
        return f"{head} {'skipped: ' + result.skipped if result.skipped else 'FAILED: ' + result.error}"
    verdicts = result.verdicts
    restored = _span(sorted(verdict.restored.matched for verdict in verdicts))
    graphs = _span(sorted(verdict.restored.graphs for verdict in verdicts))
    reasons = ", ".join(sorted({verdict.restored.reason for verdict in verdicts}))
    equal = sum(verdict.tokens_equal for verdict in verdicts)
    end = "ok" if result.good else "FAILED"
    return (
        f"{head} {len(verdicts):3} prompts, {equal:3} with equal tokens, restored {restored:14} graphs {graphs:8} "
        f"{reasons:24} {end}"
    )


def _show(results: list[Any], seconds: float) -> None:
    for result in results:
        print(_line(result))
        for verdict in result.verdicts:
            if verdict.why:
                print(f"    {verdict.length} tokens: {verdict.why}")
        if result.error and result.verdicts:
            print(f"    {result.error}")
    print(f"  -- {results[0].rig.name}: {seconds:.1f} s", flush=True)


def _as_json(results: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "rig": result.rig.name,
            "row": result.row.name,
            "model": result.rig.model,
            "store": result.rig.store,
            "passed": result.good,
            "skipped": result.skipped,
            "error": result.error,
            "prompts": [verdict.as_json() for verdict in result.verdicts],
        }
        for result in results
    ]


def main() -> int:
    """The command."""
    arguments = _arguments()
    plan = _plan(arguments)
    if arguments.list:
        for rig, rows in plan:
            for row in rows:
                print(f"{rig.model:12} {rig.store:8} {rig.name}: {row.name} {list(row.lengths)}")
        return 0
    stores = sorted({rig.store for rig, _ in plan} - {"file"})
    if stores and INSIDE not in os.environ:
        return _with_stores(stores, STORE_SIZE[arguments.which])
    _preload(arguments.which)
    results = _run(plan, json.loads(os.environ.get(INSIDE, "{}")), arguments.json)
    passed, skipped = sum(result.good for result in results), sum(bool(result.skipped) for result in results)
    failed = len(results) - passed - skipped
    if arguments.json:
        print(
            json.dumps(
                {
                    "set": arguments.which,
                    "rows": _as_json(results),
                    "passed": passed,
                    "failed": failed,
                    "skipped": skipped,
                }
            )
        )
    else:
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
