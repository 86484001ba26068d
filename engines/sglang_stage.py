"""A rig on its feet: SGLang's server with Forebay in it, its store, Forebay's journal and counters."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import models
from api_server import NotStartedError, free_port
from exact_judge import Restored, Verdict
from forebay_server import ANY_MODEL, ForebayServer, section_in
from prompts import digest, make
from sglang_judge import judge, restored_tokens
from sglang_rows import PAGE, Rig, Row
from sglang_server import Server
from sglang_surfaces import account_of, engine_of, settings_of

if TYPE_CHECKING:
    from sglang_plays import Asked

POOL = {"tiny": "192MiB", "real": "1GiB"}
SETTLED_S, JOURNAL_S = 30.0, 5.0
HELD = (
    r'sessions\{state="running"\}',
    "leases",
    "holds",
    "puts",
    "graphs_inflight",
    "store_calls_inflight",
    "queue_depth.*",
)
SALT, EXTRA = "salt:", "extra:"
Truth = dict[str, list[int]]
"""The right tokens, by a digest of the prompt, as many as any row asks for."""


class PlayError(Exception):
    """Something did not happen as it should."""


def prompts_of(rig: Rig, row: Row) -> list[list[int]]:
    """A row's prompts. Those of one length are the same in every rig, so that the truth is asked for once."""
    model = models.make(rig.model)
    if row.shared:
        return make(model, f"shared {row.shared} {row.lengths}", row.lengths, row.shared)
    return [make(model, f"{length} tokens", (length,))[0] for length in row.lengths]


def store_text(rig: Rig, directory: Path) -> str:
    """The rig's store as --store takes it, behind its script if it has one."""
    where = f"file:dir={directory / 'store'}" if rig.store == "file" else None
    text = where or os.environ[f"FOREBAY_WITH_STORE_{rig.store.upper()}"]
    return f"fault:{text},script={rig.script}" if rig.script else text


def _pool(rig: Rig) -> str:
    return POOL["tiny" if rig.model.startswith("tiny-") else "real"]


def section_of(rig: Rig, directory: Path) -> dict[str, Any]:
    """The model's section that Forebay's server needs, from the refusal of another one. Errors: PlayError."""
    with ForebayServer(directory, "mem", ANY_MODEL, {}) as server:
        settings = settings_of(rig, "", directory, 0, "", server.socket)
        try:
            with Server(engine_of(rig, models.make(rig.model), settings)):
                raise PlayError("a server with another model was accepted")
        except NotStartedError as refusal:
            return section_in(str(refusal))


class Counters:
    """Forebay's counters, from its metrics page."""

    def __init__(self, port: int) -> None:
        self._port = port

    def read(self) -> dict[str, float]:
        """Values by name, labels in braces as on the page; {} while nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return {}
        finally:
            connection.close()
        rows = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in rows}

    def sum(self, pattern: str) -> float:
        """Of all values whose name matches a regular expression."""
        return sum(value for name, value in self.read().items() if re.fullmatch(pattern, name))

    def busy(self) -> dict[str, float]:
        """What is held, read or written now; {} when nothing is."""
        kept = rf"forebay_({'|'.join(HELD)})"
        found = self.read()
        if not found:
            return {"no answer": 1.0}
        return {name: value for name, value in found.items() if value and re.fullmatch(kept, name)}


def until(holds: Callable[[], bool], what: str, limit_s: float = SETTLED_S) -> None:
    """Waits for something. Errors: PlayError."""
    limit = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > limit:
            raise PlayError(f"it never came to this: {what}")
        time.sleep(0.01)


class Stage:
    """What a play acts on. A context manager."""

    def __init__(self, rig: Rig, directory: Path, section: Mapping[str, Any] | None) -> None:
        self.rig, self.directory = rig, directory
        self.model = models.make(rig.model)
        self.store_text = store_text(rig, directory)
        self.section = section
        self.account = account_of(rig, directory, lambda: self.counters.sum("forebay_tokens_consumed_total"))
        self.forebay: ForebayServer | None = None
        self._stack = contextlib.ExitStack()
        self._server: Server | None = None
        self._stored: set[str] = set()
        self.counters = Counters(free_port())

    # ---- Processes ----

    def __enter__(self) -> Stage:
        try:
            if self.rig.link_mbit is not None:
                self._stack.enter_context(_link(self.rig.link_mbit))
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._server is not None:
            self._server.end()
        if self.forebay is not None:
            self.forebay.kill()
        self._stack.close()

    def start(self) -> None:
        """Starts what the rig consists of."""
        self.counters = Counters(port := free_port())
        if self.rig.host == "server":
            self.forebay = self._forebay_server(port)
            self.forebay.start()
        socket = self.forebay.socket if self.forebay is not None else None
        settings = settings_of(self.rig, self.store_text, self.directory, port, _pool(self.rig), socket)
        self._server = Server(engine_of(self.rig, self.model, settings))

    def _forebay_server(self, port: int) -> ForebayServer:
        """With the rig's settings: its own configuration is what counts for sessions."""
        settings = dict(self.rig.settings)
        keys = {f"prefetch.{name}": value for name, value in settings.items() if name != "config"}
        config = {**keys, "prefetch.enabled": True, "metrics.listen": f"127.0.0.1:{port}"}
        assert self.section is not None
        return ForebayServer(self.directory, self.store_text, self.section, {**config, **settings.get("config", {})})

    @property
    def server(self) -> Server:
        """SGLang's."""
        assert self._server is not None
        return self._server

    def restart(self) -> None:
        """Everything but the store starts again. Errors: PlayError."""
        self.settle()
        self.server.end()
        if self.forebay is not None:
            self.forebay.end(signal.SIGTERM)
        self.start()

    # ---- Forgetting ----

    def settle(self) -> None:
        """Waits until Forebay holds, reads and writes nothing. Errors: PlayError."""
        limit = time.monotonic() + SETTLED_S
        while busy := self.counters.busy():
            if time.monotonic() > limit:
                raise PlayError(f"after {SETTLED_S:g} s Forebay still has {busy}")
            time.sleep(0.01)

    def forget(self, how: str) -> None:
        """The prompts are lost to the engine, as a row says. Errors: PlayError, RuntimeError."""
        if how == "restart":
            self.restart()
        elif how == "evict":
            self.evict()
        else:
            self.settle()
            self.server.flush()

    def evict(self) -> None:
        """Others' pages push out those of the prompts."""
        room = self.server.engine.max_total_tokens
        for number in range(3):
            prompt = make(self.model, f"filler {number}", (room // 2,))[0]
            self.server.ask([prompt], 4, {"load": False, "save": False})
        self.settle()

    # ---- Asking ----

    def submit(self, row: Row, prompt: Sequence[int], key: str = "") -> str:
        """Asks for a prompt under one of the row's keys; the request's name."""
        salt = key.removeprefix(SALT) if key.startswith(SALT) else None
        extra = key.removeprefix(EXTRA) if key.startswith(EXTRA) else None
        return self.server.submit(prompt, row.tokens, row.params or None, salt, extra)

    def cold(self, row: Row, truth: Truth) -> None:
        """Computes and stores those prompts of a row that this rig has not stored yet. Errors: PlayError."""
        for prompt in prompts_of(self.rig, row):
            if digest(prompt) in self._stored or row.play == "cold":
                continue
            answer = self.server.wait(self.submit(replace(row, params={}), prompt, row.keys[0]))
            if answer.tokens != truth[digest(prompt)][: row.tokens]:
                raise PlayError(f"the cold run of {len(prompt)} tokens differs from a server without Forebay")
            self.keep(prompt)
        self.settle()

    def keep(self, prompt: Sequence[int]) -> None:
        """The store has it by now."""
        self._stored.add(digest(prompt))

    def lose(self) -> None:
        """The store has nothing any more."""
        self._stored.clear()

    # ---- Judging ----

    def said(self, name: str, is_sure: bool = True) -> Restored:
        """Forebay's account of a request that has ended; one that is sure to come may be a moment behind the answer."""
        limit = time.monotonic() + JOURNAL_S
        while (found := self.account.of(name)) is None:
            if not is_sure or time.monotonic() > limit:
                return Restored()
            time.sleep(0.01)
        return found

    def judge(self, prompt: Sequence[int], asked: Asked, truth: Truth, tokens: int) -> Verdict:
        """One answer: its tokens, what SGLang says was restored, and whether Forebay says the same."""
        answer, knows = self.server.answer(asked.name), self.rig.surface != "hicache"
        restored = restored_tokens(answer)
        said = Restored(matched=answer.cached.get("storage", 0), reason="")
        if knows or asked.alone:
            said = self.said(asked.name, restored > 0 or (len(prompt) > PAGE and bool(asked.expect.reasons)))
        right = truth[digest(prompt)][:tokens]
        return judge(len(prompt), answer, right, said, asked.expect, knows_requests=knows)

    def threads_problem(self) -> str:
        """Forebay's control thread is there exactly when chunks are."""
        if self.rig.threads is None:
            return ""
        there = "fby-control" in _threads(self.server.process.pid)
        return "" if there == self.rig.threads else f"the control thread is {'there' if there else 'missing'}"


def _threads(group: int) -> set[str]:
    """Names of all threads of a process group."""
    names = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(entry.name)) == group:
                names |= {path.read_text().strip() for path in (entry / "task").glob("*/comm")}
    return names


@contextlib.contextmanager
def _link(mbit: int) -> Iterator[None]:
    """The loopback carries no more than that; only inside the network namespace of with-store."""
    loopback = ["dev", "lo", "root"]
    shape = ["tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "500ms"]
    subprocess.run(["tc", "qdisc", "add", *loopback, *shape], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *loopback], check=True)
