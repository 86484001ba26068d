"""A key-value view of a cache, for engines whose keys say nothing about what lies before a value.

Every value is a sequence of one block, so a key means the same block wherever in a batch it stands, and no value
depends on another one's residency. Reads land in slots of the pool and are verified there; the caller's memory is
written by the caller's own thread, while its call is in time, and never after it.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import forebay

from .keyed_parts import (
    Ahead,
    Checked,
    Clock,
    Door,
    Key,
    Name,
    Piece,
    Read,
    gather,
    name_of,
    piece_of,
    release,
    scatter,
    size_of,
)
from .model import EngineGroup, EngineModel

__all__ = ["KEY_TOKENS", "Key", "Keyed", "Piece", "keyed_model", "piece_of", "size_of"]

KEY_TOKENS = 8
"""A key is the eight 32-bit words of its SHA-256. A ninth token follows: no session reads the last one's block."""

_LAST_TOKEN = bytes(4)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 50e-6, 1e-3  # between looks at questions: no event says that one was answered
_SHARE = 8  # part of the pool that one call, or what was read ahead, may protect
_MOST_AHEAD = 1024  # reads ahead at once: a quarter of the sessions that any cache has handles for


def keyed_model(fields: dict[str, Any], value_bytes: int) -> EngineModel:
    """A model whose blocks are values.

    Args:
        fields: of the fingerprint: whatever makes bytes of equal keys differ.
        value_bytes: largest value.
    """
    return EngineModel(fields, KEY_TOKENS, (EngineGroup(0, "value", (), 0, value_bytes, True),), 1)


class Keyed:
    """Values by key, over a cache that a model of :func:`keyed_model` describes. Any thread, several at once.

    No call raises because of a store: what fails is absent, and ``complain`` is told.

    Args:
        cache: of this process or connected; it stays the caller's, who closes this view first.
        name: separates views of one cache: keys of different names share nothing.
        complain: told what failed, and of the error.
        window: values of one call that are on their way at once, at most.
        read_ahead: what :meth:`exists` finds is read at once, as far as an eighth of the pool holds, 1,024 at most.
        write_back: the store is written when the pool runs short: a value counts as set when the pool has it.
        verify: values are checked once more when they leave the pool.

    Attributes:
        value_bytes: largest value. The size of a smaller one is part of its key; the rest of its slot is zeros.
        window: as given, or less: what an eighth of the pool holds.
    """

    def __init__(
        self,
        cache: forebay.Cache,
        name: str,
        *,
        complain: Callable[[str, BaseException], None],
        window: int = 64,
        read_ahead: bool = True,
        write_back: bool = False,
        verify: bool = False,
    ) -> None:
        self._cache, self._name, self._complain = cache, name, complain
        self._read_ahead, self._write_back = read_ahead, write_back
        self.value_bytes = cache.model.groups[0].payload_bytes
        with contextlib.closing(cache.pool()) as pool:
            share = max(1, pool.groups[0].slots // _SHARE)
        self.window = max(1, min(window, share))
        self._ahead, self._door = Ahead(min(share, _MOST_AHEAD)), Door()
        self._checked = Checked(cache, self.value_bytes) if verify else None

    def sequence(self, key: Key, size: int) -> forebay.Sequence:
        """The sequence that stands for a key with a value of ``size`` bytes.

        Raises:
            ValueError: the size is none of this view's.
        """
        return self._sequence(name_of(key, size))

    def _sequence(self, name: Name) -> forebay.Sequence:
        if not 0 < name.size <= self.value_bytes:
            raise ValueError(f"a value has {name.size} bytes; accepted: 1 to {self.value_bytes}")
        return self._cache.sequence(name.digest + _LAST_TOKEN, (("text", self._name), ("text", str(name.size))))

    def _start(self, sequence: forebay.Sequence) -> forebay.Session:
        return self._cache.start(sequence, policy="wait_complete", min_tokens=0)

    # ---- Exists ----

    def exists(self, keys: Sequence[Key], size: int, limit_s: float, *, leading: bool = False) -> list[bool]:
        """Which values the pool or the store has.

        Args:
            keys: any number.
            size: of each value, in bytes.
            limit_s: what is not known by then counts as absent.
            leading: behind the first absent value all count as absent, and nothing is asked.

        Raises:
            ValueError: the size is none of this view's.
        """
        question, clock = _Question(self, keys, size, leading), Clock(limit_s)
        with self._door.entered() as is_open:
            try:
                if is_open:
                    question.ask(clock)
            except forebay.ForebayError as error:
                self._complain("asking for values", error)
            finally:
                release(question.asked)
        return question.answer()

    # ---- Get ----

    def get(
        self, keys: Sequence[Key], values: Sequence[Sequence[Piece]], limit_s: float, *, leading: bool = False
    ) -> list[bool]:
        """Reads values, and copies those that came in time to their pieces.

        Args:
            keys: any number.
            values: for each key, memory of the value's size; written only where the answer is True, or not at all.
            limit_s: what is not there by then counts as absent. Afterwards nothing of ours touches the memory.
            leading: behind the first absent value all count as absent.

        Raises:
            ValueError: a size that is none of this view's, or not as many values as keys.
        """
        came, clock = [False] * len(keys), Clock(limit_s)
        names = _names(keys, values)
        with self._door.entered() as is_open:
            try:
                for index, hold in self._arrivals(names if is_open else [], clock, leading):
                    with hold:
                        came[index] = clock.left() > 0 and self._copy_out(hold, values[index])
            except forebay.ForebayError as error:
                self._complain("reading values", error)
        end = _leading_run(came) if leading else len(came)
        return [one and i < end for i, one in enumerate(came)]

    def _copy_out(self, hold: forebay.Hold, value: Sequence[Piece]) -> bool:
        if self._checked is not None:
            return self._checked.scatter(hold, value)
        scatter(hold.addresses(0, 0, 1)[0], value)
        return True

    def _arrivals(self, names: list[Name], clock: Clock, leading: bool) -> Iterator[tuple[int, forebay.Hold]]:
        """Holds on the values that came, each the receiver's; in order until one makes all others wait too long."""
        waiting: deque[Read] = deque()
        following = 0
        try:
            while following < len(names) or waiting:
                while following < len(names) and len(waiting) < self.window:
                    waiting.append(self._begin(following, names[following]))
                    following += 1
                hold = self._wait(waiting[0], clock.patience())
                if hold is None and (leading or clock.patience() == 0):
                    break
                read = waiting.popleft()
                if hold is None:
                    read.session.release()
                else:
                    yield read.index, hold
            while waiting and not leading:  # out of patience: what has ended meanwhile still counts
                hold = self._wait(waiting[0], 0)
                read = waiting.popleft()
                if hold is None:
                    read.session.release()
                else:
                    yield read.index, hold
        finally:
            for read in waiting:
                read.session.release()

    def _begin(self, index: int, name: Name) -> Read:
        ahead = self._ahead.take(name)
        return Read(index, name, self._start(self._sequence(name)) if ahead is None else ahead, ahead is not None)

    def _wait(self, read: Read, seconds: float) -> forebay.Hold | None:
        """A hold on the value; None: it did not come in time. What was begun ahead and failed is begun anew."""
        began = time.monotonic()
        try:
            if read.session.wait(seconds).delivered_blocks > 0:
                return read.session.take()
        except forebay.WaitTimeoutError:
            return None
        except forebay.StaleError:
            pass  # a lease that ended, or a reset
        if not read.is_ahead:
            return None
        read.session.release()
        read.session, read.is_ahead = self._start(self._sequence(read.name)), False
        return self._wait(read, max(0.0, seconds - (time.monotonic() - began)))

    # ---- Set ----

    def set(self, keys: Sequence[Key], values: Sequence[Sequence[Piece]], limit_s: float) -> list[bool]:
        """Puts values into the pool and the store.

        Args:
            keys: any number. A key that the pool has already keeps its value, and counts as set.
            values: for each key, the pieces; read only during the call.
            limit_s: what is not stored by then counts as not set, though its write goes on.

        Returns:
            per key whether the store has the value now; with ``write_back`` whether the pool has.

        Raises:
            ValueError: a size that is none of this view's, or not as many values as keys.
        """
        taken, clock = [False] * len(keys), Clock(limit_s)
        names = _names(keys, values)
        puts: deque[tuple[int, forebay.Put]] = deque()
        with self._door.entered() as is_open:
            try:
                for index, name in enumerate(names if is_open else []):
                    if len(puts) >= self.window:
                        self._settle(puts, taken, clock)
                    while clock.left() > 0 and not self._take_in(index, name, values[index], puts, taken):
                        if not puts:
                            break  # no room that an end of our own writes would make
                        self._settle(puts, taken, clock)
                while puts:
                    self._settle(puts, taken, clock)
            except forebay.ForebayError as error:
                self._complain("storing values", error)
            finally:
                for _, put in puts:
                    put.release()
        return taken

    def _take_in(
        self, index: int, name: Name, value: Sequence[Piece], puts: deque[tuple[int, forebay.Put]], taken: list[bool]
    ) -> bool:
        """Copies a value into a slot and publishes it. False: there is no room for it now."""
        put = self._cache.put(self._sequence(name))
        if put.first_missing > 0:  # resident
            put.release()
            taken[index] = True
            return True
        if put.staged_to == put.staged_from:
            put.release()
            return False
        try:
            gather(put.addresses(0, 0, 1)[0], value, self.value_bytes)
            result = put.commit()
        except BaseException:
            put.abort()
            raise
        taken[index] = bool(result.duplicate) or (self._write_back and bool(result.published))
        if taken[index] or not result.published:
            put.release()
        else:
            puts.append((index, put))
        return True

    def _settle(self, puts: deque[tuple[int, forebay.Put]], taken: list[bool], clock: Clock) -> None:
        """Waits for the oldest write, as long as there is time."""
        index, put = puts.popleft()
        try:
            taken[index] = put.wait_store(clock.left()).failed == 0
        except forebay.WaitTimeoutError:
            taken[index] = False
        finally:
            put.release()

    # ---- The end ----

    def forget(self) -> None:
        """Gives up what was read ahead."""
        self._ahead.clear()

    def close(self, limit_s: float) -> bool:
        """Lets no call in any more, waits for those under way, and gives up what was read ahead.

        Returns:
            whether nothing of this view uses the pool any more.
        """
        is_empty = self._door.shut(limit_s)
        self._ahead.close()
        if is_empty and self._checked is not None:
            self._checked.close()
        return is_empty


def _names(keys: Sequence[Key], values: Sequence[Sequence[Piece]]) -> list[Name]:
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values; accepted: as many of both")
    return [name_of(key, size_of(value)) for key, value in zip(keys, values, strict=True)]


def _leading_run(known: Sequence[bool | None]) -> int:
    return next((i for i, one in enumerate(known) if not one), len(known))


class _Question:
    """Which of some values there are: sessions that are looked at until each has found its value, or nothing."""

    def __init__(self, view: Keyed, keys: Sequence[Key], size: int, leading: bool) -> None:
        self._view, self._keys, self._size, self._leading = view, keys, size, leading
        self._found: list[bool | None] = [None] * len(keys)
        self._end = len(keys)  # where a leading run ends, as far as is known
        self._following = 0
        self.asked: list[Read] = []

    def ask(self, clock: Clock) -> None:
        """Returns when all is known that counts, or the time is over."""
        pause = _FIRST_PAUSE_S
        while True:
            self._fill(clock)
            if not self.asked:
                return
            if self._look():
                pause = _FIRST_PAUSE_S
                continue
            left = clock.left()
            if left == 0:
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _fill(self, clock: Clock) -> None:
        view = self._view
        while self._following < self._end and len(self.asked) < view.window and clock.left() > 0:
            index, name = self._following, name_of(self._keys[self._following], self._size)
            sequence = view._sequence(name)
            if view._cache.lookup_advisory(sequence) > 0:
                self._found[index] = True
            else:
                self.asked.append(Read(index, name, view._start(sequence)))
            self._following += 1

    def _look(self) -> bool:
        """Whether something became known."""
        asked, left = self.asked, []
        for read, snapshot in zip(asked, self._view._cache.progress([read.session for read in asked]), strict=True):
            if snapshot.found_tokens > 0:
                self._found[read.index] = True
                self._keep(read)
            elif snapshot.answered or snapshot.state == forebay.State.EXPIRED:
                self._found[read.index] = False
                read.session.release()
                if self._leading:
                    self._end = min(self._end, read.index)
            else:
                left.append(read)
        self.asked = [read for read in left if read.index < self._end]
        release([read for read in left if read.index >= self._end])
        return len(left) < len(asked)

    def _keep(self, read: Read) -> None:
        if self._view._read_ahead:
            self._view._ahead.keep(read.name, read.session)
        else:
            read.session.release()

    def answer(self) -> list[bool]:
        """What is known, True where a value is there."""
        end = _leading_run(self._found) if self._leading else len(self._found)
        return [bool(one) and i < end for i, one in enumerate(self._found)]
