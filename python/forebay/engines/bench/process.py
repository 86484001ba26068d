"""The benchmark's end of an engine's process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ANSWER_LIMIT_S, END_LIMIT_S = 600.0, 15.0


class EngineError(Exception):
    """An engine could not start, or failed; the message says why in one line."""


class EngineProcess:
    """An engine in a process of its own. A context manager; leaving it ends the process.

    Args:
        log: file that gets what the engine prints.
        environment: variables to set beside this process's.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        reader, writer = os.pipe()
        self._answers = os.fdopen(reader, "rb", buffering=0)
        self._rest = b""
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "forebay.engines.bench.host", str(writer)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                pass_fds=(writer,),
                env={**os.environ, **environment},
            )
        os.close(writer)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Has the engine do something, and returns its answer.

        Raises:
            EngineError: it could not, it ended, or it does not answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise EngineError(self._end()) from None
        answer: dict[str, Any] = json.loads(self._line())
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            if not select.select([self._answers], [], [], ANSWER_LIMIT_S)[0]:
                raise EngineError(f"the engine's process did not answer in {ANSWER_LIMIT_S:g} s")
            more = self._answers.read(1 << 16)
            if not more:
                raise EngineError(self._end())
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self) -> str:
        """How it ended, with the last line that it printed."""
        code = self._process.wait(END_LIMIT_S)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"the engine's process {how}" + (f": {said[-1].strip()}" if said else "")

    def close(self) -> None:
        """Ends the process: asks first, and does not wait for one that hangs."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b'{"do": "close"}\n')
            self._process.stdin.close()
            self._process.wait(END_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._answers.close()
