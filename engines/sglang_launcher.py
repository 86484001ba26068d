#!/usr/bin/env python3
"""Starts SGLang servers, each as a process group of its own, and hands out their process ids.

    python engines/sglang_launcher.py          reads one JSON object a line, answers each with one line {"pid": N}

    {"arguments": [...], "environment": {...}, "log": PATH or null, "preloaded": true}

A server that is "preloaded" is forked from this process, which has imported SGLang: that saves the imports of all its
processes, which otherwise are most of a start. From there on it goes the way of `python -m sglang.launch_server`, but
its own processes are forked, not spawned. Without "preloaded" it is that very command.

This process ends when its standard input does, and every server with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
COMMAND = "sglang.launch_server"
PRELOADED = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.layers.attention.torch_native_backend",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.managers.scheduler",
    "sglang.srt.mem_cache.unified_radix_cache",
    "sglang.srt.models.registry",
)


def _preload() -> None:
    """Imports SGLang as its command does, the plugin of the test rig first. Nothing here may start a thread."""
    with _shown_on_failure():
        importlib.import_module("forebay_sglang_host").register()
        for name in PRELOADED:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _shown_on_failure() -> Iterator[None]:
    """Keeps what is written to standard error, some twenty lines about devices that are not here, and drops it."""
    real = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(real, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(real, 2)
            os.close(real)


def _become(asked: Mapping[str, Any]) -> None:
    """Turns a forked child into the process that the command would be."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(asked["environment"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if asked["log"] else 2
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)


def _serve(arguments: list[str]) -> None:
    """What sglang/launch_server.py does as a command, with forked processes."""
    import multiprocessing

    import sglang.launch_server as command
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # OpenMP has read its own variable long ago
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_, **__: None
    sys.argv = [COMMAND, *arguments]
    command.load_plugins()
    try:
        command.run_server(command.prepare_server_args(arguments))
    finally:
        command.kill_process_tree(os.getpid(), include_parent=False)


def _child(asked: Mapping[str, Any]) -> None:
    _become(asked)
    if asked["preloaded"]:
        _serve(asked["arguments"])
    else:
        os.execv(sys.executable, [sys.executable, "-m", COMMAND, *asked["arguments"]])


def _fork(asked: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _child(asked)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main() -> NoReturn:
    """The command."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is gone: nobody has to wait for it here
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SGLang prints is no answer
    loaded = False
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["preloaded"] and not loaded:
            _preload()
            loaded = True
        print(json.dumps({"pid": _fork(asked)}), file=answers, flush=True)
    os._exit(0)  # what SGLang's libraries say of themselves at an orderly end is nobody's concern


if __name__ == "__main__":
    main()
