"""A server that is being measured: asked over HTTP, watched by the probe in its scheduler, and from outside."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare_process import process_totals
from compare_samples import Held
from sglang_server import Answer, Engine, Server

POLL_S, SETTLE_S, QUIET_S = 0.02, 20.0, 0.25
BUSY = ("sessions_running_gauge", "sessions_parked_gauge", "puts_gauge", "inflight_graphs_gauge")
_numbers = itertools.count(1)
KEPT_BYTES = ("pinned_bytes_gauge", "reserved_bytes_gauge", "quarantine_bytes_gauge")


@dataclass
class Request:
    """What the probe saw of a request, seconds on one clock."""

    queued: float | None
    candidate: float | None
    ready: float | None
    scheduled: float | None
    aborted: float | None
    checks: int
    check_s: float

    @property
    def wait_s(self) -> float | None:
        """From candidacy to scheduling."""
        if self.candidate is None or self.scheduled is None:
            return None
        return max(self.scheduled - self.candidate, 0.0)


class Watched:
    """A running server with a probe. A context manager; leaving it ends the server.

    Args:
        token_bytes: of KV of one token, to give Forebay's bytes in tokens.
    """

    def __init__(self, engine: Engine, probe: Path, log: Path, token_bytes: int) -> None:
        self._probe, self._token_bytes = probe, token_bytes
        with contextlib.suppress(FileNotFoundError):
            probe.unlink()
        self._threads = ThreadPoolExecutor(1)
        self.server = Server(engine, log=log)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.end()
        self._threads.shutdown()

    def _asked(self, what: str) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SETTLE_S)
            connection.connect(str(self._probe))
            connection.sendall(what.encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile("rb").read())
        if "error" in answer:
            raise RuntimeError(f"the probe answers {answer['error']}")
        return answer

    def state(self) -> dict[str, Any]:
        """What the caches hold (engines/sglang_probe)."""
        return self._asked("state")

    def take(self) -> dict[str, Request]:
        """The requests seen since the last call, by name."""
        rows = self._asked("requests")["requests"]
        return {row.pop("rid"): Request(**row) for row in rows}

    def ask(self, prompts: Sequence[Sequence[int]], tokens: int, gap_s: float = 0.0) -> list[tuple[str, Answer]]:
        """Sends one request after the other, `gap_s` apart whether or not any is answered; all names and answers."""
        names, begun = [], time.monotonic()
        for number, prompt in enumerate(prompts):
            time.sleep(max(begun + number * gap_s - time.monotonic(), 0.0))
            names.append(self.server.submit(prompt, tokens))
        return [(name, self.server.wait(name)) for name in names]

    def compute(self, prompts: Sequence[Sequence[int]]) -> Future[Any]:
        """Has the engine compute prompts, one token of answer each, and returns when all of them are in its queue."""
        names, before = [f"ahead-{next(_numbers)}" for _ in prompts], self.state()["queued"]
        sampling = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        body = {"rid": names, "input_ids": [list(prompt) for prompt in prompts], "sampling_params": sampling}
        answer = self._threads.submit(self.server.call, "POST", "/generate", body)
        self.until(lambda: self.state()["queued"] >= before + len(names), SETTLE_S)
        return answer

    def first_token(self, name: str, limit_s: float) -> float | None:
        """Seconds to the first token of a request; None: it did not come within `limit_s` from now."""
        self.until(lambda: self.server.answer(name).ttft_s is not None, limit_s)
        return self.server.answer(name).ttft_s

    @staticmethod
    def until(holds: Callable[[], bool], limit_s: float) -> bool:
        """Waits for something; whether it came to that."""
        limit = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > limit:
                return False
            time.sleep(POLL_S)
        return True

    def _is_idle(self) -> bool:
        state = self.state()
        forebay: Mapping[str, int] = state["forebay"] or {}
        return not (state["waiting"] or state["prefetches"] or any(forebay.get(name, 0) for name in BUSY))

    def settle(self, limit_s: float = SETTLE_S) -> bool:
        """Waits until nothing waits, is read or is put, and stays so for a moment; whether it came to that."""
        limit = time.monotonic() + limit_s
        while self.until(self._is_idle, max(limit - time.monotonic(), 0.0)):
            time.sleep(QUIET_S)
            if self._is_idle():
                return True
        return False

    def forget(self) -> None:
        """Empties the caches in front of the store. Errors: RuntimeError."""
        self.server.flush()

    def held(self) -> Held:
        """What it holds now."""
        state = self.state()
        forebay: Mapping[str, int] = state["forebay"] or {}
        kept = sum(forebay.get(name, 0) for name in KEPT_BYTES)
        rss, threads, descriptors = process_totals(self.server.process.pid)
        tokens = (state["host_tokens"] or 0) + kept // self._token_bytes
        return Held(rss, threads, descriptors, tokens, state["device_tokens"])

    def is_healthy(self, limit_s: float) -> bool:
        """What a load balancer is told."""
        with contextlib.suppress(OSError):
            return self.server.call("GET", "/health", limit_s=limit_s)[0] == 200
        return False


def kv_token_bytes(model: Path, element_bytes: int = 4) -> int:
    """Bytes of keys and values of one token of a model of one kind of layers, by its config.json."""
    config: dict[str, Any] = json.loads((model / "config.json").read_text())
    return int(2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * element_bytes)


def on_path(*directories: Path) -> None:
    """Makes modules in these directories importable in processes started from now on."""
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, directories), *([given] if given else [])])
