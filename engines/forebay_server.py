"""Forebay's server as a process of its own: it has the cache, the engine's connector is its client."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

START_S, END_S = 30.0, 15.0
POOL = "192MiB"
MAIN = "from forebay._command import main; main()"
ANY_MODEL = {
    "id": "any", "revision": "1", "kv_dtype": "f32", "block_tokens": 32, "layer_set": "all", "layout": "any",
    "weights_epoch": 0, "tp_size": 1, "cp_size": 1, "pp_size": 1,
    "groups": [{"name": "kv", "payload_bytes": 4096, "rule": "all"}],
}  # fmt: skip


def section_in(refusal: str) -> dict[str, Any]:
    """The model's section that the connector asks for when a server has another model. Errors: ValueError."""
    found = re.search(r"model: (\{.*\})", refusal)
    if found is None:
        raise ValueError(f"the connector does not say which model it needs: {refusal}")
    section: dict[str, Any] = json.loads(found[1])
    return section


class ForebayServer:
    """`forebay serve`. A context manager; leaving it ends the server.

    Args:
        directory: of its socket and configuration.
        store: as --store takes it.
        model: the section `model`, which has to be the engine's.
        settings: keys of the configuration, dotted.
    """

    def __init__(self, directory: Path, store: str, model: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        from forebay.engines.common.stores import parse_store

        named = parse_store(store)
        config: dict[str, Any] = {"log.level": "warn", "pool.bytes": POOL, **settings}
        config["store.driver"] = named.driver
        config["store"] = {"options": named.options}
        self.socket, self._file = directory / "socket", directory / "server.json"
        self._file.write_text(json.dumps({"model": dict(model), "server": {"listen": str(self.socket)}, **config}))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ForebayServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGTERM)

    def start(self) -> None:
        """Starts it and waits until clients can connect. Errors: RuntimeError."""
        from api_server import die_with_parent

        reader, writer = os.pipe()
        command = [sys.executable, "-c", MAIN, "serve", str(self._file), "--ready-fd", str(writer)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(writer,), preexec_fn=die_with_parent
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as ready:
            if not select.select([ready], [], [], START_S)[0] or not ready.readline():
                self.end(signal.SIGKILL)
                raise RuntimeError("forebay serve is not ready")

    def kill(self) -> None:
        """Ends it without warning."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        """Ends it, if it is there."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
