"""Pools as other processes need them, and places in them (docs/ranks.md)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ._errors import check
from ._forebay import ffi, lib
from ._pin import Core

NO_PLACE: int = lib.FBY_NO_PLACE
"""Among places: no slot there (``FBY_NO_PLACE``)."""

Digest: TypeAlias = bytes

_FINGERPRINT_BYTES = 16


class PoolGroup(NamedTuple):
    """One group of a pool.

    Attributes:
        slot_bytes: from one slot to the next.
        payload_bytes: of one block; a trailer lies behind it.
        first: number of the group's first slot; slots are counted through all groups.
        slots: how many.
        offset: place of the group's first slot, in bytes.
    """

    slot_bytes: int
    payload_bytes: int
    first: int
    slots: int
    offset: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as another process needs it (``fby_pool_t``): plain data, but for the descriptor.

    Attributes:
        descriptor: of the shared memory; whoever got the object closes it with :meth:`close`. Send it by
            ``SCM_RIGHTS``, and put the number that arrives into :meth:`with_descriptor`.
        bytes: of the mapping.
        groups: in the model's order.
        fingerprint: digest of the model, 16 bytes: what a slot's trailer must hold.
    """

    descriptor: int
    bytes: int
    groups: tuple[PoolGroup, ...]
    fingerprint: Digest

    def with_descriptor(self, descriptor: int) -> Pool:
        """The same pool through another descriptor."""
        return Pool(descriptor, self.bytes, self.groups, self.fingerprint)

    def close(self) -> None:
        """Closes the descriptor; a rank that is attached keeps its mapping. Idempotent only as ``os.close`` is."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


def pool_of(core: Core) -> Pool:
    """``fby_cache_pool``; see :meth:`Cache.pool`."""
    raw = ffi.new("fby_pool_t *")
    raw.size = ffi.sizeof("fby_pool_t")
    check(lib.fby_cache_pool(core.pointer, raw))
    groups = tuple(
        PoolGroup(one.slot_bytes, one.payload_bytes, one.first, one.slots, int(one.offset))
        for one in raw.group[0 : raw.groups]
    )
    return Pool(int(raw.descriptor), int(raw.bytes), groups, bytes(ffi.buffer(raw.fingerprint)))


def pool_in(pool: Pool) -> Any:
    """``fby_pool_t`` of a pool.

    Raises:
        ValueError: more groups than there can be, or no fingerprint of 16 bytes.
    """
    raw = ffi.new("fby_pool_t *")
    if len(pool.groups) > len(raw.group):
        raise ValueError(f"the pool has {len(pool.groups)} groups; accepted: 1 to {len(raw.group)}")
    if len(pool.fingerprint) != _FINGERPRINT_BYTES:
        raise ValueError(f"the fingerprint has {len(pool.fingerprint)} bytes; accepted: {_FINGERPRINT_BYTES}")
    raw.size = ffi.sizeof("fby_pool_t")
    raw.descriptor, raw.bytes, raw.groups = pool.descriptor, pool.bytes, len(pool.groups)
    for one, group in zip(raw.group, pool.groups, strict=False):
        one.slot_bytes, one.payload_bytes, one.first, one.slots, one.offset = group
    ffi.memmove(raw.fingerprint, pool.fingerprint, _FINGERPRINT_BYTES)
    return raw
