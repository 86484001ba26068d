"""Messages between the leader and the ranks of one machine: a header in JSON, and lists of 64-bit numbers."""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

Header: TypeAlias = "dict[str, Any]"
Numbers: TypeAlias = "Sequence[int]"

_SIZES = struct.Struct("<III")
_MOST_HEADER, _MOST_NUMBERS = 1 << 20, 1 << 24


class GoneError(ConnectionError):
    """The other end is gone: its process ended, or it closed."""


def _receive(link: socket.socket, size: int) -> bytes:
    made = bytearray()
    while len(made) < size:
        try:
            part = link.recv(size - len(made))
        except ConnectionError as error:
            raise GoneError(str(error)) from error
        if not part:
            raise GoneError("the connection is closed")
        made += part
    return bytes(made)


def send(link: socket.socket, header: Header, first: Numbers = (), second: Numbers = ()) -> None:
    """Sends one message.

    Raises:
        GoneError: nobody is there any more.
    """
    text = json.dumps(header).encode()
    lists = array.array("Q", first).tobytes() + array.array("Q", second).tobytes()
    try:
        link.sendall(_SIZES.pack(len(text), len(first), len(second)) + text + lists)
    except ConnectionError as error:
        raise GoneError(str(error)) from error


def receive(link: socket.socket) -> tuple[Header, list[int], list[int]]:
    """Receives one message; waits for it.

    Raises:
        GoneError: nobody is there any more.
        ValueError: it is no message of ours.
    """
    size, first, second = _SIZES.unpack(_receive(link, _SIZES.size))
    if size > _MOST_HEADER or max(first, second) > _MOST_NUMBERS:
        raise ValueError("a message is longer than any of ours")
    header = json.loads(_receive(link, size))
    numbers = array.array("Q", _receive(link, 8 * (first + second))).tolist()
    return header, numbers[:first], numbers[first:]
