"""How far pages of several pools reach together. Plain functions over answers of which pages there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Present = Callable[[str, Sequence[str], bool], list[bool]]
"""(pool, keys, whether only the leading run counts) -> which there are."""


@dataclass(frozen=True, slots=True)
class Hits:
    """What there is of a chain of pages.

    Attributes:
        pages: longest prefix that every pool can resume at, in pages.
        by_pool: how far each pool reaches by itself; pools that reach nowhere are left out.
        restorable: all prefixes, in pages, that every pool can resume at, ascending. A trailing pool leaves gaps.
    """

    pages: int = 0
    by_pool: dict[str, int] = field(default_factory=dict)
    restorable: list[int] = field(default_factory=list)


def leading_run(present: Sequence[bool]) -> int:
    """How many are true before the first that is not."""
    return next((i for i, one in enumerate(present) if not one), len(present))


def _trailing(present: Present, pool: str, keys: Sequence[str], pages: int) -> set[int]:
    """Prefixes whose last ``pages`` pages are there; asked from the end, where a request resumes."""
    there = present(pool, list(reversed(keys)), False)[::-1]
    run, legal = 0, set()
    for i, one in enumerate(there):
        run = run + 1 if one else 0
        if run >= min(pages, i + 1):
            legal.add(i + 1)
    return legal


def _block_groups(present: Present, pool: str, transfer: Any) -> int:
    """Pages that the leading whole groups of keys stand for."""
    keys, size = list(transfer.keys or []), int(transfer.group_pages)
    if size <= 0 or transfer.block_pages <= 0:
        return 0
    whole = len(keys) // size
    return leading_run(present(pool, keys[: whole * size], True)) // size * int(transfer.block_pages)


def find_hits(keys: Sequence[str], transfers: Sequence[Any], present: Present, *, has_kv: bool = True) -> Hits:
    """Asks for pages of the KV pool, and of other pools by their policy.

    Args:
        keys: hashes of the chain.
        transfers: ``PoolTransfer`` of other pools: ``all_pages`` needs every page of the prefix, ``trailing_pages`` the
            last ones, as many as the transfer has keys; ``block_groups`` is reported and bounds nothing.
        present: asks.
        has_kv: False: the KV pool has no bytes, and bounds nothing.
    """
    pages = leading_run(present("kv", keys, True)) if has_kv else len(keys)
    by_pool, restorable = {"kv": pages} if pages else {}, list(range(1, pages + 1))
    for transfer in transfers:
        if not restorable:
            break
        pool, policy = str(transfer.name), str(getattr(transfer.hit_policy, "value", transfer.hit_policy))
        within = keys[:pages]  # a pool's own reach does not depend on what others lack
        if policy == "block_groups":
            reach = _block_groups(present, pool, transfer)
        elif policy == "all_pages":
            reach = leading_run(present(pool, within, True))
            restorable = [one for one in restorable if one <= reach]
        elif policy == "trailing_pages":
            legal = _trailing(present, pool, within, max(1, len(transfer.keys or ())))
            reach = max(legal, default=0)
            restorable = [one for one in restorable if one in legal]
        else:
            raise ValueError(f"hit policy is {policy!r}; accepted: all_pages, trailing_pages, block_groups")
        if reach:
            by_pool[pool] = reach
    return Hits(restorable[-1] if restorable else 0, by_pool, restorable)
