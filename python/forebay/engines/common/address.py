"""Where the pool of a cache is, as one process tells others. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Digest: TypeAlias = bytes

Instance: TypeAlias = tuple[int, int]
"""One life of a cache: its process, and when its server began to listen. Places of one mean nothing to another."""


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """Where the pool of the scheduler's process is, and what its slots hold.

    Attributes:
        process: id of the process that has the cache.
        began_ns: monotonic time at which a server began to listen; 0: the cache is the scheduler's own.
        server: socket of that server, or None.
        descriptor: number of the pool's descriptor in the process; -1 with a server, which hands it out itself.
        bytes: of the pool.
        groups: per group (slot_bytes, payload_bytes, first, slots, offset).
        fingerprint: digest of the model, 16 bytes.
        verify: loads check each slot against its trailer.
        model: what must agree on all ranks, by name.
    """

    process: int
    began_ns: int
    server: str | None
    descriptor: int
    bytes: int
    groups: tuple[tuple[int, int, int, int, int], ...]
    fingerprint: Digest
    verify: bool
    model: dict[str, str]

    @property
    def instance(self) -> Instance:
        """Which life of the cache it is."""
        return self.process, self.began_ns
