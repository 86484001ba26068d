"""Sequences: a prompt cut into blocks that are named by a hash of everything before them."""

from __future__ import annotations

import threading

from ._errors import check
from ._forebay import ffi, lib
from ._pin import Core
from ._tokens import NamespaceParts, Tokens, namespace_in, tokens_in

_KEY_BYTES = 128  # longest key text and its NUL; fby_seq_key refuses less than it needs


class Sequence:
    """A token string with a namespace (``fby_seq_t``); made by :meth:`Cache.sequence`.

    Creation and :meth:`append` hash in the calling thread, without the interpreter's lock: do that where a request is
    tokenised. One sequence may be used by several threads; they take turns. The library's reference goes with the
    object.

    Attributes:
        pointer: ``fby_seq_t *``, for the package; calls on it are made with ``lock`` held.
        lock: nothing appends meanwhile.
    """

    __slots__ = ("_core", "lock", "pointer")

    def __init__(self, core: Core, tokens: Tokens, namespace: NamespaceParts | None = None) -> None:
        pointer, n, alive = tokens_in(tokens)
        parts, count, parts_alive = namespace_in(namespace)
        out = ffi.new("fby_seq_t **")
        check(lib.fby_seq_create(core.pointer, pointer, n, parts, count, out))
        del alive, parts_alive
        self.pointer = ffi.gc(out[0], lib.fby_seq_unref)
        self._core = core
        self.lock = threading.Lock()

    def append(self, tokens: Tokens) -> None:
        """Grows the sequence; hashes only what is new (``fby_seq_append``).

        Sessions, holds and puts made before see the length they were made with.

        Args:
            tokens: as for :meth:`Cache.sequence`.

        Raises:
            ArgumentError: too many tokens; nothing has changed.
            ValueError: a token is outside of 0 to 2**32 - 1.
        """
        pointer, n, alive = tokens_in(tokens)
        with self.lock:
            check(lib.fby_seq_append(self.pointer, pointer, n))
        del alive

    @property
    def tokens(self) -> int:
        """Its length in tokens (``fby_seq_tokens``)."""
        with self.lock:
            return int(lib.fby_seq_tokens(self.pointer))

    @property
    def blocks(self) -> int:
        """Its whole blocks (``fby_seq_blocks``)."""
        with self.lock:
            return int(lib.fby_seq_blocks(self.pointer))

    def key(self, block: int, group: int = 0) -> str:
        """The store key of a block for a group: lower-case hex and the group's suffix (``fby_seq_key``).

        Raises:
            ArgumentError: the sequence has no such whole block, or the model no such group.
        """
        out = ffi.new("char[]", _KEY_BYTES)
        with self.lock:
            check(lib.fby_seq_key(self.pointer, block, group, out, _KEY_BYTES))
        return bytes(ffi.string(out)).decode("ascii")

    def __len__(self) -> int:
        return self.tokens

    def __repr__(self) -> str:
        return f"<forebay.Sequence of {self.tokens} tokens, {self.blocks} blocks>"
