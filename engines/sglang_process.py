"""Server processes of the SGLang rig: started by a launcher (engines/sglang_launcher.py), ended by id."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GONE_S = 10.0  # a killed process may still give memory back


class LaunchError(Exception):
    """The launcher has ended."""


class Process:
    """A server: its main process and all that it has started, which are one process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None  # it has ended already

    def wait(self, limit_s: float) -> bool:
        """Whether the main process has ended within `limit_s` seconds."""
        return self._handle is None or bool(select.select([self._handle], [], [], limit_s)[0])

    @property
    def running(self) -> bool:
        """Whether the main process is there."""
        return not self.wait(0)

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def terminate(self) -> None:
        """Asks the main process to end."""
        if self.running and self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def kill(self) -> None:
        """Ends all of it; none is there afterwards. Errors: TimeoutError."""
        limit = time.monotonic() + GONE_S
        while self._signal_group(signal.SIGKILL):
            if time.monotonic() > limit:
                raise TimeoutError(f"process group {self.pid} is still there {GONE_S:g} s after it was killed")
            time.sleep(0.005)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class Launcher:
    """The launcher process. It ends with this object or this process, and every server with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sglang_launcher.py"))],
            env={**environment, **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path | None, preloaded: bool
    ) -> Process:
        """Starts `sglang.launch_server` with these arguments. Errors: LaunchError."""
        asked: dict[str, Any] = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": None if log is None else str(log),
            "preloaded": preloaded,
        }
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(asked), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        if not answer:
            raise LaunchError(f"the launcher has ended with {self._process.wait()}; its reason is on stderr")
        return Process(json.loads(answer)["pid"])

    def end(self) -> None:
        """Ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


@functools.cache
def launcher(environment: tuple[tuple[str, str], ...]) -> Launcher:
    """The launcher of this process with these variables below its own; servers share its imports."""
    return Launcher(dict(environment))
