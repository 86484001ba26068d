#!/usr/bin/env python3
"""Does LMCache work with Forebay as its second level? Its own tools and its storage manager, on real stores.

    python engines/lmcache_check.py          everything: a minute or two
        --only TEXT    rows whose name or store contains it; may be repeated
        --list         what would run

Run it with the interpreter that scripts/install-engine lmcache names, and the package forebay on PYTHONPATH;
scripts/test-engines does both. Redis and Mooncake are started with scripts/with-store. Every row is a process of its
own: LMCache's benchmark of L2 adapters, which compares what it reads with what it stored; its checker; and the stories
of engines/lmcache_manager.py.
The last line is "N passed, N failed, N skipped". Exit 0: nothing failed. 1: something did. 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "FOREBAY_LMCACHE_INSIDE"  # set below with-store: why stores that are not there are not
STARTED = ("redis", "mooncake")
LIMIT_S = 180
KEYS = 16
POOL = {"pool_bytes": "16MiB", "block_bytes": "64KiB"}  # less than the rows store: what is read comes from the store


@dataclass(frozen=True)
class Row:
    """One process.

    Attributes:
        name: for people.
        command: of LMCache's environment; ADAPTER stands for the adapter's JSON.
        judge: says what is wrong with its output; "" when nothing is.
        store: "file", "redis", "mooncake" or "process".
    """

    name: str
    command: tuple[str, ...]
    judge: Callable[[str], str]
    store: str = ""


def _judge_bench(output: str) -> str:
    wanted = ["Rounds timed out: 0"] * 3 + ["Total success: 160"] * 3 + ["keys data verified OK"]
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for text in wanted:
        found = next((line for line in lines if text in line), None)
        if found is None:
            return f"no line with {text!r}"
        lines.remove(found)
    return ""


def _judge_checker(output: str) -> str:
    wanted = (
        f"{KEYS}/{KEYS} correctly absent",
        "Batch store OK",
        f"{KEYS}/{KEYS} found",
        f"Validation (loaded): {KEYS}/{KEYS}",
        f"Validation (content): {KEYS}/{KEYS}",
    )
    return "".join(f"no line with {text!r}; " for text in wanted if text not in output)


def _judge_story(output: str) -> str:
    answers = [json.loads(line) for line in output.splitlines() if line.startswith('{"ok"')]
    return "it ended without an answer" if not answers else "" if answers[-1]["ok"] else str(answers[-1]["what"])


def _story(name: str, what: str) -> Row:
    return Row(what, (sys.executable, str(ROOT / "engines/lmcache_manager.py"), name, "ADAPTER"), _judge_story)


BENCH = ("lmcache", "bench", "l2", "--l2-adapter", "ADAPTER", "--no-skip-verify", "--rounds", "5")
ON_STORES = (
    Row("lmcache bench l2", (*BENCH, "--lookup-max-hit-rate", "1.0"), _judge_bench),
    Row(
        "basic_check",
        (sys.executable, "-m", "lmcache.v1.basic_check", "--mode", "test_l2_adapter", "--num-keys", str(KEYS),
         "--l2-adapter", "ADAPTER"),
        _judge_checker,
    ),
    _story("keep", "storage manager: kept, dropped, prefetched"),
    _story("find", "storage manager: prefetched by another process"),
    _story("salted", "storage manager: nothing under another salt"),
)  # fmt: skip
ALONE = (
    _story("hole", "storage manager: the prefix before a damaged chunk"),
    _story("stuck", "storage manager: a store that hangs"),
)


def _rows(only: Sequence[str]) -> list[Row]:
    rows = [Row(row.name, row.command, row.judge, store) for store in ("file", *STARTED) for row in ON_STORES]
    rows += [Row(row.name, row.command, row.judge, "process") for row in ALONE]
    return [row for row in rows if not only or any(text in f"{row.store} {row.name}" for text in only)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def _why_not(store: str) -> str:
    """Why a store cannot be started here; empty when it can."""
    if store == "redis":
        there = shutil.which("redis-server") or shutil.which("valkey-server")
        return "" if there else "neither redis-server nor valkey-server is there"
    installed = subprocess.run([ROOT / "scripts/install-mooncake"], stdout=subprocess.DEVNULL)
    return "" if installed.returncode == 0 else "Mooncake's wheel cannot be installed"


def _with_stores(stores: Sequence[str]) -> int:
    """Runs this program again below with-store, once for all stores."""
    missing = {store: why for store in stores if (why := _why_not(store))}
    command = [sys.executable, *sys.argv]
    for store in stores:
        if store not in missing:
            command = [str(ROOT / "scripts/with-store"), store, "--", *command]
    return subprocess.run(command, env={**os.environ, INSIDE: json.dumps(missing)}).returncode


def _adapter(store: str, directory: str) -> str:
    """The JSON that ``--l2-adapter`` takes."""
    name = {"file": f"file:{directory}", "process": "mem"}.get(store)
    params: dict[str, Any] = POOL | {"store": name or os.environ[f"FOREBAY_WITH_STORE_{store.upper()}"]}
    if store == "process":
        params["timeout_s"] = 2
    return json.dumps(
        {
            "type": "native_plugin",
            "module_path": "forebay.engines.lmcache",
            "class_name": "ForebayL2",
            "adapter_params": params,
        }
    )


def _run(row: Row, directory: str) -> str:
    """What went wrong; "" for nothing."""
    adapter = _adapter(row.store, directory)
    command = [adapter if word == "ADAPTER" else word for word in row.command]
    environment = {**os.environ, "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as late:
        return f"it did not end within {LIMIT_S} s\n{late.output}"
    wrong = row.judge(done.stdout) or (f"exit {done.returncode}" if done.returncode else "")
    return f"{wrong}\n{done.stdout}" if wrong else ""


def main() -> int:
    """The command."""
    arguments = _arguments()
    rows = _rows(arguments.only)
    if arguments.list:
        print("\n".join(f"{row.store:8} {row.name}" for row in rows))
        return 0
    stores = [store for store in STARTED if any(row.store == store for row in rows)]
    if stores and INSIDE not in os.environ:
        return _with_stores(stores)
    missing: dict[str, str] = json.loads(os.environ.get(INSIDE, "{}"))
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="forebay-lmcache-") as directory:
        for row in rows:
            begin = time.monotonic()
            if row.store in missing:
                print(f"{row.store:8} {row.name:52} skipped: {missing[row.store]}", flush=True)
                skipped += 1
                continue
            wrong = _run(row, directory)
            end = f"{'FAILED' if wrong else 'ok'} {time.monotonic() - begin:.1f} s"
            print(f"{row.store:8} {row.name:52} {end}", flush=True)
            if wrong:
                print("\n".join(f"    {line}" for line in wrong.splitlines()[-60:]))
            failed, passed = failed + bool(wrong), passed + (not wrong)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
