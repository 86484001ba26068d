"""The drop-in flexkv layer by layer: eventfds as SGLang's integration hands them over, signals, refusals."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

numpy = pytest.importorskip("numpy", reason="masks of the drop-in are numpy's arrays")

from flexkv_toy import (  # noqa: E402
    LAYERS,
    LoadRefusedError,
    Server,
    build_layerwise_eventfd_socket_path,
    threads,
)

Maker = Callable[..., Server]
TOKENS = list(range(100, 130))
LIMIT_S = 20.0


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


class Counters:
    """The engine's end of layer-wise loads, as SGLang's integration has it."""

    def __init__(self, path: str, layers: int = LAYERS, counters: int = 3, ranks: int = 1) -> None:
        self.fds = [[os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK) for _ in range(layers)] for _ in range(counters)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.connect(path)
            link.sendall(struct.pack("iiii", 0, ranks, layers, counters))
            with contextlib.suppress(BrokenPipeError):  # refused by then
                for number, fds in enumerate(self.fds):
                    socket.send_fds(link, [struct.pack("i", number)], fds)
            link.settimeout(LIMIT_S)
            self.answer = link.recv(1)

    def wait(self, counter: int, layer: int) -> None:
        assert select.select([self.fds[counter][layer]], [], [], LIMIT_S)[0]
        assert os.eventfd_read(self.fds[counter][layer]) == 1

    def pending(self) -> int:
        return len(select.select([fd for fds in self.fds for fd in fds], [], [], 0)[0])

    def close(self) -> None:
        for fds in self.fds:
            for fd in fds:
                os.close(fd)


@pytest.fixture
def layerwise(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Counters]]:
    monkeypatch.setenv("FLEXKV_ENABLE_LAYERWISE_TRANSFER", "1")
    one = serve()
    counters = Counters(build_layerwise_eventfd_socket_path(0, 0, one.config.model_config))
    assert counters.answer == b"\x01"
    yield one, counters
    counters.close()


def test_each_layer_is_signalled_when_it_is_there(layerwise: tuple[Server, Counters]) -> None:
    one, counters = layerwise
    one.store(TOKENS)
    for turn in range(5):
        task, hit = one.match(TOKENS)
        slots = one.allocate(hit)
        one.kv.launch([task], [slots], as_batch=True, layerwise_transfer=True, counter_id=turn % 3)
        for layer in range(LAYERS):
            counters.wait(turn % 3, layer)
            for piece in (layer, LAYERS + layer):
                tensor = one.tensors[0][piece]
                assert tensor.read(int(slots[-1])) == one.right(TOKENS[:28], piece)
        assert one.status(task, LIMIT_S) == "success"
    one.kv.engine.drain()
    assert counters.pending() == 0
    one.quiet()


def test_a_layerwise_load_that_cannot_be_made_says_so_at_once(layerwise: tuple[Server, Counters]) -> None:
    one, counters = layerwise
    one.store(TOKENS)
    for slots, counter in [(numpy.arange(28) + 2, 0), (one.allocate(28), 3)]:
        task, _ = one.match(TOKENS)
        with pytest.raises(LoadRefusedError):
            one.kv.launch([task], [slots], layerwise_transfer=True, counter_id=counter)
        assert one.status(task) == "failed"
    with pytest.raises(LoadRefusedError):
        one.kv.launch([999], [one.allocate(28)], layerwise_transfer=True, counter_id=0)
    assert counters.pending() == 0
    one.quiet()


@pytest.mark.parametrize("wrong", [{"layers": LAYERS + 1}, {"ranks": 2}, {"counters": 65}])
def test_eventfds_that_do_not_fit_are_refused(serve: Maker, monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    monkeypatch.setenv("FLEXKV_ENABLE_LAYERWISE_TRANSFER", "1")
    serve()
    assert Counters(build_layerwise_eventfd_socket_path(), **wrong).answer == b"\x00"


def test_layer_by_layer_is_for_one_rank(serve: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXKV_ENABLE_LAYERWISE_TRANSFER", "1")
    with pytest.raises(ValueError, match="accepted: tp_size 1"):
        serve(ranks=2)


@pytest.mark.parametrize("is_layerwise", [False, True])
def test_a_block_that_is_wrong_in_its_slot_is_found(
    serve: Maker, monkeypatch: pytest.MonkeyPatch, is_layerwise: bool
) -> None:
    monkeypatch.setenv("FLEXKV_ENABLE_LAYERWISE_TRANSFER", str(int(is_layerwise)))
    one = serve({"config": {"store.verify": "on_load"}})
    counters = Counters(build_layerwise_eventfd_socket_path()) if is_layerwise else None
    one.store(TOKENS)
    task, hit = one.match(TOKENS)
    held = one.kv.engine.table.find(task)
    assert held is not None
    assert held.hold is not None
    address = held.hold.addresses(0, 3, 4)[0] + 700  # of the last layer
    ctypes.memmove(address, bytes([ctypes.string_at(address, 1)[0] ^ 1]), 1)
    if counters is not None:
        with pytest.raises(LoadRefusedError):
            one.kv.launch([task], [one.allocate(hit)], layerwise_transfer=True, counter_id=0)
        assert counters.pending() == 0
        counters.close()
    else:
        one.kv.launch([task], [one.allocate(hit)])
    assert one.status(task, LIMIT_S) == "failed"
    one.quiet()
