"""Groups of ranks: the leader's log of decisions, the followers' end of it, and verdicts (docs/ranks.md).

Nothing here opens a socket or waits: messages are bytes, and whoever has a channel carries them.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ._card import Ranks, encoded, ranks_in
from ._errors import check, text
from ._forebay import ffi, lib
from ._names import DECISION_KINDS, DECISION_NUMBERS, MESSAGE_TYPES, DecisionKind, MessageType, number_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


_SERVER_MESSAGE_BYTES = 61440  # longest message that travels through a server


def _sized(kind: str) -> Any:
    made = ffi.new(f"{kind} *")
    made.size = ffi.sizeof(kind)
    return made


def _rank(number: int) -> int | None:
    return None if number == lib.FBY_NO_RANK else number


@dataclass(frozen=True, slots=True)
class Message:
    """What a message is (``fby_message_t``).

    Attributes:
        type: of the message.
        rank: the sender; None: the leader.
        ranks: of its group.
        incarnation: of its group; card: of its rank.
        number: decisions: the first; report, verdict: which decision; acknowledgement: all up to this one; card: 0.
        count: decisions: how many; report, verdict: failed blocks; card: fields; acknowledgement: 0.
    """

    type: MessageType
    rank: int | None
    ranks: int
    incarnation: int
    number: int
    count: int


def parse_message(message: Buffer) -> Message:
    """What a message is, from length, checksum and header; its contents may still be refused (``fby_message_parse``).

    Raises:
        FormatError: not such a message.
        ChecksumError: it was changed on the way.
    """
    data, raw = ffi.from_buffer("char[]", message), _sized("fby_message_t")
    check(lib.fby_message_parse(data, len(data), raw))
    kind = MESSAGE_TYPES[raw.type]
    return Message(kind, _rank(raw.rank), raw.ranks, int(raw.incarnation), int(raw.number), int(raw.count))


# ---- Decisions -------------------------------------------------------------------------------------------------------


class BlockRange(NamedTuple):
    """Blocks ``[first_block, first_block + blocks)`` of a sequence in one group (``fby_block_range_t``).

    Attributes:
        group: index of the group.
        first_block: position in the sequence.
        blocks: how many; the length of both lists.
        places: one per block, none ``NO_PLACE``; None: none given, not for load and save.
        device_blocks: one per block; None: likewise.
    """

    group: int
    first_block: int
    blocks: int
    places: Sequence[int] | None = None
    device_blocks: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What all ranks do (``fby_decision_t``). At most 64 ranges, 131,072 blocks and 1,024 bytes of ``extra``.

    Attributes:
        kind: what is done.
        tag: the engine's own number: its request.
        tokens: the length that the leader judged, for all.
        object: handle of the hold or put; 0: none.
        ranges: which blocks.
        extra: any bytes of the engine's.
        number: its place in the log, from 1 on; given by the leader.
    """

    kind: DecisionKind | str
    tag: int = 0
    tokens: int = 0
    object: int = 0
    ranges: tuple[BlockRange, ...] = ()
    extra: bytes = b""
    number: int = 0


def _numbers_in(what: str, numbers: Sequence[int] | None, blocks: int, alive: list[Any]) -> Any:
    if numbers is None:
        return ffi.NULL
    if len(numbers) != blocks:
        raise ValueError(f"{len(numbers)} {what} for {blocks} blocks; accepted: as many of both")
    raw = ffi.new("uint64_t[]", list(numbers))
    alive.append(raw)
    return raw


def _decision_in(decision: Decision) -> tuple[Any, list[Any]]:
    raw, ranges = _sized("fby_decision_t"), ffi.new("fby_block_range_t[]", len(decision.ranges))
    extra = ffi.new("char[]", decision.extra)
    alive: list[Any] = [ranges, extra]
    for one, given in zip(ranges, decision.ranges, strict=True):
        one.group, one.first_block, one.blocks = given.group, given.first_block, given.blocks
        one.place = _numbers_in("places", given.places, given.blocks, alive)
        one.device_block = _numbers_in("device blocks", given.device_blocks, given.blocks, alive)
    raw.kind = number_of(DECISION_NUMBERS, "decision kind", decision.kind)
    raw.tag, raw.tokens, raw.object = decision.tag, decision.tokens, decision.object
    raw.ranges, raw.range = len(decision.ranges), ranges if decision.ranges else ffi.NULL
    raw.extra_bytes, raw.extra = len(decision.extra), extra if decision.extra else ffi.NULL
    return raw, alive


def _numbers_out(pointer: Any, blocks: int) -> list[int] | None:
    return None if pointer == ffi.NULL else list(ffi.unpack(pointer, blocks)) if blocks else []


def _decision_out(raw: Any) -> Decision:
    ranges = tuple(
        BlockRange(
            one.group,
            int(one.first_block),
            int(one.blocks),
            _numbers_out(one.place, one.blocks),
            _numbers_out(one.device_block, one.blocks),
        )
        for one in (raw.range[0 : raw.ranges] if raw.ranges else ())
    )
    extra = bytes(ffi.buffer(raw.extra, raw.extra_bytes)) if raw.extra_bytes else b""
    kind = DECISION_KINDS[raw.kind]
    return Decision(kind, int(raw.tag), int(raw.tokens), int(raw.object), ranges, extra, int(raw.number))


class FailedBlock(NamedTuple):
    """A block that must not be used.

    Attributes:
        group: index of the group.
        block: its position in the sequence, as in the decision's range.
    """

    group: int
    block: int


@dataclass(frozen=True, slots=True)
class Result:
    """How a load or save ended, for all ranks (``fby_result_t``).

    Attributes:
        number: of the decision.
        code: 0, or how it failed.
        rank: the lowest that failed, whose code it is; None: no rank, or the leader's loss.
        failed: the blocks that failed on any rank, ascending. With a code and none here, no block may be used.
        tag: out of a follower: the decision's; else 0.
        kind: out of a follower: the decision's; else None.
    """

    number: int
    code: int
    rank: int | None
    failed: tuple[FailedBlock, ...]
    tag: int = 0
    kind: DecisionKind | None = None

    @property
    def ok(self) -> bool:
        """Whether every block may be used."""
        return self.code == 0


def _result_out(raw: Any) -> Result:
    failed = raw.failed[0 : raw.failed_count] if raw.failed_count else ()
    return Result(
        int(raw.number),
        int(raw.code),
        _rank(raw.rank),
        tuple(FailedBlock(one.group, int(one.block)) for one in failed),
        int(raw.tag),
        DECISION_KINDS.get(raw.kind),
    )


# ---- Leader ----------------------------------------------------------------------------------------------------------


class Leader:
    """The numbered log of decisions, as far as a rank may still ask for it (``fby_leader_t``). Threads take turns.

    Args:
        ranks: from :func:`compare_cards`.

    Raises:
        ArgumentError: a field of ``ranks``.
    """

    __slots__ = ("_lock", "_pointer")

    def __init__(self, ranks: Ranks) -> None:
        out = ffi.new("fby_leader_t **")
        check(lib.fby_leader_create(ranks_in(ranks), out))
        self._pointer = ffi.gc(out[0], lib.fby_leader_free)
        self._lock = threading.Lock()

    def decide(self, decision: Decision) -> int:
        """Adds a decision (``fby_leader_decide``). Quick.

        Returns:
            its number.

        Raises:
            ArgumentError: a field; the detail says which, and what is accepted.
            CapacityError: the window is full: which rank lags, and how far.
            RankLostError: a load or save after :meth:`lost`.
            StateError: after ``end``.
        """
        raw, alive = _decision_in(decision)
        number = ffi.new("uint64_t *")
        with self._lock:
            check(lib.fby_leader_decide(self._pointer, raw, number))
        del alive
        return int(number[0])

    def encode(self, from_number: int) -> tuple[bytes, int]:
        """The message with the decisions from a number on (``fby_leader_encode``).

        As many as fit in 60 KiB, which is what a server carries, and at least one.

        Returns:
            the message, empty when there is nothing new, and where the next one begins: :attr:`next` when all is in.

        Raises:
            ArgumentError: beyond the next number.
            StaleError: forgotten; the detail says what the log begins with.
        """
        following = ffi.new("uint64_t *")
        with self._lock:
            message = encoded(
                lambda out, room, needed: int(
                    lib.fby_leader_encode(self._pointer, from_number, out, room, needed, following)
                ),
                room=_SERVER_MESSAGE_BYTES,
            )
        return message, int(following[0])

    @property
    def next(self) -> int:
        """The number that the next decision gets (``fby_leader_next``)."""
        with self._lock:
            return int(lib.fby_leader_next(self._pointer))

    def acknowledge(self, rank: int, number: int) -> None:
        """``rank`` has all decisions up to ``number``: what all have is forgotten (``fby_leader_acknowledge``).

        Raises:
            ArgumentError: no such rank, or a number not given yet.
        """
        with self._lock:
            check(lib.fby_leader_acknowledge(self._pointer, rank, number))

    def receive(self, message: Buffer) -> tuple[int, int]:
        """The same from a rank's message (``fby_leader_receive``).

        Returns:
            which rank, and the number up to which it has all; below ``next - 1``: encode from the one after it again.

        Raises:
            FormatError: not such a message.
            ChecksumError: it was changed on the way.
            StaleError: of another incarnation.
        """
        data, rank, number = ffi.from_buffer("char[]", message), ffi.new("uint32_t *"), ffi.new("uint64_t *")
        with self._lock:
            check(lib.fby_leader_receive(self._pointer, data, len(data), rank, number))
        return int(rank[0]), int(number[0])

    def lost(self, rank: int) -> None:
        """``rank`` is dead: loads and saves are refused from now on (``fby_leader_lost``).

        Raises:
            ArgumentError: no such rank.
        """
        with self._lock:
            check(lib.fby_leader_lost(self._pointer, rank))


class Verdict:
    """The leader's count of the reports on one decision (``fby_verdict_t``). Threads take turns.

    Args:
        ranks: as for the leader.
        number: of the decision.

    Raises:
        ArgumentError: a field of ``ranks``.
    """

    __slots__ = ("_lock", "_pointer")

    def __init__(self, ranks: Ranks, number: int) -> None:
        out = ffi.new("fby_verdict_t **")
        check(lib.fby_verdict_create(ranks_in(ranks), number, out))
        self._pointer = ffi.gc(out[0], lib.fby_verdict_free)
        self._lock = threading.Lock()

    def receive(self, message: Buffer) -> None:
        """Takes the report of a rank on this decision (``fby_verdict_receive``); a second one of a rank is dropped.

        Raises:
            ArgumentError: on another decision.
            StaleError: of another incarnation, or of a rank that was declared lost.
            FormatError: not such a message.
            ChecksumError: it was changed on the way.
        """
        data = ffi.from_buffer("char[]", message)
        with self._lock:
            check(lib.fby_verdict_receive(self._pointer, data, len(data)))

    def lost(self, rank: int) -> None:
        """``rank`` is dead: nobody waits for its report (``fby_verdict_lost``).

        Raises:
            ArgumentError: no such rank.
        """
        with self._lock:
            check(lib.fby_verdict_lost(self._pointer, rank))

    def result(self) -> Result | None:
        """None while reports are missing, else how it ended for all (``fby_verdict_result``)."""
        raw = _sized("fby_result_t")
        with self._lock:
            code = lib.fby_verdict_result(self._pointer, raw)
            if code == -errno.EAGAIN:
                return None
            check(code)
            return _result_out(raw)

    def waits_for(self) -> str:
        """Who is waited for, as text for people; empty when every rank reported or is lost."""
        with self._lock:
            code = lib.fby_verdict_result(self._pointer, _sized("fby_result_t"))
            return text(lib.fby_last_error()) if code == -errno.EAGAIN else ""

    def encode(self) -> bytes:
        """The message to all ranks (``fby_verdict_encode``).

        Raises:
            OSError: ``EAGAIN``: reports are missing; the detail says whose.
        """
        with self._lock:
            return encoded(lambda out, room, needed: int(lib.fby_verdict_encode(self._pointer, out, room, needed)))


# ---- Follower --------------------------------------------------------------------------------------------------------


class Follower:
    """A rank's end of the log (``fby_follower_t``). Threads take turns. Iterating takes the decisions that are there.

    A load or save that :meth:`next` gave is open until :meth:`result` gave its end.

    Args:
        ranks: from :func:`compare_cards`, with this rank's number.

    Raises:
        ArgumentError: a field of ``ranks``.
    """

    __slots__ = ("_lock", "_pointer")

    def __init__(self, ranks: Ranks) -> None:
        out = ffi.new("fby_follower_t **")
        check(lib.fby_follower_create(ranks_in(ranks), out))
        self._pointer = ffi.gc(out[0], lib.fby_follower_free)
        self._lock = threading.Lock()

    def receive(self, message: Buffer) -> None:
        """Takes decisions and verdicts, in any order of arrival (``fby_follower_receive``).

        Raises:
            CapacityError: beyond the window; the detail names the first that was not kept. All before it were taken.
            StateError: the verdict on a decision that this rank did not report: it was taken for lost.
            LeaderLostError: after :meth:`leader_lost`.
            StaleError: of another incarnation.
            FormatError: not such a message.
            ChecksumError: it was changed on the way.
        """
        data = ffi.from_buffer("char[]", message)
        with self._lock:
            check(lib.fby_follower_receive(self._pointer, data, len(data)))

    def next(self) -> Decision | None:
        """The next decision in the order of numbers, each once; None when there is none yet (``fby_follower_next``).

        Raises:
            MissingDecisionError: a gap; :attr:`missing` says which, to be asked for.
            BusyError: as many open ones as the window has.
            StateError: the log has ended.
            LeaderLostError: after :meth:`leader_lost`.
        """
        raw = _sized("fby_decision_t")
        with self._lock:
            code = lib.fby_follower_next(self._pointer, raw)
            if code == -errno.EAGAIN:
                return None
            check(code)
            return _decision_out(raw)

    def __iter__(self) -> Iterator[Decision]:
        while (decision := self.next()) is not None:
            yield decision

    @property
    def missing(self) -> range:
        """The first gap: numbers of decisions that did not come while later ones did (``fby_follower_missing``)."""
        first, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        with self._lock:
            check(lib.fby_follower_missing(self._pointer, first, end))
        return range(first[0], end[0])

    def acknowledge(self) -> bytes:
        """The message "this rank has all decisions up to ..." (``fby_follower_acknowledge``); empty: nothing to say.

        Send it once in a while, at the latest each quarter of a window, and when something is missing.
        """
        with self._lock:
            return encoded(
                lambda out, room, needed: int(lib.fby_follower_acknowledge(self._pointer, out, room, needed))
            )

    def report(self, number: int, code: int = 0, failed: Iterable[tuple[int, int]] = ()) -> bytes:
        """The message with this rank's report on an open decision, after its copy ended (``fby_follower_report``).

        Args:
            number: of the decision.
            code: 0, or how it failed, as :attr:`CopyStatus.error` has it.
            failed: (group, block) of the blocks not to be used. With a code and none here, none may be used.

        Raises:
            MissingFileError: ``ENOENT``: the decision is not open.
            StateError: reported otherwise before.
        """
        blocks = [tuple(one) for one in failed]
        raw, array = _sized("fby_result_t"), ffi.new("fby_failed_block_t[]", len(blocks))
        for one, (group, block) in zip(array, blocks, strict=True):
            one.group, one.block = group, block
        raw.code, raw.number, raw.failed_count, raw.failed = code, number, len(blocks), array
        with self._lock:
            return encoded(
                lambda out, room, needed: int(lib.fby_follower_report(self._pointer, raw, out, room, needed))
            )

    def result(self) -> Result | None:
        """How an open decision ended for all ranks, each once; None: none yet (``fby_follower_result``)."""
        raw = _sized("fby_result_t")
        with self._lock:
            code = lib.fby_follower_result(self._pointer, raw)
            if code == -errno.EAGAIN:
                return None
            check(code)
            return _result_out(raw)

    def leader_lost(self) -> None:
        """The leader is dead (``fby_follower_leader_lost``): every open decision ends with ``-EOWNERDEAD``.

        Slots may still be touched by copies under way: end those first, then use nothing of them. Idempotent.
        """
        with self._lock:
            check(lib.fby_follower_leader_lost(self._pointer))
