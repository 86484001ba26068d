"""How bytes go from one rank to all and back: over the gloo group of SGLang's schedulers, or not at all."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any, Protocol

GATHER_BYTES = 1024
"""Longest message of :meth:`Carrier.gather`."""

_FIRST_BYTES = 4096  # of a broadcast: what does not fit goes as a second one
_LENGTH = struct.Struct("<I")


class Carrier(Protocol):
    """What carries. All calls are collective: every rank makes them, in the same order, from one thread.

    Attributes:
        rank: of this process, from 0 on; 0 leads.
        size: ranks.
    """

    rank: int
    size: int

    def exchange(self, card: bytes, limit_s: float) -> list[bytes | None]:
        """The cards of all ranks, by rank; None: it did not come within the limit. Breaks nothing."""

    def broadcast(self, message: bytes | None) -> bytes:
        """The leader's message; the others give None.

        Raises:
            ConnectionError: a rank is gone.
        """

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all ranks, by rank, each of at most ``GATHER_BYTES``.

        Raises:
            ConnectionError: a rank is gone.
        """


class Alone:
    """One rank: everything is its own."""

    rank, size = 0, 1

    def exchange(self, card: bytes, limit_s: float) -> list[bytes | None]:
        """See :class:`Carrier`."""
        del limit_s
        return [card]

    def broadcast(self, message: bytes | None) -> bytes:
        """See :class:`Carrier`."""
        return message or b""

    def gather(self, message: bytes) -> list[bytes]:
        """See :class:`Carrier`."""
        return [message]


class GlooCarrier:
    """Over a ``torch.distributed`` group of CPU tensors, the one that the schedulers share their requests with.

    Cards go through the group's key-value store: a wait for a rank that never comes would break a collective's
    connections, and could not say which rank it is.

    Args:
        group: of more than one rank.
    """

    _exchanges: dict[str, int] = {}  # noqa: RUF012 (by name of the group: a second exchange must not see the first)

    def __init__(self, group: Any) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]
        import torch.distributed as distributed  # type: ignore[import-not-found, unused-ignore]

        self._torch, self._distributed, self._group = torch, distributed, group
        self.rank, self.size = int(distributed.get_rank(group)), int(distributed.get_world_size(group))
        self._source = distributed.get_global_rank(group, 0)

    def exchange(self, card: bytes, limit_s: float) -> list[bytes | None]:
        """See :class:`Carrier`."""
        import time

        store = self._distributed.distributed_c10d._get_process_group_store(self._group)
        name = str(self._group.group_name)
        count = self._exchanges[name] = self._exchanges.get(name, 0) + 1
        store.set(f"forebay/{count}/{self.rank}", card)
        limit = time.monotonic() + limit_s
        cards: list[bytes | None] = []
        for rank in range(self.size):
            key = f"forebay/{count}/{rank}"
            try:
                store.wait([key], timedelta(seconds=max(limit - time.monotonic(), 0.01)))
                cards.append(bytes(store.get(key)))
            except RuntimeError:
                cards.append(None)
        return cards

    def _tensor(self, data: bytes, room: int) -> Any:
        framed = bytearray(room)
        _LENGTH.pack_into(framed, 0, len(data))
        framed[4 : 4 + len(data)] = data[: room - 4]
        return self._torch.frombuffer(framed, dtype=self._torch.uint8)

    def _sent(self, tensor: Any) -> bytes:
        try:
            self._distributed.broadcast(tensor, src=self._source, group=self._group)
        except RuntimeError as error:
            raise ConnectionError(f"a rank is gone: {error}") from error
        return bytes(tensor.numpy().tobytes())

    def broadcast(self, message: bytes | None) -> bytes:
        """See :class:`Carrier`."""
        given = message or b""
        first = self._sent(self._tensor(given, _FIRST_BYTES))
        (length,) = _LENGTH.unpack_from(first)
        inner = first[4 : 4 + length]
        left = length - len(inner)
        return inner if left == 0 else inner + self._sent(self._tensor(given[len(inner) :], 4 + left))[4:]

    def gather(self, message: bytes) -> list[bytes]:
        """See :class:`Carrier`."""
        if len(message) > GATHER_BYTES:
            raise ValueError(f"a message of {len(message)} bytes; accepted: at most {GATHER_BYTES}")
        mine = self._tensor(message, 4 + GATHER_BYTES)
        theirs = [self._torch.empty_like(mine) for _ in range(self.size)]
        try:
            self._distributed.all_gather(theirs, mine, group=self._group)
        except RuntimeError as error:
            raise ConnectionError(f"a rank is gone: {error}") from error
        raw = [bytes(one.numpy().tobytes()) for one in theirs]
        return [one[4 : 4 + _LENGTH.unpack_from(one)[0]] for one in raw]


def carrier_of(group: Any) -> Carrier:
    """The carrier over a group of ``torch.distributed``; None and groups of one rank need none."""
    if group is None:
        return Alone()
    found = GlooCarrier(group)
    return found if found.size > 1 else Alone()
