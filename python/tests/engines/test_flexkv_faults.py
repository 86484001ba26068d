"""The drop-in flexkv when something is wrong: no claim of more than there is, nothing left, refusals that say why."""

from __future__ import annotations

import array
import contextlib
import errno
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

numpy = pytest.importorskip("numpy", reason="masks of the drop-in are numpy's arrays")

from flexkv_toy import (  # noqa: E402
    HEADS,
    LAYERS,
    PAGE,
    PAGES,
    SIZE,
    KVCacheLayout,
    KVCacheLayoutType,
    KVTPClient,
    Server,
    Tensor,
    build_layerwise_eventfd_socket_path,
    refusal,
    threads,
)

Maker = Callable[..., Server]
TOKENS = list(range(100, 130))
LIMIT_S = 20.0
LAYOUT = KVCacheLayout(KVCacheLayoutType.LAYERFIRST, LAYERS, PAGES, PAGE, HEADS, SIZE)


@pytest.fixture(autouse=True)
def nothing_is_pending() -> Iterator[None]:
    yield
    refusal._pending.clear()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Maker]:
    opened: list[Server] = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def make(extra: dict[str, Any] | None = None, **changes: Any) -> Server:
        extra = dict(extra or {})
        config = {"log.level": "off"} | extra.pop("config", {})
        usual = {"store": "mem", "pool_bytes": "4MiB", "config": config}
        monkeypatch.setenv("FOREBAY_SGLANG", json.dumps(usual | extra))
        opened.append(Server(**changes))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert threads() == []


class Gate:
    """Holds up the leader's commands to its ranks until it is opened."""

    def __init__(self, one: Server) -> None:
        self.crew = one.kv.engine._crew
        self._ask = self.crew.ask
        self.reached, self.opened = threading.Event(), threading.Event()
        self.crew.ask = self._wait  # type: ignore[method-assign]

    def _wait(self, *arguments: Any, **keywords: Any) -> Any:
        self.reached.set()
        assert self.opened.wait(LIMIT_S)
        return self._ask(*arguments, **keywords)


# ---- Launches that cannot be ----


@pytest.mark.parametrize(
    ("slots", "why"),
    [
        (range(4, 31), "a token too few"),
        (range(6, 34), "not aligned"),
        ([*range(4, 28), *range(4, 8)], "a page twice"),
        ([*range(4, 28), 31, 30, 29, 28], "not in order"),
        (range(-4, 24), "below the first page"),
        (range(4000, 4028), "beyond the last page"),
        ([], "none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "slots",
)
def test_slots_that_are_no_whole_pages_load_nothing(serve: Maker, slots: Any, why: str) -> None:
    del why
    one = serve()
    one.store(TOKENS)
    task, hit = one.match(TOKENS)
    assert hit == 28
    before = [tensor.memory.raw for tensor in one.tensors[0]]
    one.kv.launch([task], [numpy.asarray(list(slots), dtype=numpy.int64)], as_batch=True)
    answer = one.kv.wait([task], timeout=LIMIT_S)[task]
    assert (answer.status.value, answer.return_mask.sum()) == ("failed", 0)
    assert [tensor.memory.raw for tensor in one.tensors[0]] == before
    assert one.load(TOKENS) == 28
    one.quiet()


def test_a_put_with_wrong_slots_publishes_nothing(serve: Maker) -> None:
    one = serve()
    task, mask = one.kv.put_match(numpy.asarray(TOKENS[:28]))
    assert mask.sum() == 28
    one.kv.launch([task], [numpy.arange(28) + 2])
    assert one.status(task, LIMIT_S) == "failed"
    assert one.match(TOKENS)[1] == 0
    one.quiet()


def test_what_is_not_known_is_not_found(serve: Maker) -> None:
    one = serve()
    assert one.status(12345) == "not_found"
    one.kv.launch([12345], [numpy.arange(4)])
    one.kv.cancel([12345])
    assert one.kv.try_wait([12345])[12345].status.value == "not_found"
    one.quiet()


def test_a_match_that_makes_no_sense_is_a_miss(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    ids = numpy.asarray(TOKENS[:28])
    masks = [numpy.arange(28) < 8, numpy.arange(28) >= 3, numpy.ones(12, dtype=bool)]
    assert [int(one.kv.get_match(ids, mask)[1].sum()) for mask in masks] == [0, 0, 0]
    assert one.kv.put_match(ids, numpy.arange(28) < 8)[1].sum() == 0
    one.quiet()


# ---- Time ----


def test_what_has_not_begun_in_time_never_does(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    first, second = one.match(TOKENS)[0], one.match(TOKENS)[0]
    gate, slots = Gate(one), [one.allocate(28), one.allocate(28)]
    one.kv.launch([first], [slots[0]])
    assert gate.reached.wait(LIMIT_S)
    one.kv.launch([second], [slots[1]])
    assert one.kv.try_wait([first, second]) == {}
    assert one.status(second, 0.01) == "timeout"
    gate.opened.set()
    assert one.status(first, LIMIT_S) == "success"
    one.kv.engine.drain()
    assert one.status(second, LIMIT_S) == "cancelled"
    assert one.is_there(TOKENS[:28], slots[0])
    assert not any(tensor.read(int(slot)).strip(b"\0") for tensor in one.tensors[0] for slot in slots[1])
    one.quiet()


def test_a_copy_that_has_begun_is_waited_for(serve: Maker) -> None:
    one = serve()
    one.store(TOKENS)
    task, _ = one.match(TOKENS)
    gate, slots = Gate(one), one.allocate(28)
    one.kv.launch([task], [slots])
    assert gate.reached.wait(LIMIT_S)
    timer = threading.Timer(0.05, gate.opened.set)
    timer.start()
    assert one.status(task, 0.0) == "success"  # the time was over before it began to wait
    timer.join()
    assert one.is_there(TOKENS[:28], slots)
    one.quiet()


def test_a_copy_that_does_not_end_does_not_hold_up_the_end(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    from flexkv._forebay import engine

    one = serve()
    one.store(TOKENS)
    task, _ = one.match(TOKENS)
    gate, kept = Gate(one), one.kv.engine
    one.kv.launch([task], [one.allocate(28)])
    assert gate.reached.wait(LIMIT_S)
    monkeypatch.setattr(engine, "CLOSE_LIMIT_S", 0.05)
    one.kv.shutdown()
    assert kept._cache is not None
    assert not kept._cache.closed  # its memory is in use
    gate.opened.set()
    monkeypatch.setattr(engine, "CLOSE_LIMIT_S", LIMIT_S)
    kept._is_closed = False
    kept.close()


def test_a_put_of_several_ranks_has_left_the_device_when_its_launch_returns(serve: Maker) -> None:
    one = serve(ranks=2)
    slots = one.allocate(28)
    one.compute(TOKENS, slots)
    task, _ = one.kv.put_match(numpy.asarray(TOKENS[:28]))
    one.kv.launch([task], [slots])
    assert one.kv.try_wait([task])[task].status.value == "success"
    one.compute([1] * 28, slots)
    one.kv.wait([task], timeout=LIMIT_S, completely=True)
    assert one.load(TOKENS) == 28
    one.quiet()


# ---- Ranks ----


def test_all_ranks_hear_what_became_of_a_load(serve: Maker) -> None:
    one = serve(ranks=3)
    one.store(TOKENS)
    task, _ = one.match(TOKENS)
    one.kv.launch([task], [one.allocate(28)])
    assert one.status(task, LIMIT_S) == "success"
    assert [client.verdict(task) for client in one.clients] == [False, True, True]  # the leader asks its manager
    assert [client.verdict(task) for client in one.clients[1:]] == [False, False]  # once


def test_a_failure_on_one_rank_is_everybodys(serve: Maker) -> None:
    one = serve(ranks=2)
    one.store(TOKENS)
    end = one.clients[1]._end
    assert end is not None
    copier = end._copier
    assert copier is not None

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, "the device is broken")

    right = copier.copy
    copier.copy = fail  # type: ignore[assignment, method-assign]
    task, _ = one.match(TOKENS)
    one.kv.launch([task], [one.allocate(28)])
    answer = one.kv.wait([task], timeout=LIMIT_S)[task]
    assert (answer.status.value, answer.return_mask.sum()) == ("failed", 0)
    assert one.clients[1].verdict(task) is False
    put, mask = one.kv.put_match(numpy.asarray([7] * 28))
    one.kv.launch([put], [one.allocate(28)[mask]])
    assert one.status(put, LIMIT_S) == "failed"
    copier.copy = right  # type: ignore[method-assign]
    assert one.load([7] * 30) == 0
    assert one.load(TOKENS) == 28
    one.quiet()


def test_a_rank_that_is_gone_turns_it_off(serve: Maker) -> None:
    one = serve(ranks=2)
    one.store(TOKENS)
    task, _ = one.match(TOKENS)
    one.clients[1].close()
    one.kv.launch([task], [one.allocate(28)])
    assert one.status(task, LIMIT_S) == "failed"
    assert one.match(TOKENS)[1] == 0
    assert one.kv.put_match(numpy.asarray(TOKENS[:28]))[1].sum() == 0
    assert one.kv.prefetch_async(numpy.asarray(TOKENS)) == -1


# ---- Bytes that are not what they were ----


def test_a_corrupt_object_is_never_loaded(serve: Maker, tmp_path: Path) -> None:
    place = f"dir={tmp_path}/store,capacity=16MiB"
    first = serve({"store": f"file:{place}"})
    first.store(TOKENS)
    first.close()
    one = serve({"store": f"fault:file:script=get:*:corrupt(800),{place}"})
    task = one.kv.prefetch_async(numpy.asarray(TOKENS))
    assert one.kv.wait([task], timeout=LIMIT_S)[task].return_mask.sum() == 0
    assert one.match(TOKENS)[1] == 0
    one.quiet()


# ---- A server's cache ----


SERVE = """
import json, sys, forebay
with forebay.Cache(json.loads(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def server_of(model: dict[str, Any], path: Path) -> Iterator[None]:
    """A server in a process of its own; it is killed at the end."""
    config = {
        "model": model, "pool": {"bytes": "4MiB"}, "log": {"level": "off"}, "server": {"listen": str(path / "socket")},
        "store": {"driver": "file", "options": {"dir": str(path / "store"), "capacity": "16MiB"}},
    }  # fmt: skip
    words = [sys.executable, "-c", SERVE, json.dumps(config)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def test_a_server_that_dies_costs_computing_and_comes_back(serve: Maker, tmp_path: Path) -> None:
    first = serve(ranks=2)
    section = first.kv.engine._pool._model.section()  # type: ignore[union-attr]
    first.close()
    with server_of(section, tmp_path):
        one = serve({"server": str(tmp_path / "socket"), "store": "mem"}, ranks=2)
        assert one.store(TOKENS) == 28
        assert one.load(TOKENS) == 28
        task, hit = one.match(TOKENS)
        assert hit == 28
    one.kv.launch([task], [one.allocate(28)])
    assert one.status(task, LIMIT_S) == "failed"
    assert one.load(TOKENS) == 0
    assert one.kv.put_match(numpy.asarray(TOKENS[:28]))[1].sum() == 0
    other, statuses = [7, *TOKENS], list[str]()
    with server_of(section, tmp_path):
        limit = time.monotonic() + LIMIT_S
        while "success" not in statuses:
            assert time.monotonic() < limit
            task, mask = one.kv.put_match(numpy.asarray(other[:28]))
            if mask.any():
                slots = one.allocate(28)
                one.compute(other, slots)
                one.kv.launch([task], [slots[mask]])
                statuses.append(one.status(task, LIMIT_S))
                one.kv.engine.drain()
        assert statuses == ["failed", "success"]  # the first copy finds that the pool is another one
        assert one.load(other) == 28
        two = serve({"server": str(tmp_path / "socket"), "store": "mem"}, ranks=2)
        assert two.load(other) == 28  # its bytes went to the server that is there
        two.close()
        one.close()


# ---- Start ----


def other_layout(**changes: Any) -> KVCacheLayout:
    values: dict[str, Any] = {
        "type": KVCacheLayoutType.LAYERFIRST, "num_layer": LAYERS, "num_block": PAGES, "tokens_per_block": PAGE,
        "num_head": HEADS, "head_size": SIZE,
    }  # fmt: skip
    return KVCacheLayout(**values | changes)


class Alone:
    """A leader whose second rank never comes by itself."""

    def __init__(self, serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Server, "_register", lambda *_: None)
        self.server = serve(ranks=2)
        self.path = self.server.config.gpu_register_port
        KVTPClient(self.path, device_id=0).register_to_server([Tensor() for _ in range(2 * LAYERS)], LAYOUT)


def test_ranks_that_differ_are_refused_with_both_values(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(serve, monkeypatch)
    client = KVTPClient(alone.path, device_id=1)
    client.register_to_server([Tensor(PAGE * 32) for _ in range(2 * LAYERS)], other_layout(num_block=32))
    with pytest.raises(RuntimeError, match="pages is 32 on rank 1 and 64 on another"):
        build_layerwise_eventfd_socket_path()
    with pytest.raises(RuntimeError, match="pages is 32 on rank 1"):
        alone.server.kv.is_ready()


def test_tensors_that_cannot_be_served_are_refused_once(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(serve, monkeypatch)
    tensors = [Tensor() for _ in range(2 * LAYERS)]
    client = KVTPClient(alone.path, device_id=1)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kv_caches": tensors[1:], "kv_layout": LAYOUT}, "5 KV tensors; accepted: 6"),
        ({"kv_caches": [*tensors[1:], Tensor(heads=3)], "kv_layout": LAYOUT}, "accepted: dense ones"),
        ({"kv_caches": tensors, "kv_layout": LAYOUT, "indexer_buffers": tensors}, "indexer_buffers are given"),
        ({"kv_caches": tensors, "kv_layout": LAYOUT, "swa_buffers": tensors}, "swa_buffers are given"),
    ]
    for arguments, why in wrong:
        client.register_to_server(**arguments)
        with pytest.raises(RuntimeError, match=why):
            build_layerwise_eventfd_socket_path()
        build_layerwise_eventfd_socket_path()


def test_a_store_that_cannot_be_opened_is_refused_at_once(serve: Maker) -> None:
    with pytest.raises(RuntimeError, match="/proc/nothing"):
        serve({"store": "file:dir=/proc/nothing,capacity=16MiB"})


def test_a_leader_that_does_not_listen_is_tried_again(tmp_path: Path) -> None:
    client = KVTPClient(str(tmp_path / "nobody"))
    with pytest.raises(FileNotFoundError):
        client.register_to_server([Tensor() for _ in range(2 * LAYERS)], LAYOUT)
    build_layerwise_eventfd_socket_path()


def test_a_rank_that_does_not_come_is_named(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    from flexkv._forebay import core

    alone = Alone(serve, monkeypatch)
    monkeypatch.setattr(core, "ANSWER_LIMIT_S", 0.0)
    while alone.server.kv.engine._crew.missing() != [1]:
        assert alone.server.kv.is_ready() is False
    monkeypatch.setattr(core, "REGISTER_LIMIT_S", 0.0)
    with pytest.raises(RuntimeError, match=r"ranks \[1\] did not register"):
        alone.server.kv.is_ready()


def test_two_servers_cannot_have_one_socket(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(serve, monkeypatch)
    with pytest.raises(OSError, match="in use") as caught:
        serve(ranks=2)
    assert caught.value.errno == errno.EADDRINUSE
    assert Path(alone.path).exists()


def test_a_socket_that_a_killed_server_left_is_replaced(serve: Maker) -> None:
    one = serve()
    one.close()
    path = one.config.gpu_register_port
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    assert Path(path).exists()
    again = serve()
    assert again.store(TOKENS) == 28
    assert not Path(path).exists()  # all ranks are there: nobody else may come


def test_only_its_user_finds_the_socket(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(serve, monkeypatch)
    assert Path(alone.path).stat().st_mode & 0o777 == 0o600
    assert Path(alone.path).parent.stat().st_mode & 0o777 == 0o700
    Path(alone.path).parent.chmod(0o755)
    with pytest.raises(PermissionError, match="of this user alone"):
        serve()
    Path(alone.path).parent.chmod(0o700)


# ---- Messages ----


def test_messages_come_as_they_were_sent() -> None:
    from flexkv._forebay import wire

    one, other = socket.socketpair()
    with one, other:
        wire.send(one, {"op": "copy"}, [1, 2**63], [7])
        assert wire.receive(other) == ({"op": "copy"}, [1, 2**63], [7])
        one.sendall(struct.pack("<III", 2**31, 0, 0))
        with pytest.raises(ValueError, match="longer than any"):
            wire.receive(other)
        one.close()
        with pytest.raises(wire.GoneError):
            wire.receive(other)
        with pytest.raises(wire.GoneError):
            wire.send(other, {}, array.array("Q", [0]) * 100_000)


def test_a_device_of_its_own_machine_is_asked_for() -> None:
    from flexkv.transfer_manager import TransferManagerOnRemote

    with pytest.raises(ValueError, match="nnodes is above 1; accepted: 1"):
        TransferManagerOnRemote.create_process(master_host="a", master_ports=("1",))
    with pytest.raises(ValueError, match="pp_rank is 1; accepted: 0"):
        KVTPClient("nowhere", pp_rank=1)
