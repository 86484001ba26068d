"""Runs rigs, each in a forked process of its own: vLLM is imported once, an engine that dies takes nobody along."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import models
from api_server import die_with_parent
from exact_judge import Verdict
from exact_report import Result
from exact_rows import Rig, Row
from exact_stage import Truth, prompts_of, stage, truth_key

RIG_LIMIT_S = {"process": 240.0, "server": 240.0, "api": 900.0}
REAL_FACTOR = 5.0

Send = Callable[[dict[str, Any]], None]


def _forked(work: Callable[[Send], None], limit_s: float, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """What `work` sends from a process of its own; {"error": text} when it fails, dies or takes too long."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.setpgid(0, 0)
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            code = _child(work, lambda row: print(json.dumps(row), file=pipe, flush=True), quiet)
        os._exit(code)
    os.close(writer)
    yield from _read(reader, pid, time.monotonic() + limit_s)


def _child(work: Callable[[Send], None], send: Send, quiet: bool) -> int:
    try:
        work(send)
    except BaseException as problem:
        if not quiet:
            traceback.print_exc()
        send({"error": f"{type(problem).__name__}: {str(problem)[:2000]}"})
        return 1
    return 0


def _read(reader: int, pid: int, limit: float) -> Iterator[dict[str, Any]]:
    """Lines from the pipe until it ends; then the process is gone, with all of its group."""
    import select

    rest, failed = b"", False
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], max(limit - time.monotonic(), 0))
            if not ready:
                yield {"error": "took too long"}
                return
            piece = os.read(reader, 65536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                row: dict[str, Any] = json.loads(line)
                failed = failed or "error" in row
                yield row
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        pid = 0
        if status != 0 and not failed:
            yield {"error": f"the process ended with {status}"}
    finally:
        os.close(reader)
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def truth_of(model: str, wanted: Sequence[tuple[Rig, Row]]) -> Truth:
    """The right tokens of all prompts of a model, from an engine without Forebay. Errors: RuntimeError."""
    import rig as engines
    import text

    text.story()  # read here, so that all forked engines are asked the same, whoever edits a page meanwhile
    longest = max(engines.Engine(Path(), **dict(rig.engine)).max_model_len for rig, _ in wanted)
    real = not model.startswith("tiny-")

    def work(send: Send) -> None:
        described = engines.Engine(
            models.make(model),
            max_model_len=longest,
            kv_bytes=1 << 30 if real else 128 << 20,
            threads=None if real else 1,
            adapters=any(rig.engine.get("adapters") for rig, _ in wanted),
            hears=any(rig.engine.get("hears") for rig, _ in wanted),
        )
        with engines.InProcess(described) as engine:
            for rig, row in wanted:
                for prompt, kind in itertools.product(prompts_of(rig, row), row.kinds):
                    name = engine.submit(prompt, row.tokens, kind=kind)
                    engine.run()
                    send({"key": truth_key(prompt, kind), "tokens": engine.answer(name).tokens})

    truth: Truth = {}
    for line in _forked(work, RIG_LIMIT_S["process"] * (REAL_FACTOR if real else 1)):
        if "error" in line:
            raise RuntimeError(f"{model} without Forebay: {line['error']}")
        truth[line["key"]] = line["tokens"]
    return truth


def _cold(rig: Rig, rows: Sequence[Row], directory: Path, truth: Truth) -> Callable[[Send], None]:
    def work(send: Send) -> None:
        with stage(rig, directory) as scene:
            for row in rows:
                scene.cold(row, truth)
            scene.reset()
        send({"cold": len(rows)})

    return work


@functools.cache
def _one_rank_section(model: str, limit: float) -> dict[str, Any]:
    """What a server needs for a model on one rank. Errors: RuntimeError."""

    def work(send: Send) -> None:
        import rig as engines
        from forebay.engines.vllm.section import section_of
        from vllm.engine.arg_utils import EngineArgs

        described = engines.Engine(models.make(model))
        os.environ.update(described.environment())
        send({"section": section_of(EngineArgs(**described.arguments()))})

    for line in _forked(work, limit):
        if "section" in line:
            section: dict[str, Any] = line["section"]
            return section
        raise RuntimeError(f"the section of {model}: {line['error']}")
    raise RuntimeError(f"the section of {model} did not come")


def _section(rig: Rig, limit: float) -> dict[str, Any] | None:
    """The model's section for Forebay's server. Errors: RuntimeError.

    A slot has the heads of all ranks: for these models nothing else depends on how many share them. The connector
    refuses the server if that is not so.
    """
    if rig.host != "server":
        return None
    return {**_one_rank_section(rig.model, limit), "tp_size": rig.engine.get("tensor_parallel", 1)}


def _restored(
    rig: Rig, rows: Sequence[Row], directory: Path, truth: Truth, model: dict[str, Any] | None
) -> Callable[[Send], None]:
    def work(send: Send) -> None:
        with stage(rig, directory, model) as scene:
            for number, row in enumerate(rows):
                if not rig.restart:
                    scene.cold(row, truth)
                    scene.reset()
                verdicts = [verdict.as_json() for verdict in scene.restored(row, truth)]
                send({"row": number, "verdicts": verdicts, "problem": scene.threads_problem()})

    return work


def run_rig(rig: Rig, rows: Sequence[Row], truth: Truth) -> list[Result]:
    """All rows of a rig. What breaks is told of the row at which it broke; those behind it did not run."""
    results = [Result(rig, row) for row in rows]
    limit = RIG_LIMIT_S[rig.host] * (1 if rig.model.startswith("tiny-") else REAL_FACTOR)
    directory = Path(tempfile.mkdtemp(prefix="forebay-exact-"))
    try:
        error = ""
        if rig.restart:
            error = next(
                (line["error"] for line in _forked(_cold(rig, rows, directory, truth), limit) if "error" in line), ""
            )
        model = None
        if not error:
            try:
                model = _section(rig, limit)
            except RuntimeError as problem:
                error = str(problem)
        if not error:
            for line in _forked(_restored(rig, rows, directory, truth, model), limit):
                if "error" in line:
                    error = line["error"]
                    break
                result = results[line["row"]]
                result.verdicts = [Verdict.from_json(verdict) for verdict in line["verdicts"]]
                result.error = line["problem"]
        for result in results:
            if not result.verdicts and not result.error:
                result.error = error or "did not run"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return results
