"""Caches: pool, index and store, and everything that is made from them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._config import Config
from ._errors import AbandonedError, ForkedError, check, error, text
from ._events import Subscription
from ._forebay import ffi, lib
from ._hold import Hold
from ._names import Breaker, Policy, Reason, StopMode
from ._pin import Core
from ._pool import Pool, pool_of
from ._put import Put
from ._quick import Snapshot
from ._quick import progress as _progress
from ._records import COUNTERS, CloseReport, Health, Model, Stats, read_model, sized
from ._sequence import Sequence
from ._server import CALL_TIMEOUT_S, RECONNECT_S, RankGroup, ServerInfo, connect_pointer, server_info
from ._session import Session, start_session
from ._tokens import NamespaceParts, Tokens

if TYPE_CHECKING:
    from typing_extensions import Buffer

CLOSE_LIMIT_S = 10.0
"""What :meth:`Cache.close` grants by default: enough for reads that are under way on a healthy store."""

EVENTS_KEPT = 1024
"""Events that a subscription keeps by default before the oldest are dropped."""


_METRICS_ROOM = 16 * 1024  # bytes that are tried first

_RESET_DONE: int = lib.FBY_RESET_DONE


class Cache:
    """A pool of CPU memory, an index over it, and one store (``fby_cache_t``). Opens when it is made.

    :func:`forebay.connect` gives the same object for a cache of another process.

    Every call may be made from any thread. A context manager: leaving it closes. After ``fork`` a child's calls raise
    :class:`ForkedError`.

    Args:
        config: a :class:`Config`, the path of a YAML or JSON file, a mapping for :class:`Config`, or None for the
            environment alone.
        **sections: sections of a configuration: ``Cache(model={...}, store={...})``. They win over ``config``, and are
            set in it when it is a :class:`Config`.

    Raises:
        ConfigError: the configuration is wrong; nothing was allocated.
        FormatError: the store is of a newer format.
        StaleError: the store knows a higher weights epoch.
        BusyError: the store's directory is in use.
        OutOfMemoryError: the pool cannot be mapped; the detail names what was asked and what there is.
        OSError: what the system said otherwise.
    """

    __slots__ = ("__weakref__", "_core", "_model")

    def __init__(
        self, config: Config | str | os.PathLike[str] | Mapping[str, Any] | None = None, **sections: Any
    ) -> None:
        if isinstance(config, (str, os.PathLike)):
            config = Config(path=config)
        elif not isinstance(config, Config):
            config = Config(config)
        config.update(sections)
        out = ffi.new("fby_cache_t **")
        check(lib.fby_cache_open(config._pointer, out))
        self._own(out[0])

    def _own(self, pointer: Any) -> None:
        self._model = read_model(pointer)
        self._core = Core(pointer, tuple(group.payload_bytes for group in self._model.groups))

    # ---- The cache as a whole ----

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._core.closed

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> CloseReport:
        """Seals every session, drains, frees; wakes every waiting call (``fby_cache_close``). Idempotent.

        Views of slots are revoked first. A connected cache leaves its server: what it had there ends, nothing is waited
        for.

        Args:
            limit_s: longest time in seconds; 0 is legal.

        Raises:
            BufferError: slices or arrays made from views are alive; the cache stays open.
            AbandonedError: operations did not end, what they may touch stays mapped; ``report`` of the exception is the
                :class:`CloseReport`. The cache is closed all the same.
            ForkedError: the cache is the parent process's.
        """
        if not limit_s >= 0:
            raise ValueError(f"limit_s is {limit_s!r}; accepted: seconds from 0 on")
        if os.getpid() != self._core.owner:  # before the views are revoked: in the child they are somebody else's
            raise ForkedError(lib.FBY_E_FORKED, "the cache was opened by the parent process, which closes it")
        self._core.seal()
        raw = sized("fby_close_report_t")
        code = lib.fby_cache_close(self._core.pointer, limit_s, raw)
        report = CloseReport(raw.sessions_aborted, raw.operations_abandoned, int(raw.bytes_abandoned))
        if code < 0:
            failure = error(code)
            if isinstance(failure, AbandonedError):
                failure.report = report
            raise failure
        return report

    def reset(self, wait_s: float = 0.0, *, bump_epoch: bool = False) -> bool:
        """Forgets every resident block (``fby_cache_reset``). Handles from before are stale; holds can be released.

        Args:
            wait_s: seconds to wait for what is in flight, held or being written; 0 does not wait.
            bump_epoch: also raises the weights epoch: sequences from before are stale, and the store's old objects
                cannot be reached. A persistent store keeps the new epoch first.

        Returns:
            True when it is done; False when it is under way, and completes by itself.

        Raises:
            ForebayError: the store could not keep the new epoch; nothing has changed.
        """
        return check(lib.fby_cache_reset(self._core.pointer, wait_s, int(bump_epoch))) == _RESET_DONE

    @property
    def epoch(self) -> int:
        """The weights epoch in force; 0 when the cache cannot be asked (``fby_cache_epoch``)."""
        return int(lib.fby_cache_epoch(self._core.pointer))

    @property
    def model(self) -> Model:
        """The model as configured (``fby_cache_model``)."""
        return self._model

    def stats(self) -> Stats:
        """All counters and gauges, from one moment (``fby_cache_stats``). Not for every scheduling step.

        Raises:
            ClosedError: the cache is closed.
        """
        raw = sized("fby_stats_t")
        check(lib.fby_cache_stats(self._core.pointer, raw))
        stats = Stats((name, int(getattr(raw, name))) for name in COUNTERS)
        stats.sessions_by_reason = {reason: int(raw.sessions_by_reason[i]) for i, reason in enumerate(Reason)}
        return stats

    def health(self) -> Health:
        """What an operator's probe asks (``fby_cache_health``).

        Raises:
            ClosedError: the cache is closed.
        """
        raw = sized("fby_health_t")
        check(lib.fby_cache_health(self._core.pointer, raw))
        return Health(
            bool(raw.healthy),
            int(raw.oldest_operation_ns),
            int(raw.oldest_draining_ns),
            int(raw.quarantined_bytes),
            int(raw.last_completion_ns),
            Breaker(raw.breaker),
            int(raw.breaker_retry_ns),
            text(raw.message),
        )

    def metrics(self) -> str:
        """All metrics as Prometheus text, format 0.0.4 (``fby_cache_metrics``).

        Raises:
            ClosedError: the cache is closed.
        """
        room, needed = _METRICS_ROOM, ffi.new("size_t *")
        while True:
            out = ffi.new("char[]", room)
            code = lib.fby_cache_metrics(self._core.pointer, out, room, needed)
            if code != -errno.ENOSPC:
                check(code)
                return text(out)
            room = 2 * int(needed[0])  # figures grow meanwhile

    def check(self) -> None:
        """Recomputes every counter and checks every invariant (``fby_cache_check``). Everybody waits: for tests.

        Raises:
            PoisonedError: an invariant is broken; the detail names it.
            AccessError: of a server without ``server.allow_check``.
        """
        check(lib.fby_cache_check(self._core.pointer))

    # ---- Over a server ----

    @property
    def connected(self) -> bool:
        """Whether a server is behind this cache now (``fby_cache_connected``); of a cache of this process always.

        Connects nothing: calls do that, at most once per ``reconnect_s``.

        Raises:
            ClosedError: the cache is closed.
        """
        return check(lib.fby_cache_connected(self._core.pointer)) != 0

    def server_info(self) -> ServerInfo:
        """The server behind this cache, and its clients (``fby_server_info``).

        Raises:
            StateError: a cache of this process without ``server.listen``.
            AwayError: the server is away.
        """
        return server_info(self._core)

    def join(self, group: str, rank: int, ranks: int, card: Buffer, limit_s: float) -> RankGroup:
        """Joins a group of ranks with this rank's card (``fby_group_join``), and waits until all are there.

        The server compares the cards: all ranks get the same answer. The wait is in one piece, without the
        interpreter's lock: an interrupt from the keyboard counts when it ends.

        Args:
            group: name of the group, at most 47 bytes.
            rank: of this process, 0 to ``ranks - 1``; 0 is the leader.
            ranks: how many there are.
            card: from :meth:`Card.encode`.
            limit_s: longest wait in seconds.

        Raises:
            ConfigError: the cards differ; the detail has the field and the values of all ranks.
            WaitTimeoutError: ranks are missing; the detail says which.
            OSError: ``EEXIST``: the group has a living rank of that number.
            StateError: a cache of this process.
            AwayError: the server is away.
        """
        return RankGroup(self._core, group, rank, ranks, card, limit_s)

    # ---- What is made from it ----

    def sequence(self, tokens: Tokens, namespace: NamespaceParts | None = None) -> Sequence:
        """A token string cut into blocks (``fby_seq_create``); hashes in the calling thread.

        Args:
            tokens: token ids, each 0 to 2**32 - 1: a sequence of ``int``, a buffer of 32-bit or 64-bit integers, or raw
                bytes, four per token in little-endian order.
            namespace: (kind, data) pairs or a mapping, in order; kinds are those of :class:`Namespace`. Sequences of
                different namespaces share nothing.

        Raises:
            ValueError: a token or a kind that is not accepted.
            ArgumentError: too many tokens.
        """
        return Sequence(self._core, tokens, namespace)

    def start(
        self,
        sequence: Sequence,
        *,
        policy: Policy | str | None = None,
        stop_mode: StopMode | str | None = None,
        predictive: bool | None = None,
        timeout_budget_s: float | None = None,
        candidate_start_token: int = 0,
        have_blocks: int = 0,
        min_tokens: int | None = None,
        label: str | None = None,
    ) -> Session:
        """Starts a prefetch (``fby_session_start``). Quick.

        Beyond ``prefetch.max_sessions`` the session is parked: its deadline runs, it begins when a place comes free.

        Args:
            sequence: what to prefetch.
            policy: when it stops claiming; None: ``prefetch.policy``.
            stop_mode: what a stop does with claimed work; None: ``prefetch.stop_mode``.
            predictive: claims a chunk only if it would end in time; None: ``prefetch.predictive``.
            timeout_budget_s: seconds; None: ``prefetch.timeout_budget_s``, else the formula of docs/policies.md.
            candidate_start_token: first token not on the device already; for the formula and ``min_tokens``.
            have_blocks: blocks that the device holds already; nothing before is read from the store.
            min_tokens: fewer candidates end at once; None: ``prefetch.min_tokens``.
            label: request id for logs, at most 47 bytes of it are kept; never part of a key.

        Raises:
            BusyError: the handle table is full.
            StaleError: the sequence is of an older weights epoch.
            NotEnabledError: another policy than wait_complete without ``prefetch.enabled``.
            ConfigError: break_even without ``prefetch.recompute_tokens_per_s``.
            ValueError: an argument is out of range.
        """
        arguments = (
            policy, stop_mode, predictive, timeout_budget_s, candidate_start_token, have_blocks, min_tokens, label,
        )  # fmt: skip
        return start_session(self._core, sequence, arguments)

    def progress(self, sessions: Iterable[Session], demand: Iterable[object] | None = None) -> list[Snapshot]:
        """One scheduling pass (``fby_session_progress``): for each session signals demand where asked, then polls.

        Args:
            sessions: sessions of this cache.
            demand: one truth value per session; None signals none.

        Returns:
            one snapshot per session; of a handle that is not known the state is EXPIRED and the error STALE.

        Raises:
            ValueError: not one demand per session.
        """
        wanted = None if demand is None else [bool(one) for one in demand]
        return _progress(self._core.address, [session.handle for session in sessions], wanted)

    def lookup(self, sequence: Sequence) -> Hold:
        """A hold on the longest usable resident prefix (``fby_lookup``). Never asks the store. Quick.

        Raises:
            CapacityError: it does not fit in ``pool.max_hold_bytes``, or in the room that sessions left.
            StaleError: the sequence is of an older weights epoch.
            BusyError: the hold table is full.
        """
        out, tokens = ffi.new("fby_hold_t *"), ffi.new("uint64_t *")
        with sequence.lock:
            check(lib.fby_lookup(self._core.pointer, sequence.pointer, 0, out, tokens))
        return Hold(self._core, int(out[0]))

    def lookup_advisory(self, sequence: Sequence) -> int:
        """Only the length in tokens of what :meth:`lookup` would hold, as a promise of nothing. Quick.

        Raises:
            StaleError: the sequence is of an older weights epoch.
        """
        tokens = ffi.new("uint64_t *")
        with sequence.lock:
            check(lib.fby_lookup(self._core.pointer, sequence.pointer, lib.FBY_LOOKUP_ADVISORY, ffi.NULL, tokens))
        return int(tokens[0])

    def put(self, sequence: Sequence, from_block: int = 0, to_block: int | None = None) -> Put:
        """Stages slots for the missing blocks of ``[from_block, to_block)`` (``fby_put_begin``).

        From the front only, as many as there is room for (at most 4,096). Pins the resident prefix.

        Args:
            sequence: whose blocks they are.
            from_block: first block.
            to_block: end; by default the sequence's whole blocks.

        Raises:
            StaleError: the sequence is of an older weights epoch.
            CapacityError: the prefix does not fit in ``pool.max_hold_bytes``.
            ArgumentError: beyond the sequence's whole blocks.
            BusyError: the put table is full.
        """
        return Put(self._core, sequence, from_block, to_block)

    def pool(self) -> Pool:
        """The pool for ranks in other processes (``fby_cache_pool``), with a new descriptor that is the caller's.

        Raises:
            OSError: no descriptor is to be had.
        """
        return pool_of(self._core)

    def subscribe(self, capacity: int = EVENTS_KEPT) -> Subscription:
        """A bounded queue of events (``fby_subscribe``).

        Args:
            capacity: events that are kept, 1 to 2**20; beyond it the oldest are dropped, and one LOST event says how
                many.

        Raises:
            BusyError: there are 32 already.
            ArgumentError: capacity is out of range.
        """
        return Subscription(self._core, capacity)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        try:
            self.close()
        except BufferError:
            # A traceback keeps the views of the frames it passed; the cache then closes with the last of them.
            if kind is None:
                raise

    def __repr__(self) -> str:
        return f"<forebay.Cache {self._model.fingerprint}{', closed' if self.closed else ''}>"


def connect(
    path: str | os.PathLike[str],
    *,
    call_timeout_s: float = CALL_TIMEOUT_S,
    reconnect_s: float = RECONNECT_S,
    name: str | None = None,
) -> Cache:
    """A cache of another process, over its Unix socket (``fby_connect``): every call of :class:`Cache`.

    While the server is away, objects of that server raise :class:`StaleError`, new sessions are answered at once with 0
    tokens, lookups give empty holds, puts stage nothing. Calls about the cache as a whole raise :class:`AwayError`.
    docs/python.md#servers.

    Args:
        path: of the socket: ``server.listen`` there, or ``forebay serve``'s.
        call_timeout_s: seconds above 0; a server that does not answer for so long is taken for gone.
        reconnect_s: seconds above 0; least time between two attempts to reach it again.
        name: of this program, for ``forebay top`` and logs, at most 47 bytes; None: its command.

    Raises:
        FileNotFoundError: there is no such socket.
        RefusedError: nobody listens there; also a built-in ``ConnectionRefusedError``.
        AccessError: the socket's mode, or the server does not take this user; also a built-in ``PermissionError``.
        FormatError: a server of another version, or no Forebay server.
        WaitTimeoutError: no answer within ``call_timeout_s``.
        OSError: ``EUSERS``: ``server.max_clients`` are there; or what the system said.
    """
    pointer = connect_pointer(os.fsencode(path), call_timeout_s, reconnect_s, name)
    cache = Cache.__new__(Cache)
    cache._own(pointer)
    return cache
