"""Over a server: what a client sees when the server goes and comes, when others are there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from conftest import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    PATIENT,
    TENTH,
    Maker,
    ServerMaker,
    client_of,
    content,
    contents,
    fill,
    in_child,
    prompt,
    settings,
    until,
)  # fmt: skip
from forebay import Outcome, Reason, State

HANGING = {"store": {"driver": "mem", "options": {"script": "get:*:hang"}}, "prefetch": PATIENT}
SOON = 0.001  # seconds between attempts to connect again


# ---- Connecting ------------------------------------------------------------------------------------------------------


def test_a_connection_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.sock"):
        forebay.connect(tmp_path / "none.sock")
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(forebay.ArgumentError, match="call_timeout_s"):
            forebay.connect(tmp_path / "none.sock", call_timeout_s=seconds)
        with pytest.raises(forebay.ArgumentError, match="reconnect_s"):
            forebay.connect(tmp_path / "none.sock", reconnect_s=seconds)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        path = tmp_path / "s"
        listener.bind(str(path))
        with pytest.raises(ConnectionRefusedError, match="s"):
            forebay.connect(str(path))
        listener.listen()
        with pytest.raises(TimeoutError):
            forebay.connect(path, call_timeout_s=0.05)

        def answer() -> None:
            for _ in range(2):  # the first is the one that did not wait
                peer, _ = listener.accept()
                with peer, contextlib.suppress(BrokenPipeError):
                    peer.recv(1 << 16)
                    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        stranger = threading.Thread(target=answer)
        stranger.start()
        with pytest.raises(forebay.FormatError):
            forebay.connect(path)
        stranger.join(TENTH)


def test_a_server_says_who_is_there(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path, name="scheduler") as cache, forebay.connect(server.path) as other:
        assert (cache.connected, other.connected) == (True, True)
        hold = cache.lookup(fill(cache, 2))
        info = other.server_info()
        assert (info.pid, info.version, info.stopping) == (server.pid, forebay.__version__, False)
        assert (info.accepted, info.refused, info.violations, info.deaths) == (2, 0, 0, 0)
        mine, theirs = sorted(info.clients, key=lambda one: one.client)
        assert (mine.name, mine.pid, mine.uid) == ("scheduler", os.getpid(), os.getuid())
        assert (mine.holds, mine.puts, mine.sessions, mine.ended) == (1, 0, 0, False)
        assert mine.pinned_bytes >= 2 * BLOCK_BYTES
        assert (theirs.holds, theirs.pinned_bytes) == (0, 0)
        assert info.calls >= mine.calls > 0
        hold.release()
    with pytest.raises(forebay.ClosedError):
        cache.server_info()
    with pytest.raises(forebay.ClosedError):
        assert cache.connected


def test_a_cache_of_this_process_serves_others_too(open_here: Maker, tmp_path: Path) -> None:
    with pytest.raises(forebay.StateError):
        open_here().server_info()
    cache = open_here(server={"listen": str(tmp_path / "s")})
    assert cache.connected
    sequence = fill(cache, 3)
    with forebay.connect(tmp_path / "s") as client:
        assert cache.server_info().pid == os.getpid()
        assert client.model == cache.model
        with client.lookup(client.sequence(prompt(3))) as hold:
            assert hold.slots() == [content(block) for block in range(3)]
        fill(client, 2, seed=1)
    assert cache.lookup_advisory(cache.sequence(prompt(2, seed=1))) == 32
    assert cache.lookup_advisory(sequence) == 48


def test_clients_touch_only_their_own(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache, forebay.connect(server.path) as other:
        sequence = fill(cache, 2)
        session, hold = cache.start(sequence), cache.lookup(sequence)
        stolen = other.start(other.sequence(prompt(2)))
        own, stolen.handle = stolen.handle, session.handle
        for call in (stolen.poll, stolen.demand, stolen.stop, stolen.take, stolen.event_fd, lambda: stolen.wait(0)):
            with pytest.raises(forebay.StaleError):
                call()
        stolen.handle = own
        assert session.wait(TENTH).delivered_tokens == 32
        assert hold.slots() == [content(0), content(1)]
        assert cache.stats()["holds_gauge"] == 1
        hold.release()


def test_what_a_client_held_ends_with_it(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache:
        sequence = fill(cache, 2)
        with forebay.connect(server.path) as other:
            views = other.lookup(other.sequence(prompt(2))).slots()
            kept = other.put(other.sequence(prompt(2, seed=3))), other.start(other.sequence(prompt(2)))
            stats = cache.stats()
            assert (stats["holds_gauge"], stats["puts_gauge"]) == (1, 1)
        del kept
        with pytest.raises(ValueError, match="released"):
            bytes(views[0] or b"")
        until(lambda: (cache.stats()["holds_gauge"], cache.stats()["puts_gauge"]) == (0, 0))
        assert len(cache.server_info().clients) == 1
        assert cache.lookup_advisory(sequence) == 32
        cache.check()


CLIENT = """
import sys, forebay
from conftest import prompt
cache = forebay.connect(sys.argv[1])
hold, put = cache.lookup(cache.sequence(prompt(2))), cache.put(cache.sequence(prompt(2, seed=4)))
session = cache.start(cache.sequence(prompt(2)))
print(hold.tokens, flush=True)
sys.stdin.read()
"""


def test_a_killed_client_loses_everything_once(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache:
        fill(cache, 2)
        with client_of(server, CLIENT) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "32\n"
            assert cache.stats()["holds_gauge"] == 1
            client.kill()
        until(lambda: cache.server_info().deaths == 1 and len(cache.server_info().clients) == 1)
        until(lambda: (cache.stats()["holds_gauge"], cache.stats()["puts_gauge"]) == (0, 0))
        cache.check()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_connects_for_itself(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache:
        hold = cache.lookup(fill(cache, 2))

        def story() -> None:
            for call in (cache.server_info, cache.stats, hold.places, hold.release, cache.close):
                with pytest.raises(forebay.ForkedError):
                    call()
            with forebay.connect(server.path) as own:
                assert own.lookup_advisory(own.sequence(prompt(2))) == 32
                assert len(own.server_info().clients) == 2

        assert in_child(story) == 0
        assert hold.slots() == [content(0), content(1)]
        assert cache.connected
        assert cache.server_info().violations == 0
        hold.release()


# ---- The server goes and comes ---------------------------------------------------------------------------------------


def test_waits_end_when_the_server_is_killed(start_server: ServerMaker) -> None:
    server = start_server(**HANGING)
    with forebay.connect(server.path) as cache:
        sequence = fill(cache, 4)
        cache.reset(TENTH)
        sessions, events = [cache.start(sequence) for _ in range(4)], cache.subscribe()
        descriptor = sessions[3].event_fd()
        failures: list[BaseException | None] = []
        started = threading.Barrier(3)

        def wait(call: Callable[[], Any]) -> None:
            started.wait(TENTH)
            try:
                call()
                failures.append(None)
            except forebay.ForebayError as failure:
                failures.append(failure)

        threads = [threading.Thread(target=wait, args=(session.wait,)) for session in sessions[:2]]
        for thread in threads:
            thread.start()
        started.wait(TENTH)

        async def in_a_loop() -> None:
            waiting = asyncio.create_task(sessions[2].wait_async(TENTH))
            await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with pytest.raises(forebay.StaleError):
                await waiting

        asyncio.run(in_a_loop())
        for thread in threads:
            thread.join(TENTH)
        assert [type(failure) for failure in failures] == [forebay.StaleError] * 2
        assert select.select([descriptor], [], [], TENTH)[0] == [descriptor]
        os.close(descriptor)
        for session in sessions:
            with pytest.raises(forebay.StaleError):
                session.poll()
            session.release()
        events.unsubscribe()
        assert not cache.connected


def test_while_the_server_is_away_nothing_fails(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path, reconnect_s=SOON) as cache:
        sequence = fill(cache, 4)
        hold, old = cache.lookup(sequence), cache.start(sequence)
        views = hold.slots()
        put = cache.put(cache.sequence(prompt(2, seed=2)))
        server.kill()
        with pytest.raises(forebay.StaleError):
            old.poll()
        assert views == [content(block) for block in range(4)]  # the memory stays until the release
        hold.release()
        with pytest.raises(ValueError, match="released"):
            bytes(views[0] or b"")
        with pytest.raises(forebay.StaleError):
            put.commit()
        put.abort()
        assert cache.connected is False
        with cache.start(sequence, policy="best_effort") as session:
            answer = session.poll()
            assert (answer.state, answer.answered, answer.outcome) == (State.TERMINAL, True, Outcome.FAILED)
            assert (answer.reason, answer.error, answer.delivered_tokens) == (Reason.STORE_ERROR, -errno.ENOTCONN, 0)
            assert session.wait(0) == answer
            assert asyncio.run(session.wait_async(TENTH)) == answer
            assert cache.progress([session], [True]) == [answer]
            session.demand()
            with session.take() as empty:
                assert (empty.tokens, empty.slots(), empty.places()) == (0, [], [])
        with cache.lookup(sequence) as nothing:
            assert (nothing.tokens, nothing.slots()) == (0, [])
        assert cache.lookup_advisory(sequence) == 0
        with cache.put(cache.sequence(prompt(2, seed=2))) as put:
            assert (put.staged_from, put.staged_to, put.slots()) == (0, 0, [])
            assert put.commit()[:4] == (0, 0, 0, 0)
            assert put.wait_store(0) == (0, 0)
        for call in (
            cache.server_info,
            cache.stats,
            cache.metrics,
            cache.pool,
            cache.check,
            cache.reset,
            cache.subscribe,
        ):
            with pytest.raises(forebay.AwayError) as caught:
                call()
            assert isinstance(caught.value, ConnectionError)
        assert cache.health().healthy is False
        assert (cache.epoch, cache.model.block_tokens) == (0, BLOCK_TOKENS)
        old.release()


def test_a_restarted_server_is_found_again(start_server: ServerMaker, tmp_path: Path) -> None:
    store = {"driver": "file", "options": {"dir": str(tmp_path / "store"), "capacity": "64MiB"}}
    server = start_server(store=store)
    with forebay.connect(server.path, reconnect_s=SOON) as cache:
        sequence = fill(cache, 4)
        for round_ in range(3):
            old = cache.start(sequence)
            if round_ == 1:
                assert server.stop() == 0
            else:
                server.kill()
            assert cache.lookup_advisory(sequence) == 0
            server.start()

            def is_there() -> bool:
                cache.lookup_advisory(sequence)  # a call connects
                return cache.connected

            until(is_there)
            with pytest.raises(forebay.StaleError):
                old.poll()
            with cache.start(sequence, policy="wait_complete") as session:
                assert session.wait(TENTH).delivered_tokens == 64
                target = bytearray(4 * BLOCK_BYTES)
                with session.take() as hold:
                    hold.copy_to(target)
            assert target == contents(4)
            fill(cache, 2, seed=10 + round_)
            assert cache.server_info().pid == server.pid


# ---- Many ------------------------------------------------------------------------------------------------------------


def test_sixty_four_threads_share_a_connection(start_server: ServerMaker) -> None:
    server = start_server(pool={"bytes": "16MiB"})
    with forebay.connect(server.path) as cache:
        for seed in range(8):
            fill(cache, 4, seed)
        cache.reset(TENTH)
        failures: list[BaseException] = []
        go = threading.Barrier(64)

        def work(seed: int) -> None:
            try:
                sequence, target = cache.sequence(prompt(4, seed)), bytearray(4 * BLOCK_BYTES)
                go.wait(TENTH)
                for _ in range(10):
                    with cache.start(sequence, policy="wait_complete") as session:
                        session.demand()
                        assert session.wait(TENTH).delivered_tokens == 64
                        with session.take() as hold:
                            assert hold.copy_to(target) == 4
                    assert target == contents(4, seed)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number % 8,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        stats = cache.stats()
        assert (stats["holds_gauge"], stats["leases_gauge"], stats["sessions_running_gauge"]) == (0, 0, 0)
        cache.check()


def test_many_connections_are_independent(start_server: ServerMaker) -> None:
    server = start_server(server={"max_clients": 24})
    caches = [forebay.connect(server.path) for _ in range(24)]
    with pytest.raises(OSError, match="24") as caught:
        forebay.connect(server.path)
    assert caught.value.errno == errno.EUSERS
    for seed, cache in enumerate(caches):
        fill(cache, 2, seed)
    with caches[0].lookup(caches[0].sequence(prompt(2, 7))) as hold:
        assert hold.slots() == [content(0, 7), content(1, 7)]
    for cache in caches[1:]:
        cache.close()
    until(lambda: len(caches[0].server_info().clients) == 1)
    caches[0].close()


def test_a_coroutine_waits_for_the_store(start_server: ServerMaker) -> None:
    server = start_server(store={"driver": "mem", "options": {"latency_ms": 10}})

    async def story(cache: forebay.Cache) -> None:
        with cache.put(cache.sequence(prompt(3))) as put:
            put.copy_from(contents(3))
            put.commit()
            assert await put.wait_store_async(TENTH) == (3, 0)
            assert await put.wait_store_async() == (3, 0)

    with forebay.connect(server.path) as cache:
        asyncio.run(story(cache))


def test_connections_leak_nothing(start_server: ServerMaker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache:
        fill(cache, 2)

        def story() -> None:
            with forebay.connect(server.path) as other, other.lookup(other.sequence(prompt(2))) as hold:
                hold.slots()

        for _ in range(20):
            story()
        until(lambda: len(cache.server_info().clients) == 1)
        here, there = (len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in ("self", server.pid))
        for _ in range(200):
            story()
        until(lambda: len(cache.server_info().clients) == 1)
        assert [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in ("self", server.pid)] == [here, there]
        assert cache.stats()["holds_gauge"] == 0


# ---- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Path]:
    """The socket of a `forebay serve` that is ready."""
    command = Path(sys.executable).parent / "forebay"
    if not command.exists():
        pytest.skip("the package is not installed here, so the command is not either")
    configuration, path = tmp_path / "forebay.json", tmp_path / "s"
    configuration.write_text(json.dumps(settings(server={"listen": str(path)})), encoding="utf-8")
    ready, other = os.pipe()
    process = subprocess.Popen(
        [command, "serve", configuration, "--ready-fd", str(other)], pass_fds=[other], stdout=subprocess.DEVNULL
    )
    os.close(other)
    try:
        assert select.select([ready], [], [], TENTH)[0]
        assert os.read(ready, 16)
        yield path
    finally:
        os.close(ready)
        process.terminate()
        assert process.wait(TENTH) == 0
        assert not path.exists()


def test_the_command_serves(serve: Path) -> None:
    with forebay.connect(serve) as cache:
        sequence = fill(cache, 4)
        cache.reset(TENTH)
        with cache.start(sequence) as session:
            assert session.wait(TENTH).delivered_tokens == 64
