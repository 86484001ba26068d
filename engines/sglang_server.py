"""SGLang's server on CPUs, asked over HTTP on loopback: what the engine tests of SGLang play with.

    with Server(Engine(model)) as server:
        name = server.submit(prompt, 8)
        server.run()
        server.answer(name).tokens

A server is the unpatched one of the environment (`scripts/install-engine sglang`), with engines/sglang_host on
PYTHONPATH (`scripts/with-engine sglang`). Starting one takes a second after the first one, see sglang_launcher.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import rig
from api_server import NotStartedError, free_port
from sglang_process import Process, launcher

START_S, ANSWER_S, END_S, SETTLE_S = 240.0, 180.0, 30.0, 30.0
LOG_LINES = 60

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "TORCHDYNAMO_DISABLE": "1",  # compiling some helpers takes 5 to 20 s of the first request
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""What every server here is started with; a variable that is set stays."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Engine:
    """What is started.

    Attributes:
        options: more arguments of the server by name, with _ or -; True: without a value; None and False: left out.
        variables: environment variables of its processes.
        threads: of each rank's computing. One is best for tiny models.
        preloaded: forked from a process with SGLang's imports, or the plain command line.
    """

    model: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    page_tokens: int = 16
    max_total_tokens: int = 4096
    max_requests: int = 8
    chunked_prefill: int | None = None
    overlap: bool = False
    tensor_parallel: int = 1
    dtype: str = "float32"
    metrics: bool = False
    threads: int = 1
    preloaded: bool = True

    def environment(self) -> dict[str, str]:
        """Variables of its processes."""
        given = {"OMP_NUM_THREADS": str(self.threads)}
        if self.tensor_parallel > 1:
            cores = sorted(os.sched_getaffinity(0))
            ranks = range(self.tensor_parallel)
            given["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(cores[rank % len(cores)]) for rank in ranks)
        return {**given, **self.variables}

    def arguments(self) -> dict[str, Any]:
        """The server's arguments by name."""
        return {
            "model-path": str(self.model),
            "skip-tokenizer-init": not (self.model / "tokenizer.json").exists(),
            "device": "cpu",
            "attention-backend": "torch_native",
            "disable-cuda-graph": True,
            "disable-overlap-schedule": not self.overlap,
            "skip-server-warmup": True,
            "mem-fraction-static": 0.3,
            "random-seed": 0,
            "dtype": self.dtype,
            "page-size": self.page_tokens,
            "max-total-tokens": self.max_total_tokens,
            "max-running-requests": self.max_requests,
            "chunked-prefill-size": self.chunked_prefill,
            "tensor-parallel-size": self.tensor_parallel if self.tensor_parallel > 1 else None,
            "enable-cache-report": True,
            "enable-metrics": self.metrics,
            "load-snapshot-publish-interval": 1,
            **{name.replace("_", "-"): value for name, value in self.options.items()},
        }

    def words(self, port: int) -> list[str]:
        """The command line behind `sglang.launch_server`."""
        words = ["--host", "127.0.0.1", "--port", str(port)]
        for name, value in self.arguments().items():
            if value is True:
                words.append(f"--{name}")
            elif value is not False and value is not None:
                words += [f"--{name}", json.dumps(value) if isinstance(value, Mapping) else str(value)]
        return words


@dataclass
class Answer(rig.Answer):
    """What came of one request.

    Attributes:
        cached: prompt tokens that were not computed, by where they came from: device, host, storage.
        cut: the connection was closed by us.
    """

    cached: dict[str, int] = field(default_factory=dict)
    cut: bool = False

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of the stream; each has all that came before."""
        meta = event["meta_info"]
        self.tokens = list(event["output_ids"])
        self.text = event.get("text") or ""
        details = meta.get("cached_tokens_details") or {}
        self.cached = {place: count for place, count in details.items() if isinstance(count, int)}
        self.finish_reason = (meta.get("finish_reason") or {}).get("type")


class Server:
    """A context manager; leaving it ends the server, and after an exception shows the end of its log.

    `log`: where all that it says goes; by default a file of its own that is removed at the end. `polite`: the server is
    asked to end, not killed, which takes 5 s: SGLang looks for signals that often.
    """

    def __init__(self, engine: Engine, log: Path | None = None, quiet: bool = True, polite: bool = False) -> None:
        self.engine, self.port, self._polite = engine, free_port(), polite
        self._scratch = tempfile.TemporaryDirectory(prefix="forebay-sglang-")
        self.log = (log or Path(self._scratch.name) / "log") if quiet else None
        self._answers: dict[str, Answer] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._asked: dict[str, Future[None]] = {}
        self._threads = ThreadPoolExecutor(32)
        started = time.monotonic()
        starter = launcher(tuple(ENVIRONMENT.items()))
        self.process: Process = starter.start(engine.words(self.port), engine.environment(), self.log, engine.preloaded)
        try:
            self._await_start()
        except BaseException:
            self.end()
            raise
        self.start_s = time.monotonic() - started

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """The end of what it has said."""
        if self.log is None or not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _await_start(self) -> None:
        limit = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.call("GET", "/model_info", limit_s=5)[0] == 200:
                    return
            if not self.process.running:
                raise NotStartedError(f"the SGLang server has ended:\n{self.log_tail()}")
            if time.monotonic() > limit:
                raise NotStartedError(f"the SGLang server did not answer within {START_S:g} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.log is not None:
            print(f"The end of the SGLang server's log:\n{self.log_tail()}", file=sys.stderr, flush=True)
        self.end(self._polite and kind is None)

    def end(self, polite: bool = False) -> bool:
        """Ends the server; whether it did so by itself, which it is given a chance to when this is `polite`."""
        by_itself = False
        if polite:
            self.process.terminate()
            by_itself = self.process.wait(END_S)
        self.process.kill()
        self._threads.shutdown()
        self._scratch.cleanup()
        return by_itself

    def _connection(self, limit_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)

    def call(self, method: str, path: str, body: Any = None, limit_s: float = ANSWER_S) -> tuple[int, bytes]:
        """One HTTP call: status and body. Errors: OSError."""
        with contextlib.closing(self._connection(limit_s)) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()

    def _events(self, name: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The objects of a streamed answer."""
        with contextlib.closing(self._connection(ANSWER_S)) as connection:
            connection.connect()
            self._sockets[name] = connection.sock
            connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"SGLang answers {response.status}: {response.read()[:500]!r}")
            for line in response:
                if line.startswith(b"data: ") and line[6:].strip() != b"[DONE]":
                    yield json.loads(line[6:])

    def _ask(self, name: str, body: Mapping[str, Any]) -> None:
        started, answer = time.monotonic(), self._answers[name]
        try:
            for event in self._events(name, body):
                if "error" in event:
                    raise RuntimeError(f"SGLang answers {event['error']}")
                answer.take(event)
                if answer.tokens and answer.ttft_s is None:
                    answer.ttft_s = time.monotonic() - started
        except (OSError, http.client.HTTPException):
            if not answer.cut:
                raise

    def submit(
        self,
        prompt: Sequence[int],
        tokens: int,
        params: Mapping[str, Any] | None = None,
        salt: str | None = None,
        extra_key: str | None = None,
    ) -> str:
        """Sends a request for `tokens` greedy tokens; its name, which is SGLang's rid. `params` are Forebay's."""
        name = f"r{next(_numbers)}"
        sampling: dict[str, Any] = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        if params is not None:
            sampling["custom_params"] = {"forebay": dict(params)}
        body: dict[str, Any] = {"rid": name, "input_ids": list(prompt), "sampling_params": sampling, "stream": True}
        for key, value in (("cache_salt", salt), ("extra_key", extra_key)):
            if value is not None:
                body[key] = value
        self._answers[name] = Answer()
        self._asked[name] = self._threads.submit(self._ask, name, body)
        return name

    def wait(self, name: str) -> Answer:
        """The whole answer of a request. Errors: what it failed with."""
        self._asked[name].result(ANSWER_S)
        return self._answers[name]

    def run(self) -> None:
        """Waits for every request. Errors: what one failed with."""
        for name in list(self._asked):
            self.wait(name)

    def ask(
        self, prompts: Sequence[Sequence[int]], tokens: int, params: Mapping[str, Any] | None = None
    ) -> list[Answer]:
        """All prompts at once; their answers."""
        names = [self.submit(prompt, tokens, params) for prompt in prompts]
        return [self.wait(name) for name in names]

    def answer(self, name: str) -> Answer:
        """A request's answer so far."""
        return self._answers[name]

    def inner_name(self, name: str) -> str:
        """SGLang's name of the request: the same."""
        return name

    def abort(self, name: str) -> None:
        """Ends a request early, by SGLang's API. Errors: RuntimeError."""
        status, body = self.call("POST", "/abort_request", {"rid": name})
        if status != 200:
            raise RuntimeError(f"SGLang answers {status} to an abort: {body[:300]!r}")

    def cut(self, name: str) -> None:
        """Closes the connection of a request."""
        self._answers[name].cut = True
        with contextlib.suppress(OSError):
            self._sockets[name].shutdown(socket.SHUT_RDWR)

    def flush(self) -> None:
        """Empties the prefix cache of the engine, as soon as nothing runs. Errors: RuntimeError."""
        self._until_200("/flush_cache", "the cache was not flushed")

    def clear_storage(self) -> None:
        """Asks SGLang to empty the storage behind the cache. Errors: RuntimeError."""
        self._until_200("/hicache/storage-backend/clear", "the storage was not cleared")

    def reset(self) -> None:
        """Empties the engine's prefix cache and with it Forebay's CPU memory, not the store. Errors: RuntimeError."""
        self.flush()

    def _until_200(self, path: str, complaint: str) -> None:
        limit = time.monotonic() + SETTLE_S
        while True:
            status, body = self.call("POST", path)
            if status == 200:
                return
            if time.monotonic() > limit:
                raise RuntimeError(f"{complaint}: {status} {body[:300]!r}")
            time.sleep(0.05)

    def info(self) -> dict[str, Any]:
        """GET /server_info: arguments as resolved, and the schedulers' state."""
        return dict(json.loads(self.call("GET", "/server_info")[1]))

    def load(self) -> dict[str, Any]:
        """GET /v1/loads of the only scheduler: num_running_reqs, num_waiting_reqs, num_used_tokens and more."""
        return dict(json.loads(self.call("GET", "/v1/loads")[1])["loads"][0])

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; the engine's description has to ask for `metrics`."""
        total = 0.0
        for line in self.call("GET", "/metrics")[1].decode().splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                total += float(line.rpartition(" ")[2])
        return total
