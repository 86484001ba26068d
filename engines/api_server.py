"""vLLM's API server as a process of its own, asked over HTTP on loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

import rig

START_S, ANSWER_S, END_S = 600.0, 180.0, 30.0


class NotStartedError(Exception):
    """The server ended or did not answer in time; the text has the end of its log."""


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> None:
    """This process is killed when the thread that made it ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class ApiServer:
    """A context manager; leaving it ends the server. `python`: the interpreter that has vLLM."""

    def __init__(self, engine: rig.Engine, python: str = sys.executable, quiet: bool = True) -> None:
        self.engine, self.port = engine, free_port()
        self._log = TemporaryFile()  # noqa: SIM115 (closed with this object)
        self._answers: dict[str, rig.Answer] = {}
        self._inner: dict[str, str] = {}
        self._asked: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(8)
        environment = {
            **rig.ENVIRONMENT,
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            **os.environ,
            **engine.environment(),
        }
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        self._process = subprocess.Popen(
            [python, "-m", "vllm.entrypoints.openai.api_server", *self._arguments()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log if quiet else None,
            stderr=self._log if quiet else None,
            preexec_fn=die_with_parent,
        )
        try:
            self._await_start()
        except BaseException:
            self.end()
            raise

    def _arguments(self) -> list[str]:
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--disable-uvicorn-access-log"]
        for name, value in self.engine.arguments().items():
            option = "--" + name.replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not False and value is not None:
                words += [option, str(value)]
        if not (Path(self.engine.model) / "tokenizer.json").exists():
            return [*words, *self._transfer()]
        return [*(word for word in words if word != "--skip-tokenizer-init"), *self._transfer()]

    def _transfer(self) -> list[str]:
        transfer = self.engine.transfer_config()
        return [] if transfer is None else ["--kv-transfer-config", json.dumps(transfer)]

    def log_tail(self, lines: int = 25) -> str:
        """The end of what it has written."""
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-lines:])

    def _await_start(self) -> None:
        limit = time.monotonic() + START_S
        while True:
            if self._process.poll() is not None:
                raise NotStartedError(f"the API server ended with {self._process.returncode}:\n{self.log_tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.call("GET", "/health", limit_s=5)[0] == 200:
                    return
            if time.monotonic() > limit:
                raise NotStartedError(f"the API server did not answer within {START_S:g} s:\n{self.log_tail()}")
            time.sleep(0.2)

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends the server: politely, then not."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._threads.shutdown(wait=False)

    def call(self, method: str, path: str, body: Any = None, limit_s: float = ANSWER_S) -> tuple[int, bytes]:
        """One HTTP call: status and body. Errors: OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _events(self, body: Mapping[str, Any]) -> Any:
        """The objects of a streamed answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"the API server answers {response.status}: {response.read()[:500]!r}")
            for line in response:
                if line.startswith(b"data: ") and line[6:].strip() != b"[DONE]":
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def _ask(self, name: str, body: Mapping[str, Any]) -> None:
        started, answer = time.monotonic(), self._answers[name]
        for event in self._events(body):
            self._inner[name] = event["id"]
            if "error" in event:
                raise RuntimeError(f"the API server answers {event}")
            for choice in event["choices"]:
                if answer.ttft_s is None:
                    answer.ttft_s = time.monotonic() - started
                answer.tokens += choice.get("token_ids") or []
                answer.text += choice.get("text") or ""
                answer.finish_reason = choice.get("finish_reason") or answer.finish_reason

    def submit(
        self, prompt: Sequence[int], tokens: int, params: Mapping[str, Any] | None = None, kind: str = ""
    ) -> str:
        """Sends a request for `tokens` greedy tokens; its name. `kind`: "salt:NAME" or ""."""
        name = f"r{len(self._answers) + 1}"
        body: dict[str, Any] = {"model": str(self.engine.model), "prompt": list(prompt), "max_tokens": tokens}
        body.update(temperature=0, ignore_eos=True, return_token_ids=True, stream=True)
        if "--skip-tokenizer-init" in self._arguments():
            body["detokenize"] = False
        if params:
            body["kv_transfer_params"] = dict(params)
        if kind:
            body["cache_salt"] = kind.removeprefix("salt:")
        self._answers[name] = rig.Answer()
        self._asked.append(self._threads.submit(self._ask, name, body))
        return name

    def run(self) -> None:
        """Waits for every request. Errors: what a request failed with."""
        asked, self._asked = self._asked, []
        for one in asked:
            one.result(ANSWER_S)

    def answer(self, name: str) -> rig.Answer:
        """A request's answer."""
        return self._answers[name]

    def inner_name(self, name: str) -> str:
        """What the engine's name of the request begins with."""
        return self._inner[name]

    def reset(self) -> None:
        """Empties the engine's prefix cache and Forebay's CPU memory. Errors: RuntimeError."""
        limit = time.monotonic() + END_S
        while True:
            status, body = self.call("POST", "/reset_prefix_cache?reset_external=true")
            if status == 200:
                return
            if time.monotonic() > limit:
                raise RuntimeError(f"the API server's caches could not be reset: {status} {body[:300]!r}")
            time.sleep(0.2)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        total = 0.0
        for line in self.call("GET", "/metrics")[1].decode().splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                total += float(line.rpartition(" ")[2])
        return total
