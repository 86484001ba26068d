"""How a value lies in blocks: a header of 64 bytes, then its bytes; the rest of the last block is zero.

The header is the text ``FBYLMC1`` with a NUL and the value's length, 64 bits little-endian; its other bytes are zero.
It begins the first block. A value of whole ``block_bytes`` needs no block for its header: a payload has room for both.
"""

from __future__ import annotations

import array
import ctypes
import functools
import struct
from collections.abc import Iterable

HEADER_BYTES = 64
_HEADER = struct.Struct("<8sQ")
_MAGIC = b"FBYLMC1\0"


def blocks_of(length: int, payload: int) -> int:
    """Blocks of a value of ``length`` bytes, of ``payload`` bytes each."""
    return -(-(HEADER_BYTES + length) // payload)


@functools.lru_cache(maxsize=64)
def tokens_of(blocks: int) -> array.array[int]:
    """Tokens of a sequence with so many usable blocks: their numbers, and one more, which is never delivered."""
    return array.array("I", range(blocks + 1))


def header_of(length: int) -> bytes:
    """The header of a value."""
    return _HEADER.pack(_MAGIC, length).ljust(HEADER_BYTES, b"\0")


def length_in(address: int) -> int | None:
    """The length in the header at an address; None: there is none."""
    magic, length = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    return int(length) if magic == _MAGIC else None


def _pieces(length: int, payload: int, first: int, slots: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    """Per slot, the address of its part of the value, where in the value that begins, and its length."""
    for block, slot in enumerate(slots, first):
        head = HEADER_BYTES if block == 0 else 0
        begin = block * payload + head - HEADER_BYTES
        yield slot + head, begin, min(payload - head, length - begin)


def _address(view: memoryview) -> tuple[int, object]:
    """Where a view's bytes are, and what keeps them there. Of a read-only view it is a copy."""
    kept = ctypes.c_char.from_buffer(bytearray(view or b"\0") if view.readonly or not len(view) else view)
    return ctypes.addressof(kept), kept


def copy_out(slots: list[int], payload: int, target: memoryview) -> None:
    """Copies a whole value from its blocks, without the interpreter's lock.

    Args:
        slots: addresses of all of its blocks, under a hold.
        payload: bytes of each.
        target: writable, format ``B``; as long as the value.
    """
    address, kept = _address(target)
    for source, begin, n in _pieces(len(target), payload, 0, slots):
        ctypes.memmove(address + begin, source, n)
    del kept


def copy_in(slots: list[int], payload: int, first: int, source: memoryview) -> None:
    """Fills blocks of a value, the zeros behind it included, without the interpreter's lock.

    Args:
        slots: addresses of its blocks from ``first`` on, under a put.
        payload: bytes of each.
        first: number of the first block to fill.
        source: the whole value, format ``B``.
    """
    address, kept = _address(source)
    if first == 0:
        ctypes.memmove(slots[0], header_of(len(source)), HEADER_BYTES)
    for target, begin, n in _pieces(len(source), payload, first, slots):
        ctypes.memmove(target, address + begin, n)
        room = payload - n - (HEADER_BYTES if begin == 0 else 0)
        if room > 0:
            ctypes.memset(target + n, 0, room)
    del kept


def bytes_of(view: object) -> memoryview:
    """A view of single bytes over any contiguous buffer.

    Raises:
        TypeError: it is no contiguous buffer.
    """
    return memoryview(view).cast("B")  # type: ignore[arg-type]
