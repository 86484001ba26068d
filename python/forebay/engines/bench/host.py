"""The process of one engine: reads commands from stdin, one JSON line each, and answers likewise.

``python -m forebay.engines.bench.host FD``: answers go to descriptor FD; what vLLM prints goes to stdout and stderr.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .engine import Engine


class Host:
    """The engine of this process, and what can be asked of it. A command's name is the method's."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine. Errors: RuntimeError before ``start``."""
        if self._engine is None:
            raise RuntimeError("no engine is started")
        return self._engine

    def start(self, arguments: Mapping[str, Any], transfer: Mapping[str, Any] | None) -> dict[str, Any]:
        """Starts it; the engine's version."""
        self._engine = Engine(arguments, transfer)
        import vllm

        return {"version": str(vllm.__version__)}

    def ask(self, prompt: list[int], tokens: int, params: Mapping[str, Any] | None, reset: str) -> dict[str, Any]:
        """One request, after a reset of "nothing", of the "engine" or of "everything"."""
        if reset != "nothing":
            self.engine.reset(connector=reset == "everything")
        return dataclasses.asdict(self.engine.ask(prompt, tokens, params))

    def serve(self, prompts: list[list[int]], tokens: int, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Requests that run together; everything is forgotten afterwards."""
        seconds, answers = self.engine.serve(prompts, tokens, params)
        self.engine.reset(connector=True)
        return {"seconds": seconds, "answers": answers}

    def match(self, prompts: list[list[int]], rounds: int) -> dict[str, Any]:
        """What asking costs."""
        calls, passes = self.engine.time_matching(prompts, rounds)
        return {"calls": calls, "passes": passes}

    def close(self) -> dict[str, Any]:
        """Ends the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        return {}


def _reason(error: BaseException) -> str:
    """The error and what it came from, first cause first, in one line."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        chain.insert(0, f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__
    return " ".join(chain[0].split())


def main() -> int:
    """Answers until stdin ends."""
    host = Host()
    with os.fdopen(int(sys.argv[1]), "w") as out:
        for line in sys.stdin:
            command = json.loads(line)
            call: Callable[..., dict[str, Any]] = getattr(host, command.pop("do"))
            try:
                answer = call(**command)
            except Exception as error:
                import traceback

                traceback.print_exc()
                answer = {"error": _reason(error)}
            out.write(json.dumps(answer) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
