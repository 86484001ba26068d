"""Tensor-parallel ranks in step: start-up cards, one log of decisions, one verdict per copy (docs/ranks.md).

Each rank of SGLang is a process with a scheduler of its own; all of them get the same requests and take the same steps.
The first one has the cache and decides. What it decides travels through the group that the schedulers share their
requests with, so it comes to all at the same place of the same step. Every function here is called by all ranks in the
same order; with one rank nothing travels.
"""

from __future__ import annotations

import errno
import pickle
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import forebay

from ..common import attach
from .carrier import GATHER_BYTES, Carrier, carrier_of

if TYPE_CHECKING:
    from ..common.address import Instance
    from ..common.model import EngineModel

__all__ = ["Attached", "Ranks", "RanksError", "attach_all", "carrier_of", "refuse_other_groups"]

EXCHANGE_LIMIT_S = 60.0
"""How long the start-up exchange waits for the other ranks' cards."""

_MOST_FAILED = 128  # blocks of one report: more do not fit, and are said as "all"
_MOST_VALUE = 255  # bytes of a card's field
_LENGTH = struct.Struct("<I")


class RanksError(RuntimeError):
    """The ranks cannot work together; every rank raises it, with the same text.

    Attributes:
        is_away: a server is not there now: the same call may succeed later.
    """

    def __init__(self, message: str, *, is_away: bool = False) -> None:
        super().__init__(message)
        self.is_away = is_away


def refuse_other_groups(params: Any) -> None:
    """Refuses layouts of ranks that this module does not know.

    Args:
        params: SGLang's ``CacheInitParams``.

    Raises:
        ValueError: pipeline or context parallelism.
    """
    for name in ("pp_size", "attn_cp_size"):
        size = int(getattr(params, name, 1))
        if size != 1:
            raise ValueError(f"{name} is {size}; accepted with Forebay: 1 (tensor parallelism is any)")


class Ranks:
    """The ranks that share one cache, as one of them sees them. One thread calls it.

    Args:
        carrier: from :func:`carrier_of`.

    Attributes:
        rank: of this process; 0 leads.
        size: how many.
        messages: exchanges so far, of cards, decisions and reports; with one rank it stays 0.
        lost: why the others cannot be reached any more; None: they can. Afterwards nothing is sent: there are no
            decisions, and copies have failed.
        refused: leader: decisions of the last :meth:`decide` that the log did not take, and why.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self.rank, self.size = carrier.rank, carrier.size
        self.messages = 0
        self.lost: str | None = None
        self.refused: list[tuple[forebay.Decision, Exception]] = []
        self._number = 0  # of the last decision, with one rank
        self._group: forebay.Ranks | None = None
        self._leader: forebay.Leader | None = None
        self._follower: forebay.Follower | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this rank has the cache and decides."""
        return self.rank == 0

    # ---- Start ----

    def agree(
        self, fields: Mapping[str, str], *, problem: str | None = None, limit_s: float = EXCHANGE_LIMIT_S
    ) -> None:
        """Compares what the ranks are configured as; all start, or none.

        Args:
            fields: text by name; what has to be equal on all ranks.
            problem: why this rank cannot start.
            limit_s: how long to wait for the others.

        Raises:
            RanksError: they differ, one has a problem, or one did not come. The text has the field and all values.
        """
        if self.size > 1:
            self.messages += 1
            cards = self._carrier.exchange(self._card(fields, problem), limit_s)
            try:
                self._group = forebay.compare_cards(cards, self.rank)
            except forebay.ConfigError as error:
                raise RanksError(f"the ranks cannot start together: {error.detail}") from error
        if problem is not None:
            raise RanksError(problem)  # of all ranks the same one
        if self._group is not None:
            self._follower = forebay.Follower(self._group)
            self._leader = forebay.Leader(self._group) if self.is_leader else None

    def _card(self, fields: Mapping[str, str], problem: str | None) -> bytes:
        card = forebay.Card(self.rank, self.size)
        card.set("start", _field_text(problem or "ready"))
        card.set("forebay.version", forebay.__version__)
        for name, value in fields.items():
            key = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:63]
            if len(value.encode()) > _MOST_VALUE:
                card.set_digest(key, value.encode())
            else:
                card.set(key, _field_text(value))
        return card.encode()

    # ---- Exchanges ----

    def _broadcast(self, message: bytes | None) -> bytes:
        """The leader's message; empty when the others are lost."""
        if self.lost is not None:
            return b""
        self.messages += 1
        try:
            return self._carrier.broadcast(message)
        except ConnectionError as error:
            self._lose(error)
            return b""

    def _gather(self, message: bytes) -> list[bytes] | None:
        """The messages of all ranks; None: the others are lost."""
        if self.lost is not None:
            return None
        self.messages += 1
        try:
            return self._carrier.gather(message)
        except ConnectionError as error:
            self._lose(error)
            return None

    def _lose(self, error: BaseException) -> None:
        self.lost = str(error)
        if self._follower is not None:
            self._follower.leader_lost()

    def share(self, thing: Any) -> Any:
        """The leader's object on all ranks; what the others give does not count. One message.

        Raises:
            RanksError: the others are lost.
        """
        if self.size == 1:
            return thing
        got = self._broadcast(pickle.dumps(thing) if self.is_leader else None)
        if self.lost is not None:
            raise RanksError(self.lost)
        return pickle.loads(got)

    def minimum(self, *values: int) -> list[int]:
        """The least of all ranks' values, one by one. One message. Zeros when the others are lost."""
        if self.size == 1:
            return list(values)
        form = struct.Struct(f"<{len(values)}q")
        rows = self._gather(form.pack(*values))
        if rows is None:
            return [0] * len(values)
        return [min(column) for column in zip(*(form.unpack(row) for row in rows), strict=True)]

    def unanimous(self, what: str, problem: BaseException | None) -> None:
        """Every rank has done something, or none counts as having done it. One message.

        Args:
            what: it was.
            problem: of this rank.

        Raises:
            RanksError: a rank has a problem; the text names the lowest such rank.
        """
        away = isinstance(problem, attach.AwayError)
        if self.size == 1:
            if problem is not None:
                raise RanksError(f"{what}: {problem}", is_away=away) from problem
            return
        own = b"" if problem is None else (b"~" if away else b"!") + str(problem).encode()
        rows = self._gather(own[:GATHER_BYTES])
        if rows is None:
            raise RanksError(f"{what}: {self.lost}")
        failed = [(rank, row) for rank, row in enumerate(rows) if row]
        if failed:
            rank, row = failed[0]
            text = row[1:].decode(errors="replace")
            is_away = all(one.startswith(b"~") for _, one in failed)
            raise RanksError(f"{what}: rank {rank}: {text}", is_away=is_away)

    # ---- Decisions ----

    def decide(self, made: Sequence[forebay.Decision] | None) -> list[forebay.Decision]:
        """The leader's decisions on all ranks, numbered, in one order. One message, also when there are none.

        Loads and saves among them are to be answered with :meth:`conclude`, in their order.

        Args:
            made: the leader's; None on the other ranks.

        Returns:
            the same on all ranks; without those that the log did not take, which are in :attr:`refused`.
        """
        if self.size == 1:
            numbered = [replace(one, number=self._number + 1 + i) for i, one in enumerate(made or ())]
            self._number += len(numbered)
            return numbered
        if self._follower is None:
            raise RuntimeError("the ranks have not agreed")
        received = self._broadcast(self._encode(made or ()) if self.is_leader else None)
        if self.lost is not None:
            return []
        for message in _unframed(received):
            self._follower.receive(message)
        return list(self._follower)

    def _encode(self, made: Sequence[forebay.Decision]) -> bytes:
        """Numbers decisions. The channel neither loses nor reorders: what was sent need not be kept."""
        assert self._leader is not None
        number, self.refused = self._leader.next, []
        for decision in made:
            try:
                self._leader.decide(decision)
            except (forebay.ForebayError, ValueError) as error:
                self.refused.append((decision, error))
        frames = []
        while number < self._leader.next:
            message, number = self._leader.encode(number)
            frames.append(_LENGTH.pack(len(message)) + message)
        for rank in range(self.size):
            self._leader.acknowledge(rank, number - 1)
        return b"".join(frames)

    def conclude(self, number: int, code: int = 0, failed: Iterable[tuple[int, int]] = ()) -> forebay.Result:
        """How a load or save ended for all, after this rank's copies ended. One message.

        Args:
            number: of the decision.
            code: 0, or how this rank failed.
            failed: (group, block) of the blocks not to be used; with a code and none, none may be used.

        Returns:
            the same on all ranks: the code of the lowest rank that failed, and the union of the blocks.
        """
        blocks = sorted(set(failed))
        if blocks and code == 0:
            code = -errno.EIO
        if len(blocks) > _MOST_FAILED:
            blocks = []
        if self.size == 1:
            failures = tuple(forebay.FailedBlock(*one) for one in blocks)
            return forebay.Result(number, code, 0 if code else None, failures)
        assert self._follower is not None
        assert self._group is not None
        reports = None if self.lost is not None else self._gather(self._follower.report(number, code, blocks))
        if reports is None:
            return forebay.Result(number, -errno.ECONNRESET, None, ())
        verdict = forebay.Verdict(self._group, number)
        for report in reports:
            verdict.receive(report)
        self._follower.receive(verdict.encode())
        result = self._follower.result()
        assert result is not None
        return result


def _field_text(value: str) -> str:
    """As a card takes it: printable, and not too long."""
    text = "".join(letter if letter.isprintable() else " " for letter in value)
    while len(text.encode()) > _MOST_VALUE:
        text = text[: len(text) - 1]
    return text


def _unframed(data: bytes) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


# ---- The pool --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Attached:
    """The pool in this rank's process.

    Attributes:
        rank: copies between the pool and the KV tensors.
        kept: what lives as long as the rank: the connection to a server, or None.
        instance: which life of the cache it is.
        verify: loads check each slot.
    """

    rank: forebay.Rank
    kept: Any
    instance: Instance
    verify: bool

    def close(self) -> None:
        """Waits for copies and lets the pool go."""
        self.rank.detach()
        if self.kept is not None:
            self.kept.close(0)


def attach_all(
    ranks: Ranks,
    published: attach.PublishedPool | None,
    model: EngineModel,
    register: Callable[[forebay.Rank], None],
    *,
    device: str = "host",
    threads: int = 1,
) -> Attached:
    """Maps the leader's pool on every rank, the leader too. All have it on return, or none.

    Args:
        ranks: that have agreed.
        published: the leader's pool; None on the other ranks.
        model: of this rank.
        register: registers this rank's KV tensors.
        device: back end of the copies.
        threads: of one copy on the host.

    Raises:
        RanksError: a rank could not; ``is_away``: a server is not there now.
    """
    address = ranks.share(None if published is None else published.address)
    made: Attached | None = None
    problem: BaseException | None = None
    try:
        rank, kept = attach.attach_pool(address, model, ranks.rank, device=device, threads=threads, name="sglang")
        made = Attached(rank, kept, address.instance, address.verify)
        register(rank)
    except Exception as error:
        problem = error
    try:
        ranks.unanimous("attaching the pool", problem)
    except RanksError:
        if made is not None:
            made.close()
        raise
    if published is not None:
        published.close()
    assert made is not None
    return made
