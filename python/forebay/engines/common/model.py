"""The model as Forebay sees it: fields of the fingerprint, and payload groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MOST_GROUPS = 8
"""``FBY_MAX_GROUPS``."""


class UnsupportedModelError(ValueError):
    """The engine's configuration is one that the connector cannot serve; the message says what is accepted."""


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """One KV cache group of the engine.

    Attributes:
        index: of the engine's group.
        name: of the payload group.
        layers: names of its layers, in the engine's order.
        trailing: 0: every block of the prefix is needed; n: only the last n.
        page_bytes: one block of all its layers, on one rank.
        is_shared: all ranks have the same bytes (MLA).
    """

    index: int
    name: str
    layers: tuple[str, ...]
    trailing: int
    page_bytes: int
    is_shared: bool

    def payload_bytes(self, ranks: int) -> int:
        """One block of all its layers on all ranks: what a slot holds."""
        return self.page_bytes if self.is_shared else self.page_bytes * ranks


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What must agree wherever blocks are written and read.

    Attributes:
        fields: of Forebay's ``model`` section, but for ``groups`` and ``block_tokens``.
        block_tokens: tokens of one block.
        groups: those of full attention first: the cache's figures are those of its first group.
        ranks: processes that have a part of each block.
    """

    fields: dict[str, Any]
    block_tokens: int
    groups: tuple[EngineGroup, ...]
    ranks: int

    def section(self) -> dict[str, Any]:
        """Forebay's whole ``model`` section."""
        groups = [
            {
                "name": group.name,
                "payload_bytes": group.payload_bytes(self.ranks),
                "rule": f"trailing({group.trailing})" if group.trailing else "all",
            }
            for group in self.groups
        ]
        return self.fields | {"block_tokens": self.block_tokens, "groups": groups}

    def digest(self) -> dict[str, str]:
        """What the start-up exchange compares, by name; revision and id are the deciding process's alone."""
        rows = {key: str(value) for key, value in self.fields.items() if key not in ("id", "revision", "weights_epoch")}
        rows["block_tokens"] = str(self.block_tokens)
        for group in self.groups:
            rows[f"group {group.name}"] = f"{len(group.layers)} layers, {group.page_bytes} bytes, rule {group.trailing}"
        return rows


def window_blocks(window: int, block_tokens: int) -> int:
    """Blocks that a sliding window of ``window`` tokens needs before a boundary: its last token is yet to come."""
    return max(1, -(-(window - 1) // block_tokens))
