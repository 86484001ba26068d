"""What a lane does for one key: ask for it, read it, write it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import forebay

from .lane import NoRoomError, Task
from .values import blocks_of, copy_in, copy_out, length_in, tokens_of

_SHORT_OF_ROOM = (
    forebay.Reason.CAPACITY_POOL,
    forebay.Reason.CAPACITY_PINNED,
    forebay.Reason.CAPACITY_RESERVED,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where values are kept.

    Attributes:
        cache: of this process, or connected.
        payload: bytes of one block.
        slot: bytes of pool that a block takes.
        most: bytes of pool that one value may take.
        writes_through: a set waits for the store.
    """

    cache: forebay.Cache
    payload: int
    slot: int
    most: int
    writes_through: bool

    def size(self, length: int) -> int:
        """Bytes of pool that a value of so many bytes takes."""
        return blocks_of(length, self.payload) * self.slot

    def sequence(self, key: str, blocks: int) -> forebay.Sequence:
        """The sequence whose blocks are a key's value. The key's text is its namespace: no other key's meets it."""
        return self.cache.sequence(tokens_of(blocks), [(forebay.Namespace.TEXT, key)])

    def too_long(self, length: int) -> str:
        """Why a value of so many bytes cannot be kept; "" when it can."""
        if self.size(length) <= self.most:
            return ""
        return (
            f"a value of {length} bytes takes {self.size(length)} bytes of pool, of which one may take a quarter: "
            f"{self.most}; raise pool_bytes"
        )


Then = Callable[[bool, str], None]
"""Gets a key's result, and what went wrong."""


class _KeyTask(Task):
    __slots__ = ("_blocks", "_key", "_place", "_then")

    def __init__(self, place: Place, key: str, length: int, deadline: float, then: Then) -> None:
        super().__init__(place.size(length), deadline)
        self._place, self._key, self._then = place, key, then
        self._blocks = blocks_of(length, place.payload)

    def fail(self, why: str) -> None:
        """The result False."""
        self._then(False, why)


class Exists(_KeyTask):
    """Whether a key has a value: its first block is read and verified, and stays in the pool for the get."""

    __slots__ = ("_session",)

    def __init__(self, place: Place, key: str, deadline: float, then: Then) -> None:
        super().__init__(place, key, 0, deadline, then)
        self._session: forebay.Session | None = None

    def begin(self) -> int:
        """Starts the session."""
        sequence = self._place.sequence(self._key, self._blocks)
        self._session = self._place.cache.start(sequence, policy=forebay.Policy.WAIT_COMPLETE)
        return self.AT_ONCE if self._session.poll().answered else self._session.event_fd()

    def end(self) -> None:
        """Takes its result."""
        session, self._session = self._session, None
        assert session is not None
        with session:
            result = self._answer(session)
        self._then(*result)

    def _answer(self, session: forebay.Session) -> tuple[bool, str]:
        answer = session.poll()
        if not answer.answered:
            return False, "the cache was reset meanwhile"
        if answer.delivered_tokens < self._blocks:
            if answer.reason in _SHORT_OF_ROOM:
                raise NoRoomError
            return False, f"{answer.reason}: {forebay.strerror(answer.error)}" if answer.error else ""
        with session.take() as hold:
            return self._accept(hold)

    def _accept(self, hold: forebay.Hold) -> tuple[bool, str]:
        found = length_in(hold.addresses(0, 0, 1)[0]) is not None
        return found, "" if found else "what the store has under this key is no value"

    def drop(self) -> None:
        """Ends the session: what is still read goes on in slots of the pool."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(forebay.ForebayError):
                session.release()


class Get(Exists):
    """Reads a whole value into the pool, then copies it.

    Args:
        place: where values are kept.
        key: LMCache's text.
        target: LMCache's memory, format ``B``; as long as the value has to be. Written only here, only whole.
        deadline: monotonic time.
        then: gets the result.
    """

    __slots__ = ("_target",)

    def __init__(self, place: Place, key: str, target: memoryview, deadline: float, then: Then) -> None:
        _KeyTask.__init__(self, place, key, len(target), deadline, then)
        self._session = None
        self._target = target

    def begin(self) -> int:
        """Starts the session, unless the value can never fit."""
        if self._place.too_long(len(self._target)):
            raise ValueError(self._place.too_long(len(self._target)))
        return super().begin()

    def _accept(self, hold: forebay.Hold) -> tuple[bool, str]:
        slots = hold.addresses(0, 0, self._blocks)
        length = length_in(slots[0])
        if length != len(self._target):
            return False, f"the value has {length} bytes, LMCache wants {len(self._target)}"
        copy_out(slots, self._place.payload, self._target)
        return True, ""


class Set(_KeyTask):
    """Puts a value into the pool, and waits until the store has it.

    Args:
        place: where values are kept.
        key: LMCache's text.
        source: LMCache's memory, format ``B``; not touched any more once the put is committed.
        deadline: monotonic time.
        then: gets the result.
    """

    __slots__ = ("_put", "_source")

    def __init__(self, place: Place, key: str, source: memoryview, deadline: float, then: Then) -> None:
        super().__init__(place, key, len(source), deadline, then)
        self._put: forebay.Put | None = None
        self._source = source

    def begin(self) -> int:
        """Fills slots and commits them."""
        if self._place.too_long(len(self._source)):
            raise ValueError(self._place.too_long(len(self._source)))
        self._put = put = self._place.cache.put(self._place.sequence(self._key, self._blocks), 0, self._blocks)
        if put.first_missing >= self._blocks:
            return self.AT_ONCE  # all of it is in the pool, and a block of the pool is not written twice
        if put.staged_to < self._blocks:
            self.drop()
            if not self._place.cache.connected:
                raise ConnectionError("the server is away")
            raise NoRoomError
        copy_in(put.addresses(), self._place.payload, put.staged_from, self._source)
        put.commit(self._blocks)
        return put.event_fd() if self._place.writes_through else self.AT_ONCE

    def end(self) -> None:
        """Takes what became of the store writes."""
        put, self._put = self._put, None
        assert put is not None
        with put:
            failed = put.wait_store(0).failed if self._place.writes_through else 0
        self._then(failed == 0, "" if failed == 0 else f"the store did not take {failed} of {self._blocks} blocks")

    def drop(self) -> None:
        """Ends the put: store writes that are under way go on."""
        put, self._put = self._put, None
        if put is not None:
            with contextlib.suppress(forebay.ForebayError):
                put.release()
