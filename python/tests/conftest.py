"""What the stories share: a small model, caches on every kind of store, here and over a server; bytes that name their
block.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest

BLOCK_TOKENS, BLOCK_BYTES = 16, 1024
TENTH = 10.0  # seconds: longer than any wait here should take, short enough to fail soon

# What hangs stays so: no limit ends it before a test does. A stop is answered at once, also while something hangs.
PATIENT = {"io_timeout_s": 1000, "no_progress_timeout_s": 1000, "query_timeout_s": 1000, "drain_limit_s": 0}

Maker = Callable[..., forebay.Cache]


def model(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": "test",
        "revision": "1",
        "kv_dtype": "f16",
        "block_tokens": BLOCK_TOKENS,
        "layer_set": "all",
        "layout": "plain",
        "weights_epoch": 0,
        "tp_size": 1,
        "cp_size": 1,
        "pp_size": 1,
        "groups": [{"name": "kv", "payload_bytes": BLOCK_BYTES, "rule": "all"}],
    }
    return values | changes


def settings(**sections: Any) -> dict[str, Any]:
    """A whole configuration; each section that is named is laid over the usual one."""
    usual: dict[str, dict[str, Any]] = {
        "model": model(),
        "pool": {"bytes": "4MiB"},
        "store": {"driver": "mem"},
        "prefetch": {"enabled": True, "policy": "best_effort"},
        "log": {"level": "off"},
    }
    return usual | {name: usual.get(name, {}) | section for name, section in sections.items()}


def content(block: int, seed: int = 0) -> bytes:
    """The bytes of a block: no two alike, and no two bytes in a row."""
    return bytes((block * 37 + seed * 101 + byte * 7 + byte // 256) % 256 for byte in range(BLOCK_BYTES))


def contents(blocks: int, seed: int = 0) -> bytes:
    return b"".join(content(block, seed) for block in range(blocks))


def prompt(blocks: int, seed: int = 0) -> list[int]:
    """Tokens of so many whole blocks and one more, so that all of them may be delivered."""
    return [seed * 1_000_000 + token for token in range(blocks * BLOCK_TOKENS + 1)]


def fill(cache: forebay.Cache, blocks: int, seed: int = 0) -> forebay.Sequence:
    """Puts a prompt of so many blocks, waits until it is stored, and returns its sequence."""
    sequence = cache.sequence(prompt(blocks, seed))
    with cache.put(sequence) as put:
        assert (put.staged_from, put.staged_to) == (0, blocks)
        assert put.copy_from(contents(blocks, seed)) == blocks
        assert put.commit().published == blocks
        assert put.wait_store(TENTH) == (blocks, 0)
    return sequence


def in_child(story: Callable[[], None]) -> int:
    """The exit status of a forked child that runs the story and ends as a Python program does not: at once."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            story()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---- Servers ---------------------------------------------------------------------------------------------------------

# Opens and closes caches as it is told: a line of JSON each, the path of the socket and a configuration or null.
SERVER = """
import json, sys, forebay
caches = {}
for line in sys.stdin:
    path, configuration = json.loads(line)
    if configuration is not None:
        caches[path] = forebay.Cache(configuration)
    else:
        try:
            caches.pop(path).close(1)
        except forebay.AbandonedError:
            pass
    print("done", flush=True)
for cache in caches.values():
    cache.close(1)
"""


def served_settings(path: Path, sections: dict[str, Any]) -> dict[str, Any]:
    """A whole configuration of a cache that answers on a socket."""
    server = {"listen": str(path), "allow_check": True} | sections.get("server", {})
    return settings(**sections | {"server": server})


class ServerProcess:
    """A process with caches that answer on sockets."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, path: Path, configuration: dict[str, Any] | None) -> None:
        """Opens a cache that answers on the socket, or closes that one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), configuration]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n", self._process.wait(TENTH)

    def kill(self) -> None:
        """Ends it as a crash does; the sockets' files stay."""
        self._process.kill()
        self._gone()

    def stop(self) -> int:
        """Ends it in an orderly way.

        Returns:
            the exit status; -9: it did not come, and was killed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(TENTH)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._gone()

    def _gone(self) -> int:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        return self._process.wait(TENTH)


class Server(ServerProcess):
    """A process of its own for one cache, which a test may end and start again.

    Args:
        path: of the socket.
        **sections: as for :func:`settings`.
    """

    def __init__(self, path: Path, **sections: Any) -> None:
        self.path = path
        self._configuration = served_settings(path, sections)
        self.start()

    def start(self) -> None:
        """Starts the process, and returns when it answers."""
        super().__init__()
        self.tell(self.path, self._configuration)


def client_of(server: Server, program: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a program with the socket as its first argument."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, str(server.path), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
    )  # fmt: skip


def until(condition: Callable[[], bool]) -> None:
    """Waits for what only a call can tell."""
    end = time.monotonic() + TENTH
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


ServerMaker = Callable[..., Server]


@pytest.fixture
def start_server() -> Iterator[ServerMaker]:
    """Starts servers, and ends what a test left running."""
    servers: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="fby-") as directory:  # a socket's path is short

        def make(**sections: Any) -> Server:
            server = Server(Path(directory) / f"{len(servers)}.sock", **sections)
            servers.append(server)
            return server

        yield make
        for server in servers:
            server.stop()


@contextlib.contextmanager
def closing() -> Iterator[list[forebay.Cache]]:
    """Closes what is in the list at the end."""
    opened: list[forebay.Cache] = []
    yield opened
    for cache in opened:
        with contextlib.suppress(BufferError, forebay.AbandonedError):
            cache.close(TENTH)


@pytest.fixture
def open_here() -> Iterator[Maker]:
    """Opens caches of this process, and closes what a test left open."""
    with closing() as opened:

        def make(**sections: Any) -> forebay.Cache:
            opened.append(forebay.Cache(settings(**sections)))
            return opened[-1]

        yield make


@pytest.fixture(scope="session")
def server_process() -> Iterator[ServerProcess]:
    """The process whose caches most tests connect to."""
    process = ServerProcess()
    yield process
    assert process.stop() == 0


@pytest.fixture
def open_served(server_process: ServerProcess) -> Iterator[Maker]:
    """Opens caches of another process, and connects to them."""
    paths: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="fby-") as directory:
        with closing() as opened:

            def make(**sections: Any) -> forebay.Cache:
                path = Path(directory) / f"{len(paths)}.sock"
                server_process.tell(path, served_settings(path, sections))
                paths.append(path)
                opened.append(forebay.connect(path))
                return opened[-1]

            yield make
        for path in paths:
            server_process.tell(path, None)


@pytest.fixture(params=["here", "served"])
def open_cache(request: pytest.FixtureRequest) -> Maker:
    """Opens caches both ways: the same story holds for both."""
    maker: Maker = request.getfixturevalue(f"open_{request.param}")
    return maker


@pytest.fixture(params=["mem", "mem-threads", "mem-agent", "file"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, open_cache: Maker) -> forebay.Cache:
    """One cache per kind of store and host."""
    stores: dict[str, dict[str, Any]] = {
        "mem": {"driver": "mem"},
        "mem-threads": {"driver": "mem", "host": "thread"},
        "mem-agent": {"driver": "mem", "host": "agent"},
        "file": {"driver": "file", "options": {"dir": str(tmp_path / "store"), "capacity": "64MiB"}},
    }
    return open_cache(store=stores[request.param])
