"""Servers: who is connected, and groups of ranks whose messages travel through one (docs/server.md)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._card import Ranks, ranks_out
from ._errors import RankLostError, check, text
from ._forebay import ffi, lib
from ._hold import Hold
from ._pin import Core
from ._put import Put
from ._wait import wait_in_slices

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FIRST_ROOM = 1 << 16  # bytes of a received message that are tried first: what one message of the socket holds

CALL_TIMEOUT_S = 5.0
"""How long a server may take to answer before it is taken for gone (``FBY_CONNECT_OPTIONS_INIT``)."""

RECONNECT_S = 0.5
"""Least time between two attempts to reach a server again (``FBY_CONNECT_OPTIONS_INIT``)."""


@dataclass(frozen=True, slots=True)
class ServerClient:
    """A client of a server (``fby_server_client_t``). Ages are nanoseconds.

    Attributes:
        client: its number; never used again by this server.
        name: as it named itself; by default its command.
        pid: as the server sees it; 0: of another PID namespace.
        uid: of its user.
        sessions: that it has now, as the next four.
        holds: likewise.
        puts: likewise.
        subscriptions: likewise.
        sequences: likewise.
        ended: its socket is closed, but the process still lives and could write to slots of its puts.
        pinned_bytes: what its holds cover, each counted in full.
        sequence_bytes: memory of its sequences.
        fenced_bytes: slots that wait for the end of its process.
        calls: so far.
        refused: calls over a limit.
        connected_ns: since when, as an age.
    """

    client: int
    name: str
    pid: int
    uid: int
    sessions: int
    holds: int
    puts: int
    subscriptions: int
    sequences: int
    ended: bool
    pinned_bytes: int
    sequence_bytes: int
    fenced_bytes: int
    calls: int
    refused: int
    connected_ns: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server behind a cache (``fby_server_info_t``). Counters are since it began to listen.

    Attributes:
        version: of its library.
        pid: of its process.
        stopping: a graceful stop is under way.
        age_ns: since it began to listen, in nanoseconds.
        accepted: connections.
        refused: connections that were refused: user, version, number.
        violations: connections closed for traffic that no client sends.
        deaths: connections that ended without saying so.
        calls: of all clients.
        limit_refused: calls over a limit per client.
        fenced_bytes: slots of ended clients whose processes still live.
        clients: who is there now; at most 256 are listed.
    """

    version: str
    pid: int
    stopping: bool
    age_ns: int
    accepted: int
    refused: int
    violations: int
    deaths: int
    calls: int
    limit_refused: int
    fenced_bytes: int
    clients: tuple[ServerClient, ...]


def _client(raw: Any) -> ServerClient:
    return ServerClient(
        int(raw.client),
        text(raw.name),
        raw.pid,
        raw.uid,
        raw.sessions,
        raw.holds,
        raw.puts,
        raw.subscriptions,
        raw.sequences,
        bool(raw.ended),
        int(raw.pinned_bytes),
        int(raw.sequence_bytes),
        int(raw.fenced_bytes),
        int(raw.calls),
        int(raw.refused),
        int(raw.connected_ns),
    )


def server_info(core: Core) -> ServerInfo:
    """``fby_server_info``; see :meth:`Cache.server_info`."""
    raw, count, room = ffi.new("fby_server_info_t *"), ffi.new("size_t *"), 64
    while True:
        raw.size = ffi.sizeof("fby_server_info_t")
        clients = ffi.new("fby_server_client_t[]", room)
        check(lib.fby_server_info(core.pointer, raw, clients, room, count))
        if count[0] < room or raw.clients <= room:
            break
        room = 2 * int(raw.clients)  # some come meanwhile
    return ServerInfo(
        text(raw.version),
        raw.pid,
        bool(raw.stopping),
        int(raw.age_ns),
        int(raw.accepted),
        int(raw.refused),
        int(raw.violations),
        int(raw.deaths),
        int(raw.calls),
        int(raw.limit_refused),
        int(raw.fenced_bytes),
        tuple(_client(one) for one in clients[0 : count[0]]),
    )


def connect_pointer(path: str | bytes, call_timeout_s: float, reconnect_s: float, name: str | None) -> Any:
    """``fby_connect``: ``fby_cache_t *``; see :func:`forebay.connect`."""
    options, out = ffi.new("fby_connect_options_t *"), ffi.new("fby_cache_t **")
    options.size = ffi.sizeof("fby_connect_options_t")
    options.call_timeout_s, options.reconnect_s = call_timeout_s, reconnect_s
    own = ffi.NULL if name is None else ffi.new("char[]", name.encode("utf-8"))
    options.name = own
    check(lib.fby_connect(path, options, out))
    return out[0]


def _handle(thing: Hold | Put | int) -> int:
    return thing if isinstance(thing, int) else thing.handle


class RankGroup:
    """A group of ranks over a server, as one of them sees it; made by :meth:`Cache.join`.

    The leader is rank 0. Each rank has a connection of its own. May be used from any thread. When a rank that died
    joins again, all others get :class:`RankLostError` until they joined again, too.

    Attributes:
        name: of the group.
        ranks: how many there are, which one this is, and the incarnation: what :class:`Leader` and :class:`Follower` of
            this life of the group are made with.
    """

    __slots__ = ("_core", "name", "ranks")

    def __init__(self, core: Core, name: str, rank: int, ranks: int, card: Buffer, limit_s: float) -> None:
        data, out = ffi.from_buffer("char[]", card), ffi.new("fby_ranks_t *")
        out.size = ffi.sizeof("fby_ranks_t")
        check(lib.fby_group_join(core.pointer, name.encode("utf-8"), rank, ranks, data, len(data), limit_s, out))
        self._core = core
        self.name = name
        self.ranks: Ranks = ranks_out(out)

    def send(self, message: Buffer) -> None:
        """Leader: sends decisions to all ranks, itself included (``fby_group_send``).

        Args:
            message: from :meth:`Leader.encode`.

        Raises:
            OSError: ``ENOSPC``: the slowest rank has 1 MiB still to read.
            RankLostError: a rank is dead.
            AwayError: the server is away.
        """
        data = ffi.from_buffer("char[]", message)
        check(lib.fby_group_send(self._core.pointer, data, len(data)))

    def receive(self, timeout: float | None = None) -> bytes:
        """The leader's next message, in order, each once, for :meth:`Follower.receive` (``fby_group_receive``).

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed.
            RankLostError: a rank is dead; ``rank`` of the exception says which.
            AwayError: the server is away.
        """
        pointer, length = self._core.pointer, ffi.new("size_t *")

        def call(out: Any, room: int, seconds: float) -> int:
            return int(lib.fby_group_receive(pointer, out, room, length, seconds))

        try:
            return _received(call, length, timeout)
        except RankLostError as failure:
            failure.rank = int(length[0])
            raise

    def report(self, message: Buffer) -> None:
        """This rank's report on a decision (``fby_group_report``).

        Args:
            message: from :meth:`Follower.report`.

        Raises:
            RankLostError: a rank has joined again.
            AwayError: the server is away.
        """
        data = ffi.from_buffer("char[]", message)
        check(lib.fby_group_report(self._core.pointer, data, len(data)))

    def verdict(self, number: int, timeout: float | None = None) -> bytes:
        """What all ranks reported on a decision, for :meth:`Follower.receive` (``fby_group_verdict``).

        Reports of lost ranks are not waited for: the verdict names them.

        Args:
            number: of the decision; the last 1,024 are kept.
            timeout: seconds; None waits for ever.

        Raises:
            WaitTimeoutError: the time passed.
            MissingFileError: ``ENOENT``: not kept any more.
            RankLostError: a rank has joined again.
            AwayError: the server is away.
        """
        pointer, length = self._core.pointer, ffi.new("size_t *")

        def call(out: Any, room: int, seconds: float) -> int:
            return int(lib.fby_group_verdict(pointer, number, out, room, length, seconds))

        return _received(call, length, timeout)

    def grant(self, thing: Hold | Put) -> None:
        """Leader: every joined rank may use a hold or put until :meth:`done` or its end.

        ``fby_group_grant_hold``: the hold's memory is free once the leader released it and all ranks are done. Grant
        it before the decision is sent. ``fby_group_grant_put``: till all are done, the put's commit is a StateError,
        and its end frees the slots only afterwards.

        Raises:
            StaleError: the hold or put has ended.
            AwayError: the server is away.
        """
        call = lib.fby_group_grant_put if isinstance(thing, Put) else lib.fby_group_grant_hold
        check(call(self._core.pointer, thing.handle))

    def done(self, thing: Hold | Put | int) -> None:
        """This rank has finished with a granted hold or put (``fby_group_done``).

        Args:
            thing: :attr:`Decision.object`, or the hold or put itself.

        Raises:
            StaleError: it was not granted, or it is over.
        """
        check(lib.fby_group_done(self._core.pointer, _handle(thing)))

    def __repr__(self) -> str:
        return f"<forebay.RankGroup {self.name!r}, rank {self.ranks.rank} of {self.ranks.ranks}>"


def _received(call: Callable[[Any, int, float], int], length: Any, timeout: float | None) -> bytes:
    """What a waiting call writes into a buffer; the buffer grows up to what a message may have."""
    room = _FIRST_ROOM
    while True:
        out, codes = ffi.new("unsigned char[]", room), [0]

        def attempt(seconds: float, out: Any = out, room: int = room, codes: list[int] = codes) -> int:
            codes[0] = call(out, room, seconds)
            return 0 if codes[0] == -errno.ENOSPC and room < lib.FBY_MESSAGE_BYTES else codes[0]

        wait_in_slices(attempt, timeout)
        if codes[0] == 0:
            return bytes(ffi.buffer(out, length[0]))
        room *= 4
