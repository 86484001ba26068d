"""What :mod:`keyed` is made of: names, copies, the time of a call, reads that were begun ahead, who is inside."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import forebay

Key: TypeAlias = "str | bytes"
Piece: TypeAlias = "tuple[int, int]"
"""Address and bytes. A value is a list of them, one after the other."""

_RESERVE = 0.1  # part of a limit that is kept for what has ended behind a value that hangs
_AHEAD_S = 10.0  # what nobody came for by then makes room for what is read ahead later


@dataclass(frozen=True, slots=True)
class Name:
    """A key, digested, and the bytes of its value."""

    digest: bytes
    size: int


def name_of(key: Key, size: int) -> Name:
    """The name of a value."""
    return Name(hashlib.sha256(key.encode() if isinstance(key, str) else key).digest(), size)


def piece_of(buffer: Any) -> Piece:
    """Where the bytes of a buffer lie. Whoever asks keeps the buffer as it is for as long as the address is used.

    Args:
        buffer: writable and contiguous.

    Raises:
        TypeError: it is neither.
    """
    view = memoryview(buffer).cast("B")
    return (ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes) if view.nbytes else (0, 0)


def size_of(value: Sequence[Piece]) -> int:
    """Bytes of a value."""
    return sum(size for _, size in value)


def scatter(address: int, value: Sequence[Piece]) -> None:
    """Copies what lies at an address to the pieces, without the interpreter's lock."""
    for target, size in value:
        ctypes.memmove(target, address, size)
        address += size


def gather(address: int, value: Sequence[Piece], room: int) -> None:
    """Copies the pieces to an address. What is left of the room becomes zeros: its bytes belong to somebody else."""
    for source, size in value:
        ctypes.memmove(address, source, size)
        address += size
        room -= size
    ctypes.memset(address, 0, room)


class Checked:
    """Copies that check a slot's bytes against its trailer as they leave the pool (``store.verify: on_load``).

    What is checked must be what the caller gets, so the bytes go through memory of this process.

    Args:
        cache: whose slots they are; it is closed after :meth:`close`.
        value_bytes: payload of a slot.
        at_once: callers that copy at the same time; others wait for their turn.
    """

    def __init__(self, cache: forebay.Cache, value_bytes: int, at_once: int = 4) -> None:
        self._rank = forebay.Rank.attach_cache(cache)
        memory = bytearray(at_once * value_bytes)
        layout = forebay.Layout("mla", 1, (forebay.Tensor(memory),), at_once, value_bytes)
        self._rank.register(0, layout, offset=0, size=value_bytes)
        self._address, self._value_bytes = piece_of(memory)[0], value_bytes
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(at_once):
            self._free.put(place)

    def scatter(self, hold: forebay.Hold, value: Sequence[Piece]) -> bool:
        """Copies the block of a hold to the pieces. False: its bytes have changed, and nothing was written."""
        place = self._free.get()
        try:
            if self._rank.load(0, hold.places(0, 0, 1), [place], verify=True).wait().blocks_failed > 0:
                return False
            scatter(self._address + place * self._value_bytes, value)
            return True
        finally:
            self._free.put(place)

    def close(self) -> None:
        """Nobody copies any more."""
        self._rank.detach()


class Clock:
    """The time that a call has."""

    __slots__ = ("_end", "_soft")

    def __init__(self, limit_s: float) -> None:
        now = time.monotonic()
        self._end, self._soft = now + limit_s, now + limit_s * (1 - _RESERVE)

    def left(self) -> float:
        """Seconds until the caller must have its answer."""
        return max(0.0, self._end - time.monotonic())

    def patience(self) -> float:
        """Seconds that one value may be waited for, so that those behind it still count."""
        return max(0.0, self._soft - time.monotonic())


@dataclass(slots=True)
class Read:
    """A value on its way to the pool.

    Attributes:
        index: in the caller's list.
        name: of the value.
        session: that reads it.
        is_ahead: begun by an earlier question: what came of it may be out of date.
    """

    index: int
    name: Name
    session: forebay.Session
    is_ahead: bool = False


def release(reads: list[Read]) -> None:
    """Gives reads up, and empties the list."""
    for read in reads:
        read.session.release()
    reads.clear()


class Ahead:
    """Reads that a question began, kept for the get that follows. Bounded: beyond it nothing new is kept.

    Args:
        most: reads that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Name, tuple[forebay.Session, float]] = OrderedDict()
        self._lock = threading.Lock()

    def _too_old(self, now: float) -> list[forebay.Session]:
        old = []
        while self._kept:
            name, (session, since) = next(iter(self._kept.items()))
            if now - since < _AHEAD_S:
                break
            del self._kept[name]
            old.append(session)
        return old

    def keep(self, name: Name, session: forebay.Session) -> None:
        """Keeps a read; without room, or when there is one of that name, it is given up."""
        now = time.monotonic()
        with self._lock:
            given_up = self._too_old(now)
            if len(self._kept) < self._most and name not in self._kept:
                self._kept[name] = (session, now)
            else:
                given_up.append(session)
        for one in given_up:
            one.release()

    def take(self, name: Name) -> forebay.Session | None:
        """The read of that name, which is the caller's from now on."""
        with self._lock:
            kept = self._kept.pop(name, None)
        return kept[0] if kept is not None else None

    def clear(self) -> None:
        """Gives up all."""
        with self._lock:
            kept, self._kept = self._kept, OrderedDict()
        for session, _ in kept.values():
            session.release()

    def close(self) -> None:
        """Gives up all, also what a question that is still under way will want to keep."""
        with self._lock:
            self._most = 0
        self.clear()

    def __len__(self) -> int:
        return len(self._kept)


class Door:
    """Counts who is inside: the pool's memory may be unmapped when nobody is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_shut = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[bool]:
        """Inside while it lasts. False: the door is shut."""
        with self._changed:
            is_in = not self._is_shut
            self._inside += is_in
        try:
            yield is_in
        finally:
            with self._changed:
                self._inside -= is_in
                self._changed.notify_all()

    def shut(self, limit_s: float) -> bool:
        """Lets nobody in any more, and waits until all are out. Whether they are."""
        with self._changed:
            self._is_shut = True
            return self._changed.wait_for(lambda: self._inside == 0, limit_s)
