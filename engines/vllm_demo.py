#!/usr/bin/env python3
"""Forebay in vLLM's API server, on a machine without a GPU: one prompt, three times.

    python engines/vllm_demo.py            cold; after a restart, restored; restored until a deadline cuts it short
        --json                             {"runs":[{"name","tokens_equal","restored_tokens","ttft_ms","reason"}...]}
        --model NAME                       as engines/models.py names them; gemma3-270m by default
        --tokens N                         length of the prompt, 1,000 by default

`make engine-demo` runs it in an environment of its own, with everything it needs. The store is a directory that is
removed at the end; what is read of it comes through a link of 40 MB/s, as of a store on another machine.
Exit 0: the tokens are the same each time, the second run restored some, the third one some less. 1: not so. 69: the
model cannot be had.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models
import prompts
import real
import rig
from api_server import ApiServer
from exact_judge import Journal, Restored

LINK, CHUNK_BLOCKS, ANSWER_TOKENS = "40MB", 2, 32
DEADLINE_S = 0.25  # in the middle of the transfer of 1,000 tokens over that link, some 18 MB
PREFILL_STEP = 256  # tokens; a model with a sliding window can resume where a step of its prefill ended


@dataclass(frozen=True)
class Run:
    """One of the three."""

    name: str
    what: str
    answer: rig.Answer
    restored: Restored

    def as_json(self, right: list[int]) -> dict[str, Any]:
        """The form of --json."""
        return {
            "name": self.name,
            "tokens_equal": self.answer.tokens == right,
            "restored_tokens": self.restored.matched,
            "ttft_ms": round(1000 * (self.answer.ttft_s or 0), 1),
            "reason": self.restored.reason,
        }


class Demo:
    """The prompt, the store, and who is asked. `say`: where progress goes."""

    def __init__(self, model: Path, length: int, directory: Path) -> None:
        self.model, self.directory = model, directory
        self.prompt = prompts.make(model, "demo", [length])[0]
        self.journal = Journal(directory / "journal")

    def engine(self, link: str | None) -> rig.Engine:
        """An engine with the connector and a file store, behind a slow link or not."""
        store = f"file:dir={self.directory / 'store'}"
        settings = {
            "store": store if link is None else f"fault:{store},bandwidth={link}",
            "policy": "timeout",
            "timeout_budget_s": 30,
            "chunk_max_blocks": CHUNK_BLOCKS,
            "pool_bytes": "512MiB",
            "journal": str(self.journal.path),
            "config": {"log.level": "warn"},
        }
        return rig.Engine(
            self.model,
            settings,
            max_model_len=4096,
            max_batched_tokens=PREFILL_STEP,
            kv_bytes=1 << 29,
            dtype="bfloat16" if not self.model.name.startswith("tiny") else "float32",
            threads=None,
        )

    def start(self, link: str | None) -> ApiServer:
        """A server that has answered something already, so that its first answer is not slower than others."""
        started = time.monotonic()
        server = ApiServer(self.engine(link))
        print(f"The API server has started, {time.monotonic() - started:.0f} s.", file=sys.stderr, flush=True)
        server.submit(range(100, 180), 2, {"load": False, "save": False})
        server.run()
        return server

    def ask(self, server: ApiServer, name: str, what: str, **params: Any) -> Run:
        """The prompt, once."""
        request = server.submit(self.prompt, ANSWER_TOKENS, params)
        server.run()
        return Run(name, what, server.answer(request), self.journal.of(server.inner_name(request)))

    def play(self) -> list[Run]:
        """All three."""
        length = len(self.prompt)
        print(f"A prompt of {length} tokens, cold: computed and stored.", file=sys.stderr, flush=True)
        with self.start(None) as server:
            runs = [self.ask(server, "cold", "computed and stored")]
        print("The server is started again; its memory is empty, the store is not.", file=sys.stderr, flush=True)
        with self.start(LINK) as server:
            runs.append(self.ask(server, "restored", "from the store, after a restart"))
            server.reset()
            what = f"from the store, until a deadline of {1000 * DEADLINE_S:.0f} ms"
            runs.append(self.ask(server, "deadline", what, timeout_budget_s=DEADLINE_S))
        return runs


def _print(runs: list[Run], right: list[int]) -> None:
    print(f"\n{'run':10} {'tokens restored':>16} {'first token':>12} {'stopped by':>12}  tokens")
    for run in runs:
        row = run.as_json(right)
        same = "the same" if row["tokens_equal"] else "DIFFERENT"
        figures = f"{row['restored_tokens']:16} {row['ttft_ms']:9.0f} ms {row['reason']:>12}"
        print(f"{run.name:10} {figures}  {same}   ({run.what})")
    print("\nEach time the model goes on with:")
    for run in runs:
        print(f"  {run.name:10} {run.answer.text or run.answer.tokens!r}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", choices=models.NAMES, default="gemma3-270m")
    parser.add_argument("--tokens", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"Making the model {arguments.model}, if it is not there.", file=sys.stderr, flush=True)
    try:
        model = models.make(arguments.model)
    except real.UnavailableError as problem:
        print(f"vllm_demo: {problem}", file=sys.stderr)
        return models.UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        runs = Demo(model, arguments.tokens, Path(directory)).play()
    right = runs[0].answer.tokens
    rows = [run.as_json(right) for run in runs]
    if arguments.json:
        print(json.dumps({"runs": rows}))
    else:
        _print(runs, right)
    _, whole, cut = (row["restored_tokens"] for row in rows)
    good = all(row["tokens_equal"] for row in rows) and whole > cut > 0
    return 0 if good and len(right) == ANSWER_TOKENS else 1


if __name__ == "__main__":
    sys.exit(main())
