"""Plays in which a store or a server is hurt: frozen, killed, or with an object that was changed behind its back."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from exact_judge import whole_tokens
from exact_plays import Asked, Play, PlayError, is_draining, plain, side_of, step_until, submit_all
from exact_rows import CORRUPTED_BLOCK, FULL, Row

if TYPE_CHECKING:
    from exact_stage import Stage

BACK_S, RECOVERED_S = 20.0, 40.0
CHANGED_BYTES = 4096  # at the begin of the object's payload
FLIP = Path(__file__).parent / "flip.py"


def _hurt_in_the_middle(stage: Stage, row: Row, prompts: list[list[int]], hurt: Callable[[], None]) -> list[Asked]:
    """All at once; while one of them drains it happens."""
    asked = submit_all(stage, row, prompts)
    step_until(stage, lambda: any(is_draining(stage, one.name) for one in asked), "a prefetch that drains")
    hurt()
    stage.engine.run()
    return asked


def _recovered(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """What was hurt is well again, and so is restoring, soon and without a restart of the engine."""
    limit = time.monotonic() + RECOVERED_S
    while True:
        stage.reset()
        asked = submit_all(stage, row, prompts, FULL)
        stage.engine.run()
        found = [stage.journal.of(stage.engine.inner_name(one.name)).matched for one in asked]
        if found == [whole_tokens(len(prompt)) for prompt in prompts] or time.monotonic() > limit:
            return asked
        time.sleep(0.1)


def _store_process(stage: Stage) -> tuple[int, str]:
    """The process of the store that holds its bytes, and the command that starts it again."""
    part = "NODE_" if stage.rig.store == "mooncake" else ""
    return int(os.environ[f"FOREBAY_WITH_STORE_{part}PID"]), os.environ[f"FOREBAY_WITH_STORE_{part}COMMAND"]


def store_frozen(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """The store's process stops answering; it goes on when the tokens are there."""
    pid, _ = _store_process(stage)
    try:
        asked = _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGCONT)
    return asked + _recovered(stage, row, prompts)


def _option(stage: Stage, name: str) -> str:
    """An option of the store's text."""
    _, _, options = stage.store_text.rpartition(f"{name}=")
    return options.partition(",")[0]


def _await_port(port: int) -> None:
    limit = time.monotonic() + BACK_S
    while time.monotonic() < limit:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise PlayError(f"the store was not back after {BACK_S:g} s")


def store_killed(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """The store's process is killed, and started again, empty, when the tokens are there."""
    pid, command = _store_process(stage)
    try:
        asked = _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGKILL))
    finally:
        stage.helpers.append(subprocess.Popen(["sh", "-c", f"exec {command}"]))
        if stage.rig.store == "redis":
            _await_port(int(_option(stage, "port")))
    return asked + _recovered(stage, row, prompts)


def server_killed(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """Forebay's server is killed while a prefetch drains, and started again when the tokens are there."""
    server = stage.server
    if server is None:
        raise PlayError("this rig has no server")
    asked = _hurt_in_the_middle(stage, row, prompts, server.kill)
    server.start()
    limit = time.monotonic() + BACK_S
    while side_of(stage)._was_lost:  # steps look for the server, and an idle engine makes none
        if time.monotonic() > limit:
            raise PlayError("the engine did not come back to the server")
        stage.in_process().ask([prompts[0][:8]], 1)
    return asked + _recovered(stage, row, prompts)


def load_fails(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """What was matched cannot be copied into the engine's blocks: it computes them. Then the copies work again."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    worker = get_kv_transfer_group()._worker  # of the only rank, which is in this process
    live = worker._live

    def broken() -> None:
        raise RuntimeError("the rank cannot copy")

    worker._live = broken
    try:
        asked = plain(stage, row, prompts)
    finally:
        worker._live = live
    if not all(stage.journal.of(stage.engine.inner_name(one.name)).failed for one in asked):
        raise PlayError("no load failed")
    return asked + _recovered(stage, row, prompts)


def _flip_in_files(directory: Path, content: bytes) -> None:
    """Changes the one place below `directory` that has this content. Errors: PlayError."""
    places = [(path, path.read_bytes().find(content)) for path in directory.rglob("*") if path.is_file()]
    found = [(path, at) for path, at in places if at >= 0]
    if len(found) != 1:
        raise PlayError(f"{len(found)} files have the block that was to be changed")
    path, at = found[0]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(byte ^ 0x40 if place % 4 == 3 else byte for place, byte in enumerate(content)))


def _content(stage: Stage, prompt: list[int]) -> tuple[str, bytes]:
    """The store's key of a block in the middle of a prompt, and the begin of what it holds."""
    cache = side_of(stage).cache
    sequence = cache.sequence(prompt)
    with cache.start(sequence) as session:
        session.wait(BACK_S)
        hold = session.take()
    content = ctypes.string_at(hold.addresses(0, CORRUPTED_BLOCK, CORRUPTED_BLOCK + 1)[0], CHANGED_BYTES)
    hold.release()
    stage.reset()
    return sequence.key(CORRUPTED_BLOCK), content


def corrupted(stage: Stage, row: Row, prompts: list[list[int]]) -> list[Asked]:
    """The store's object of one block in the middle is changed, in the exponents of some of its numbers."""
    key, content = _content(stage, prompts[0])
    if stage.rig.store == "file":
        _flip_in_files(stage.directory / "store", content)
    else:
        python = os.environ.get("MOONCAKE_PYTHON", "python3") if stage.rig.store == "mooncake" else "python3"
        where = _option(stage, "master") if stage.rig.store == "mooncake" else _option(stage, "port")
        words = [python, str(FLIP), stage.rig.store, where, key, str(CHANGED_BYTES)]
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=BACK_S)
        if done.returncode != 0:
            raise PlayError(f"the object could not be changed: {done.stderr[-1000:]}")
    return plain(stage, row, prompts)


PLAYS: dict[str, Play] = {
    "store frozen": store_frozen,
    "store killed": store_killed,
    "server killed": server_killed,
    "corrupted": corrupted,
    "load fails": load_fails,
}
