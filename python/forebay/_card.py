"""Cards: what each rank is configured as, compared at start-up (docs/ranks.md)."""

from __future__ import annotations

import errno
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError, check, text
from ._forebay import ffi, lib
from ._pool import Pool, pool_in

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._records import Model

_FIRST_ROOM = 4096  # bytes that are tried first
_TEXT_ROOM = 1 << 16  # of a comparison: the values of many ranks


def encoded(call: Callable[[Any, int, Any], int], room: int = _FIRST_ROOM) -> bytes:
    """A message that a call writes into a buffer, which grows as long as the call says so.

    Args:
        call: takes buffer, capacity and where the needed size goes; returns a code.
        room: bytes that are tried first.

    Raises:
        ForebayError: any code but "too small".
    """
    needed = ffi.new("size_t *")
    while True:
        out = ffi.new("unsigned char[]", room)
        code = call(out, room, needed)
        if code == -errno.ENOSPC and needed[0] > room:
            room = int(needed[0])
            continue
        check(code)
        return bytes(ffi.buffer(out, needed[0]))


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that act together (``fby_ranks_t``): equal on all but for ``rank``. :func:`compare_cards` makes one.

    Attributes:
        ranks: how many, 1 to 65,536.
        rank: this one; a leader and a verdict do not look at it.
        incarnation: number of this life of the group, not 0.
        window: decisions that are kept until acknowledged (leader) or applied (follower); 0: 1,024.
        window_bytes: bytes of them, encoded; 0: 64 MiB.
        first_number: of the log; 0: 1.
    """

    ranks: int
    rank: int
    incarnation: int
    window: int = 0
    window_bytes: int = 0
    first_number: int = 0

    def of(self, rank: int) -> Ranks:
        """The same from the view of another rank."""
        return replace(self, rank=rank)


def ranks_in(ranks: Ranks) -> Any:
    """``fby_ranks_t`` of it."""
    raw = ffi.new("fby_ranks_t *")
    raw.size = ffi.sizeof("fby_ranks_t")
    raw.ranks, raw.rank, raw.incarnation = ranks.ranks, ranks.rank, ranks.incarnation
    raw.window, raw.window_bytes, raw.first_number = ranks.window, ranks.window_bytes, ranks.first_number
    return raw


def ranks_out(raw: Any) -> Ranks:
    """What a ``fby_ranks_t`` says."""
    return Ranks(
        int(raw.ranks),
        int(raw.rank),
        int(raw.incarnation),
        int(raw.window),
        int(raw.window_bytes),
        int(raw.first_number),
    )


def _model_in(model: Model) -> Any:
    raw = ffi.new("fby_model_t *")
    raw.size = ffi.sizeof("fby_model_t")
    if len(model.groups) > len(raw.group):
        raise ValueError(f"the model has {len(model.groups)} groups; accepted: 1 to {len(raw.group)}")
    raw.block_tokens, raw.groups = model.block_tokens, len(model.groups)
    for one, group in zip(raw.group, model.groups, strict=False):
        one.name = group.name.encode("utf-8")
        one.payload_bytes, one.slot_bytes, one.trailing = group.payload_bytes, group.slot_bytes, group.trailing
    raw.fingerprint = model.fingerprint.encode("ascii")
    return raw


class Card:
    """What one rank is configured as: named fields with text values (``fby_card_t``). Threads take turns.

    Args:
        rank: of this process.
        ranks: how many there are.
        incarnation: a random number that this process drew at its start, not 0; None draws one.

    Raises:
        ArgumentError: a number is out of range.
    """

    __slots__ = ("_lock", "_pointer")

    def __init__(self, rank: int, ranks: int, incarnation: int | None = None) -> None:
        out = ffi.new("fby_card_t **")
        drawn = secrets.randbits(64) | 1 if incarnation is None else incarnation
        check(lib.fby_card_create(rank, ranks, drawn, out))
        self._pointer = ffi.gc(out[0], lib.fby_card_free)
        self._lock = threading.Lock()

    def set(self, name: str, value: str | int, *, per_rank: bool = False) -> None:
        """Sets a field, or sets it again (``fby_card_set``, ``fby_card_set_number``).

        Args:
            name: 1 to 63 letters, digits and ``._-``.
            value: text of at most 255 bytes without control characters, or a number from 0 on.
            per_rank: it may differ from rank to rank, or be missing.

        Raises:
            ArgumentError: name or value; the detail says what is accepted.
            OSError: there are 256 fields.
        """
        key, flags = name.encode("utf-8"), lib.FBY_CARD_PER_RANK * per_rank
        with self._lock:
            if isinstance(value, int):
                check(lib.fby_card_set_number(self._pointer, key, value, flags))
            else:
                check(lib.fby_card_set(self._pointer, key, value.encode("utf-8"), flags))

    def set_digest(self, name: str, data: Buffer, *, per_rank: bool = False) -> None:
        """Sets a field to 32 hex digits over any bytes: tokens, a layout, a file (``fby_card_set_digest``).

        Args:
            name: as for :meth:`set`.
            data: a contiguous buffer. Numbers in it should be little-endian.
            per_rank: as for :meth:`set`.

        Raises:
            ForebayError: as for :meth:`set`.
        """
        raw = ffi.from_buffer("char[]", data)
        with self._lock:
            check(
                lib.fby_card_set_digest(
                    self._pointer, name.encode("utf-8"), raw, len(raw), lib.FBY_CARD_PER_RANK * per_rank
                )
            )

    def set_model(self, model: Model) -> None:
        """Sets the fields ``model.*`` (``fby_card_set_model``).

        Raises:
            ForebayError: as for :meth:`set`.
        """
        raw = _model_in(model)
        with self._lock:
            check(lib.fby_card_set_model(self._pointer, raw))

    def set_pool(self, pool: Pool) -> None:
        """Sets the fields ``pool.*`` (``fby_card_set_pool``); the descriptor is not one of them.

        Raises:
            ForebayError: as for :meth:`set`.
        """
        raw = pool_in(pool)
        with self._lock:
            check(lib.fby_card_set_pool(self._pointer, raw))

    def encode(self) -> bytes:
        """The message to all ranks (``fby_card_encode``)."""
        with self._lock:
            return encoded(lambda out, room, needed: int(lib.fby_card_encode(self._pointer, out, room, needed)))


def compare_cards(cards: Sequence[bytes | None], rank: int = 0) -> Ranks:
    """Compares the cards of all ranks (``fby_cards_compare``); all ranks that saw the same cards get the same answer.

    Args:
        cards: encoded, in any order; None for one that did not come in time.
        rank: this one, for the result.

    Returns:
        what leaders, followers and verdicts are made with.

    Raises:
        ConfigError: they differ; the detail has the field and the values of all ranks:
            ``"model.kv_dtype: rank 0 bf16, rank 1 f16"``. Or a card is missing, double or out of range.
    """
    raw = [ffi.NULL if card is None else ffi.from_buffer("char[]", card) for card in cards]
    pointers = ffi.new("void *[]", raw)
    lengths = ffi.new("size_t[]", [0 if card is None else len(card) for card in cards])
    out, why = ffi.new("fby_ranks_t *"), ffi.new("char[]", _TEXT_ROOM)
    out.size = ffi.sizeof("fby_ranks_t")
    code = lib.fby_cards_compare(pointers, lengths, len(cards), out, why, _TEXT_ROOM)
    if code == lib.FBY_E_CONFIG:
        raise ConfigError(code, text(why))
    check(code)
    return replace(ranks_out(out), rank=rank)
