"""Layer-wise loads: the engine gives an eventfd per layer and counter; each layer is signalled when it is there."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from pathlib import Path

from .log import complain, log

_METADATA, _COUNTER = struct.Struct("iiii"), struct.Struct("i")
_ONE = (1).to_bytes(8, "little")
_MOST_COUNTERS, _MOST_LAYERS = 64, 253  # descriptors that one message can carry
_LIMIT_S = 30.0


class LayerSignals:
    """Listens for the engine's eventfds, as SGLang's integration sends them, and signals through them.

    The message: four ints (rank, ranks, layers, counters); per counter one int, its number, with a descriptor for each
    layer; the answer is one byte, 1 when all is well.

    Args:
        path: of the socket.
        layers: of the model.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, path: str, layers: int) -> None:
        self._path, self._layers = path, layers
        self._counters: dict[int, list[int]] = {}
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
        self._listener.bind(path)
        Path(path).chmod(0o600)
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, name="forebay-flexkv-layers", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return  # closed
            with link:
                link.settimeout(_LIMIT_S)
                try:
                    self._take(link)
                    link.sendall(b"\x01")
                except (OSError, ValueError, struct.error) as error:
                    complain("taking eventfds", error)
                    with contextlib.suppress(OSError):
                        link.sendall(b"\x00")

    def _take(self, link: socket.socket) -> None:
        rank, ranks, layers, counters = _METADATA.unpack(link.recv(_METADATA.size, socket.MSG_WAITALL))
        if (rank, ranks) != (0, 1) or layers != self._layers or not 1 <= counters <= _MOST_COUNTERS:
            raise ValueError(
                f"eventfds of rank {rank} of {ranks}, {layers} layers, {counters} counters; "
                f"accepted: one rank, {self._layers} layers, 1 to {_MOST_COUNTERS} counters"
            )
        made: dict[int, list[int]] = {}
        try:
            for _ in range(counters):
                data, fds, _, _ = socket.recv_fds(link, _COUNTER.size, _MOST_LAYERS)
                made[-1] = fds
                number = _COUNTER.unpack(data)[0]
                if len(fds) != layers or number in made:
                    raise ValueError(f"counter {number} comes with {len(fds)} eventfds; accepted: {layers}, once")
                made[number] = made.pop(-1)
        except BaseException:
            _close(made)
            raise
        with self._lock:
            before, self._counters = self._counters, made
        _close(before)
        log.info("forebay: layer-wise loads signal %d layers through %d counters", layers, counters)

    def has(self, counter: int) -> bool:
        """Whether a counter's eventfds are here."""
        with self._lock:
            return counter in self._counters

    def done(self, counter: int, layers: range) -> None:
        """Signals layers of a counter."""
        with self._lock:
            for layer in layers:
                os.write(self._counters[counter][layer], _ONE)

    def close(self) -> None:
        """Ends the thread and closes the eventfds."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_LIMIT_S)
        self._listener.close()
        with contextlib.suppress(OSError):
            Path(self._path).unlink()
        with self._lock:
            before, self._counters = self._counters, {}
        _close(before)


def _close(counters: dict[int, list[int]]) -> None:
    for fds in counters.values():
        for fd in fds:
            os.close(fd)
