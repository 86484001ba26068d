"""What the exactness programs of all engines share: arguments, stores below with-store, results as text and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from exact_judge import Verdict

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "FOREBAY_EXACT_INSIDE"  # set below with-store: which stores there are, and why the others are not
STORE_SIZE = {"tiny": "512MiB", "real": "3GiB"}


class Rig(Protocol):
    """What a report says of an engine and its store."""

    @property
    def name(self) -> str:
        """Of the rig."""

    @property
    def model(self) -> str:
        """As engines/models.py names it."""

    @property
    def store(self) -> str:
        """Its driver."""


class Row(Protocol):
    """What a report says of a row."""

    @property
    def name(self) -> str:
        """Of the row."""


@dataclass
class Result:
    """A row's outcome. `skipped`: why it could not run; `error`: what broke outside of a prompt."""

    rig: Rig
    row: Row
    verdicts: list[Verdict] = field(default_factory=list)
    error: str = ""
    skipped: str = ""

    @property
    def good(self) -> bool:
        """Everything was as expected."""
        return bool(self.verdicts) and not self.error and not any(verdict.why for verdict in self.verdicts)


def arguments(description: str | None) -> argparse.Namespace:
    """The command line: `which` is "tiny" or "real"."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tiny", dest="which", action="store_const", const="tiny")
    which.add_argument("--real", dest="which", action="store_const", const="real")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# ---- Stores ----------------------------------------------------------------------------------------------------------


def _why_not(store: str) -> str:
    """Why a store cannot be started here; empty when it can."""
    if store == "redis":
        there = shutil.which("redis-server") or shutil.which("valkey-server")
        return "" if there else "neither redis-server nor valkey-server is there"
    installed = subprocess.run([ROOT / "scripts/install-mooncake"], stdout=subprocess.DEVNULL)
    return "" if installed.returncode == 0 else "Mooncake's wheel cannot be installed"


def with_stores(stores: Sequence[str], size: str) -> int:
    """Runs this program again below with-store, once for all stores. Its exit status."""
    missing = {store: why for store in stores if (why := _why_not(store))}
    command = [sys.executable, *sys.argv]
    for store in stores:
        if store not in missing:
            command = [str(ROOT / "scripts/with-store"), store, "--size", size, "--", *command]
    return subprocess.run(command, env={**os.environ, INSIDE: json.dumps(missing)}).returncode


def missing_stores() -> dict[str, str]:
    """Stores that are not there, and why."""
    found: dict[str, str] = json.loads(os.environ.get(INSIDE, "{}"))
    return found


# ---- Results ---------------------------------------------------------------------------------------------------------


def _span(values: Sequence[object]) -> str:
    low, high = values[0], values[-1]
    return str(low) if low == high else f"{low} to {high}"


def line(result: Result) -> str:
    """A row of the table."""
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


def show(results: Sequence[Result], seconds: float) -> None:
    """Prints the rows of one rig, and what was wrong with each."""
    for result in results:
        print(line(result))
        for verdict in result.verdicts:
            if verdict.why:
                print(f"    {verdict.length} tokens: {verdict.why}")
        if result.error and result.verdicts:
            print(f"    {result.error}")
    print(f"  -- {results[0].rig.name}: {seconds:.1f} s", flush=True)


def _as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
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


def finish(results: Sequence[Result], which: str, as_json: bool) -> int:
    """Prints the last line, or everything as JSON; the exit status."""
    passed, skipped = sum(result.good for result in results), sum(bool(result.skipped) for result in results)
    failed = len(results) - passed - skipped
    if as_json:
        counts = {"passed": passed, "failed": failed, "skipped": skipped}
        print(json.dumps({"set": which, "rows": _as_json(results), **counts}))
    else:
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not results else 0
