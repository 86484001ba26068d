"""A rig on its feet: engine, store, journal, and Forebay's server where it has one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import exact_hurt
import exact_plays
import models
import rig as engines
import tiny_sound
from api_server import ApiServer
from exact_judge import Journal, Verdict, judge
from exact_rows import Rig, Row
from forebay_server import ForebayServer
from prompts import digest, make

POOL = {"tiny": "192MiB", "real": "1GiB"}
PLAYS = exact_plays.PLAYS | exact_hurt.PLAYS
SOUND_PLACE = 40  # in the second block, so that the first one knows nothing of it
Truth = dict[str, list[int]]
"""The right tokens, by the key of the question, as many as any row asks for."""


def prompts_of(rig: Rig, row: Row) -> list[list[int]]:
    """A row's prompts."""
    prompts = make(models.make(rig.model), f"{rig.name}/{row.name}", row.lengths, row.shared)
    if any(kind.startswith("sound:") for kind in row.kinds):
        return [tiny_sound.with_sound(prompt, SOUND_PLACE) for prompt in prompts]
    return prompts


def truth_key(prompt: Sequence[int], kind: str) -> str:
    """The key of a question. A salt changes no token."""
    return digest(prompt) + ("" if kind.startswith("salt:") else kind)


def store_text(rig: Rig, directory: Path) -> str:
    """The rig's store as --store takes it, behind its script if it has one."""
    if rig.store == "mem":
        text = "mem"
    elif rig.store == "file":
        text = f"file:dir={directory / 'store'}"
    else:
        text = os.environ[f"FOREBAY_WITH_STORE_{rig.store.upper()}"]
    return f"fault:{text},script={rig.script}" if rig.script else text


@dataclass
class Stage:
    """What a play acts on."""

    rig: Rig
    engine: engines.InProcess | ApiServer
    journal: Journal
    store_text: str
    directory: Path
    server: ForebayServer | None = None
    helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def in_process(self) -> engines.InProcess:
        """The engine, where a play steps it by hand."""
        if not isinstance(self.engine, engines.InProcess):
            raise exact_plays.PlayError("this play needs an engine in process")
        return self.engine

    def reset(self) -> None:
        """Everything is forgotten but what the store has."""
        self.engine.reset()

    def cold(self, row: Row, truth: Truth) -> None:
        """Computes and stores a row's prompts, each under the first kind. Errors: PlayError."""
        for prompt in prompts_of(self.rig, row):
            keys = {truth_key(prompt, kind) for kind in row.kinds}
            if len({tuple(truth[key]) for key in keys}) < len(keys):
                raise exact_plays.PlayError("what the prompt is asked with changes no token, so nothing would be seen")
            name = self.engine.submit(prompt, row.tokens, {}, kind=row.kinds[0])
            self.engine.run()
            if self.engine.answer(name).tokens != truth[truth_key(prompt, row.kinds[0])][: row.tokens]:
                raise exact_plays.PlayError(
                    f"the cold run of {len(prompt)} tokens differs from an engine without Forebay"
                )

    def restored(self, row: Row, truth: Truth) -> list[Verdict]:
        """Plays the row and judges each prompt."""
        prompts = prompts_of(self.rig, row)
        verdicts = []
        for asked in PLAYS[row.play](self, row, prompts):
            prompt = prompts[asked.number]
            right = truth[truth_key(prompt, asked.kind)][: row.tokens]
            found = self.journal.of(self.engine.inner_name(asked.name))
            tokens = self.engine.answer(asked.name).tokens
            verdicts.append(judge(len(prompt), tokens, right, found, asked.expect))
        return verdicts

    def threads_problem(self) -> str:
        """Forebay's control thread is there exactly when chunks are."""
        if self.rig.threads is None:
            return ""
        names = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
        there = "fby-control" in names
        return "" if there == self.rig.threads else f"the control thread is {'there' if there else 'missing'}"


def _server(rig: Rig, text: str, directory: Path, model: Mapping[str, Any]) -> ForebayServer:
    """A server with the rig's settings: its own configuration is what counts for sessions."""
    settings = dict(rig.settings)
    keys = {f"prefetch.{name}": value for name, value in settings.items() if name != "config"}
    config = {**keys, "prefetch.enabled": settings.get("policy", "wait_complete") != "wait_complete"}
    return ForebayServer(directory, text, model, {**config, **settings.get("config", {})})


def _settings(rig: Rig, text: str, directory: Path, server: ForebayServer | None) -> dict[str, Any]:
    config = dict(rig.settings.get("config", {}))
    place: dict[str, Any] = {"journal": str(directory / "journal")}
    if server is not None:
        return {**place, "server": str(server.socket)}
    pool = POOL["tiny" if rig.model.startswith("tiny-") else "real"]
    config.setdefault("log.level", "warn")
    return {**rig.settings, **place, "config": config, "store": text, "pool_bytes": pool}


@contextlib.contextmanager
def _link(mbit: int) -> Iterator[None]:
    """The loopback carries no more than that; only inside the network namespace of with-store."""
    loopback = ["dev", "lo", "root"]
    subprocess.run(
        ["tc", "qdisc", "add", *loopback, "tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "500ms"],
        check=True,
    )
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *loopback], check=True)


@contextlib.contextmanager
def stage(rig: Rig, directory: Path, model: Mapping[str, Any] | None = None) -> Iterator[Stage]:
    """Starts everything, and ends it. `model`: the section of Forebay's server, for a rig that has one."""
    text = store_text(rig, directory)
    with contextlib.ExitStack() as stack:
        if rig.link_mbit is not None:
            stack.enter_context(_link(rig.link_mbit))
        server = None if model is None else stack.enter_context(_server(rig, text, directory, model))
        described = engines.Engine(models.make(rig.model), _settings(rig, text, directory, server), **dict(rig.engine))
        engine: engines.InProcess | ApiServer
        engine = ApiServer(described) if rig.host == "api" else engines.InProcess(described)
        stack.enter_context(engine)
        found = Stage(rig, engine, Journal(directory / "journal"), text, directory, server)
        try:
            yield found
        finally:
            for helper in found.helpers:
                helper.kill()
                helper.wait()
