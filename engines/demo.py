"""What the demonstrations of all engines share: one prompt three times, the table, and whether all went well.

The store is a directory that is removed at the end. What is read of it comes through a slow link, as of a store on
another machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import models
import prompts
import real
import rig
from exact_judge import Journal, Restored

ANSWER_TOKENS = 32


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


class AnyServer(Protocol):
    """A server of an engine, as engines/api_server.py and engines/sglang_server.py have them."""

    def run(self) -> None:
        """Waits for every request."""

    def answer(self, name: str) -> rig.Answer:
        """A request's answer."""

    def submit(self, prompt: Any, tokens: int, params: Any = None) -> str:
        """Sends a request; its name. `params` are Forebay's."""

    def inner_name(self, name: str) -> str:
        """What the engine calls the request."""

    def reset(self) -> None:
        """Empties the memory of the engine and of Forebay, not the store."""


class Demo:
    """The prompt, the store, and who is asked. Engines derive from it."""

    link: str
    """Bytes in a second."""
    deadline_s: float
    """In the middle of the transfer of 1,000 tokens over the link."""

    def __init__(self, model: Path, length: int, directory: Path) -> None:
        self.model, self.directory = model, directory
        self.prompt = prompts.make(model, "demo", [length])[0]
        self.journal = Journal(directory / "journal")

    def settings(self, link: str | None) -> dict[str, Any]:
        """Forebay's: a file store, behind a slow link or not."""
        store = f"file:dir={self.directory / 'store'}"
        return {
            "store": store if link is None else f"fault:{store},bandwidth={link}",
            "policy": "timeout",
            "timeout_budget_s": 30,
            "chunk_max_blocks": 2,
            "pool_bytes": "512MiB",
            "journal": str(self.journal.path),
            "config": {"log.level": "warn"},
        }

    def server(self, link: str | None) -> AbstractContextManager[AnyServer]:
        """A server that is ready. Left, it ends by itself and has put what was computed into the store."""
        raise NotImplementedError

    def _start(self, link: str | None) -> AbstractContextManager[AnyServer]:
        started = time.monotonic()
        server = self.server(link)
        _say(f"The server has started, {time.monotonic() - started:.0f} s.")
        return server

    def _warm_up(self, server: AnyServer) -> None:
        """Has it answer something, so that the first answer that counts is not slower than others."""
        server.submit(list(range(100, 420)), 2, {"load": False, "save": False})
        server.run()

    def _ask(self, server: AnyServer, name: str, what: str, **params: Any) -> Run:
        request = server.submit(self.prompt, ANSWER_TOKENS, params or None)
        server.run()
        return Run(name, what, server.answer(request), self.journal.of(server.inner_name(request)))

    def play(self) -> list[Run]:
        """All three."""
        _say(f"A prompt of {len(self.prompt)} tokens, cold: computed and stored.")
        with self._start(None) as server:
            self._warm_up(server)
            runs = [self._ask(server, "cold", "computed and stored")]
        _say("The server is started again; its memory is empty, the store is not.")
        with self._start(self.link) as server:
            self._warm_up(server)
            runs.append(self._ask(server, "restored", "from the store, after a restart"))
            server.reset()
            what = f"from the store, until a deadline of {1000 * self.deadline_s:.0f} ms"
            runs.append(self._ask(server, "deadline", what, timeout_budget_s=self.deadline_s))
        return runs


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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


def _is_good(rows: list[dict[str, Any]], right: list[int]) -> bool:
    _, whole, cut = (row["restored_tokens"] for row in rows)
    return all(row["tokens_equal"] for row in rows) and whole > cut > 0 and len(right) == ANSWER_TOKENS


def main(description: str | None, default_model: str, make: Callable[[Path, int, Path], Demo]) -> int:
    """The command of a demonstration; its exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", choices=models.NAMES, default=default_model)
    parser.add_argument("--tokens", type=int, default=1000)
    arguments = parser.parse_args()
    _say(f"Making the model {arguments.model}, if it is not there.")
    try:
        model = models.make(arguments.model)
    except real.UnavailableError as problem:
        _say(f"{parser.prog}: {problem}")
        return models.UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        runs = make(model, arguments.tokens, Path(directory)).play()
    right = runs[0].answer.tokens
    rows = [run.as_json(right) for run in runs]
    if arguments.json:
        print(json.dumps({"runs": rows}))
    else:
        _print(runs, right)
    return 0 if _is_good(rows, right) else 1
