#!/usr/bin/env python3
"""What the quick calls cost from Python, as JSON: medians and 99.9th percentiles in microseconds.

    calls.py [ROUNDS]     by default 200,000 polls and 20,000 starts

The clock's own cost is part of each figure. One machine, one run: compare figures of one run only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import forebay

BLOCK_TOKENS, BLOCK_BYTES, BLOCKS = 16, 1024, 64
MODEL = {
    "id": "bench",
    "revision": "1",
    "kv_dtype": "f16",
    "block_tokens": BLOCK_TOKENS,
    "layer_set": "all",
    "layout": "plain",
    "weights_epoch": 0,
    "tp_size": 1,
    "cp_size": 1,
    "pp_size": 1,
    "groups": [{"name": "kv", "payload_bytes": BLOCK_BYTES, "rule": "all"}],
}


def times(
    rounds: int, call: Callable[[], object], after: Callable[[object], object] = lambda result: result
) -> list[float]:
    """Sorted times of a call in microseconds; what ``after`` does with its result is not part of them."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter_ns()
        result = call()
        found.append((time.perf_counter_ns() - started) / 1000)
        after(result)
    return sorted(found)


def figures(name: str, found: list[float], goal: float | None = None) -> list[dict[str, object]]:
    """Median and 99.9th percentile as rows of a report."""
    middle, far = found[len(found) // 2], found[len(found) * 999 // 1000]
    rows: list[dict[str, object]] = [{"name": f"{name}_p50_us", "value": round(middle, 3), "unit": "us"}]
    if goal is not None:
        rows[0] |= {"op": "<=", "goal": goal, "met": middle <= goal}
    return [*rows, {"name": f"{name}_p999_us", "value": round(far, 3), "unit": "us"}]


def main() -> None:
    """Measures and prints."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with forebay.Cache(
        model=MODEL,
        pool={"bytes": "16MiB"},
        store={"driver": "mem"},
        prefetch={"enabled": True, "policy": "best_effort"},
        log={"level": "off"},
    ) as cache:
        sequence = cache.sequence(range(BLOCKS * BLOCK_TOKENS + 1))
        with cache.put(sequence) as put:
            put.commit()
        sessions = [cache.start(sequence) for _ in range(64)]
        for session in sessions:
            session.wait()
        rows = figures("python_poll", times(rounds, sessions[0].poll), goal=2.0)
        rows += figures("python_progress_64", times(rounds // 64, lambda: cache.progress(sessions)))

        def release(session: object) -> None:
            assert isinstance(session, forebay.Session)
            session.release()

        rows += figures("python_start", times(rounds // 10, lambda: cache.start(sequence), release))
        rows += figures("python_lookup", times(rounds // 10, lambda: cache.lookup(sequence).release()))
    json.dump({"bench": "python", "figures": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
