#!/usr/bin/env python3
"""Checks the SGLang rig itself, without Forebay: SGLang's tokens, how requests and servers end.

    scripts/with-engine sglang python engines/sglang_check.py          one line for each check; some 30 s

Exit 0: all is well. 1: a check failed.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import reference
from api_server import NotStartedError
from sglang_process import Process
from sglang_server import Engine, Server

TOKENS, MANY = reference.TOKENS, 3000
LIMIT_S = 30.0
VARIANTS: dict[str, dict[str, Any]] = {
    "one at a time": {},
    "overlap": {"overlap": True},
    "chunked prefill": {"chunked_prefill": 64},
    "two ranks": {"tensor_parallel": 2},
    "two ranks, overlap, chunked prefill": {"tensor_parallel": 2, "overlap": True, "chunked_prefill": 64},
    "pages of 1": {"page_tokens": 1},
    "pages of 64": {"page_tokens": 64},
}


class CheckError(Exception):
    """A check failed."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CheckError(what)


def _until(holds: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        _require(time.monotonic() < limit, f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.01)


class Checks:
    """All of them, on the tiny llama."""

    def __init__(self) -> None:
        self.model = models.make("tiny-llama")
        self.prompts = reference.prompts(self.model)
        self.right = reference.transformers_tokens(self.model, self.prompts)

    def tokens(self, **how: Any) -> None:
        """SGLang's greedy tokens are those of transformers; then from its cache, whole pages of it."""
        with Server(Engine(self.model, **how)) as server:
            for run in ("computed", "cached"):
                answers = server.ask(self.prompts, TOKENS)
                _require([answer.tokens for answer in answers] == self.right, f"tokens, {run}")
            page = server.engine.page_tokens
            wanted = [(len(prompt) - 1) // page * page for prompt in self.prompts]
            found = [answer.cached.get("device", 0) for answer in answers]
            _require(found == wanted, f"cached: {found} in place of {wanted}")
            server.flush()
            answer = server.ask(self.prompts[-1:], TOKENS)[0]
            _require(answer.tokens == self.right[-1] and not answer.cached, "tokens after a flush")

    def _running(self, server: Server) -> str:
        name = server.submit(self.prompts[0], MANY)
        _until(lambda: len(server.answer(name).tokens) > 2, "the first tokens")
        return name

    def _idle(self, server: Server) -> None:
        _until(lambda: server.load()["num_running_reqs"] == 0, "no request runs")

    def ends(self) -> None:
        """A request is aborted, a connection closed, and the server goes on."""
        with Server(Engine(self.model)) as server:
            name = self._running(server)
            server.abort(name)
            answer = server.wait(name)
            _require(answer.finish_reason == "abort" and 0 < len(answer.tokens) < MANY, f"aborted: {answer}")
            name = self._running(server)
            server.cut(name)
            _require(server.wait(name).finish_reason is None, "cut")
            self._idle(server)
            _require(server.ask(self.prompts, TOKENS)[0].tokens == self.right[0], "tokens afterwards")

    def plain(self) -> None:
        """The plain command line gives the same, and ends when it is asked to."""
        with Server(Engine(self.model, preloaded=False, metrics=True)) as server:
            answers = server.ask(self.prompts, TOKENS)
            _require([answer.tokens for answer in answers] == self.right, "tokens")
            total = sum(len(prompt) for prompt in self.prompts)
            _require(server.metric("sglang:prompt_tokens_total") == total, "the metric of prompt tokens")
            _require(server.end(polite=True), "a polite end")

    def refused(self) -> None:
        """A server that does not start says why."""
        try:
            Server(Engine(self.model, options={"radix_cache_backend": "nobody"}))
        except NotStartedError as problem:
            _require("nobody" in str(problem), f"the reason is not shown: {problem}")
        else:
            raise CheckError("it started")

    def orphans(self) -> None:
        """Servers end with the process that has started them, even when that is killed."""
        command = [sys.executable, str(Path(__file__)), "--orphan"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            server = Process(int(parent.stdout.readline()))
            parent.kill()
        _require(server.wait(LIMIT_S), "the server is still there")
        server.kill()


def _orphan() -> int:
    """A parent that is killed while it has a server."""
    with Server(Engine(models.make("tiny-llama"))) as server:
        print(server.process.pid, flush=True)
        time.sleep(LIMIT_S)
    return 1


def main() -> int:
    """The command."""
    if sys.argv[1:] == ["--orphan"]:
        return _orphan()
    checks = Checks()
    rows: list[tuple[str, Callable[[], None]]] = [
        (f"tokens, {name}", functools.partial(checks.tokens, **how)) for name, how in VARIANTS.items()
    ]
    rows += [(str(check.__doc__), check) for check in (checks.ends, checks.plain, checks.refused, checks.orphans)]
    failed = 0
    for name, check in rows:
        started = time.monotonic()
        try:
            check()
            word = "ok"
        except Exception:
            traceback.print_exc()
            word, failed = "FAILED", failed + 1
        print(f"{word:6} {time.monotonic() - started:5.1f} s  {name}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
