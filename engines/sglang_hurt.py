"""Plays in which a store or a server is hurt: frozen, killed, or with an object that was changed behind its back."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exact_judge import whole_tokens
from exact_rows import Expect
from sglang_judge import restored_tokens
from sglang_plays import Asked, Judge, Play, is_draining, plain, submit_all
from sglang_rows import CORRUPTED_PAGE, FULL, PAGE, Row
from sglang_stage import PlayError, until

if TYPE_CHECKING:
    from sglang_stage import Stage

BACK_S, RECOVERED_S = 20.0, 40.0
CHANGED_BYTES = 4096  # at the begin of the object's payload
FLIP = Path(__file__).parent / "flip.py"
TRAILER, TRAILER_BYTES = b"FBY1", 64  # docs/object-format.md


def _hurt_in_the_middle(stage: Stage, row: Row, prompts: list[list[int]], hurt: Callable[[], None]) -> list[str]:
    """All at once; while one of them drains it happens. HiCache's reads are too short for that: before. Their names."""
    if stage.rig.surface == "hicache":
        hurt()
    names = submit_all(stage, row, prompts)
    if stage.rig.surface != "hicache":
        until(lambda: is_draining(stage), "a prefetch that drains")
        hurt()
    for name in names:
        stage.server.wait(name)
    return names


def _recover(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """What was hurt is well again, and so is restoring, soon and without a restart of the engine."""
    limit = time.monotonic() + RECOVERED_S
    wanted = [whole_tokens(len(prompt), PAGE) for prompt in prompts]
    while True:
        stage.forget(row.forget if row.forget != "restart" else "flush")
        stage.account.mark()
        names = submit_all(stage, row, prompts)
        found = [restored_tokens(stage.server.wait(name)) for name in names]
        if found == wanted or time.monotonic() > limit:
            break
        time.sleep(0.1)
    for number, name in enumerate(names):
        judge(Asked(number, name, FULL if stage.rig.surface != "hicache" else Expect("full")))


def _judge_all(names: list[str], expect: Expect, judge: Judge) -> None:
    for number, name in enumerate(names):
        judge(Asked(number, name, expect))


def _name_of(stage: Stage) -> str:
    """Begin of the names of the variables about the process that holds the store's bytes."""
    return "FOREBAY_WITH_STORE_NODE_" if stage.rig.store == "mooncake" else "FOREBAY_WITH_STORE_"


def _store_pid(stage: Stage) -> int:
    return int(os.environ[f"{_name_of(stage)}PID"])


def _start_store(stage: Stage) -> None:
    """Starts a store that was killed; it stays for the rigs to come."""
    process = subprocess.Popen(["sh", "-c", f"exec {os.environ[f'{_name_of(stage)}COMMAND']}"])
    atexit.register(process.kill)
    os.environ[f"{_name_of(stage)}PID"] = str(process.pid)
    if stage.rig.store == "redis":
        _await_port(int(_option(stage, "port")))


def store_frozen(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """The store's process stops answering; it goes on when the tokens are there."""
    pid = _store_pid(stage)
    stage.account.mark()
    try:
        names = _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGCONT)
    _judge_all(names, row.expect, judge)
    _recover(stage, row, prompts, judge)


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


def store_killed(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """The store's process is killed, and started again, empty, when the tokens are there."""
    pid = _store_pid(stage)
    stage.account.mark()
    try:
        names = _hurt_in_the_middle(stage, row, prompts, lambda: os.kill(pid, signal.SIGKILL))
    finally:
        _start_store(stage)
    stage.lose()
    _judge_all(names, row.expect, judge)
    _recover(stage, row, prompts, judge)


def server_killed(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """Forebay's server is killed while a prefetch drains, and started again when the tokens are there."""
    forebay = stage.forebay
    if forebay is None:
        raise PlayError("this rig has no server")
    names = _hurt_in_the_middle(stage, row, prompts, forebay.kill)
    forebay.start()
    _judge_all(names, row.expect, judge)
    _recover(stage, row, prompts, judge)


# ---- Changed objects -------------------------------------------------------------------------------------------------


def _objects(content: bytes) -> Iterator[tuple[str, int]]:
    """Keys and places of the payloads in a segment of the file store."""
    at = content.find(TRAILER)
    while at >= 0:
        (length,) = struct.unpack_from("<I", content, at + 8)
        if len(content) >= at + TRAILER_BYTES and 0 < length <= at:
            yield content[at + 16 : at + 32].hex(), at - length
        at = content.find(TRAILER, at + TRAILER_BYTES)


def _flip_in_files(directory: Path, key: str | None) -> int:
    """Changes objects of a file store, one or all: in floats a bit of the exponent. How many."""
    changed = 0
    for path in directory.rglob("segment-*.fby"):
        content = path.read_bytes()
        with path.open("r+b") as file:
            for name, at in _objects(content):
                if key is None or key.startswith(name):
                    file.seek(at)
                    piece = content[at : at + CHANGED_BYTES]
                    file.write(bytes(byte ^ 0x40 if place % 4 == 3 else byte for place, byte in enumerate(piece)))
                    changed += 1
    return changed


def _key_of(stage: Stage, prompt: list[int]) -> str:
    """The store's key of a page in the middle of a prompt."""
    import forebay

    model: Any = stage.section
    config = {"model": model, "store.driver": "mem", "pool.bytes": "16MiB", "log.level": "off"}
    with forebay.Cache(config) as cache:
        return str(cache.sequence(prompt).key(CORRUPTED_PAGE))


def _changed(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge, key: str | None) -> None:
    """The store is changed between two lives of the engine, which keeps nothing of it in memory."""
    stage.settle()
    stage.server.end()
    if stage.rig.store == "file":
        if _flip_in_files(stage.directory / "store", key) == 0:
            raise PlayError("no object was changed")
    else:
        assert key is not None
        python = os.environ["MOONCAKE_PYTHON"] if stage.rig.store == "mooncake" else sys.executable
        where = _option(stage, "master" if stage.rig.store == "mooncake" else "port")
        words = [python, str(FLIP), stage.rig.store, where, key, str(CHANGED_BYTES)]
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=BACK_S)
        if done.returncode != 0:
            raise PlayError(f"the object could not be changed: {done.stderr[-1000:]}")
    stage.lose()
    stage.start()
    plain(stage, row, prompts, judge)


def corrupted(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """The store's object of one page in the middle is changed."""
    _changed(stage, row, prompts, judge, _key_of(stage, prompts[0]))


def all_corrupted(stage: Stage, row: Row, prompts: list[list[int]], judge: Judge) -> None:
    """All objects of a file store are changed, for a surface whose keys are the engine's own."""
    _changed(stage, row, prompts, judge, None)


PLAYS: dict[str, Play] = {
    "store frozen": store_frozen,
    "store killed": store_killed,
    "server killed": server_killed,
    "corrupted": corrupted,
    "all corrupted": all_corrupted,
}
