"""What became of a prompt, and whether it is what the row expects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exact_rows import BLOCK, Expect


@dataclass(frozen=True)
class Restored:
    """The connector's own account of a request: tokens of the session, graphs, why it stopped."""

    delivered: int = 0
    matched: int = 0
    graphs: int = 0
    reason: str = "no session"
    outcome: str = "none"
    failed: int = 0


class Journal:
    """The file that the connector appends a line to for each request."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, name: str) -> Restored:
        """The last line of the request `name`, which the engine may have given a longer name."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in reversed(lines):
            row: dict[str, Any] = json.loads(line)
            if row["request"].startswith(name):
                known = {key: row[key] for key in Restored.__dataclass_fields__ if key in row}
                return Restored(**known)
        return Restored()


@dataclass(frozen=True)
class Verdict:
    """One prompt of a row: what was found, and why it is wrong; empty when it is right."""

    length: int
    tokens_equal: bool
    restored: Restored
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the pipe and for --json."""
        return {**asdict(self.restored), "length": self.length, "tokens_equal": self.tokens_equal, "why": self.why}

    @staticmethod
    def from_json(row: dict[str, Any]) -> Verdict:
        """The inverse."""
        restored = Restored(**{key: row[key] for key in Restored.__dataclass_fields__})
        return Verdict(row["length"], row["tokens_equal"], restored, row["why"])


def whole_tokens(length: int, block: int = BLOCK) -> int:
    """Tokens of the whole blocks of `block` before the last token: one token is always computed."""
    return (length - 1) // block * block


def _is_so(found: int, most: int, word: str | int, block: int) -> bool:
    accepted = {
        "full": found == most,
        "none": found == 0,
        "part": 0 < found < most and found % block == 0,
        "short": found < most and found % block == 0,
        "any": found <= most and found % block == 0,
    }
    return found == word if isinstance(word, int) else accepted[word]


def _restored_problem(restored: Restored, length: int, expect: Expect, block: int) -> str:
    most = whole_tokens(length, block)
    if not _is_so(restored.matched, most, expect.restored, block):
        return f"{restored.matched} of {most} tokens were restored, expected: {expect.restored}"
    if not _is_so(restored.delivered, most, expect.delivered, block):
        return f"the session delivered {restored.delivered} of {most} tokens, expected: {expect.delivered}"
    if restored.delivered < restored.matched and not expect.beyond:
        return f"{restored.matched} tokens were restored, the session delivered {restored.delivered}"
    return ""


def _session_problem(restored: Restored, length: int, expect: Expect, block: int) -> str:
    blocks = whole_tokens(length, block) // block
    if blocks == 0:
        return ""  # nothing to prefetch: whether there is a session is the connector's business
    if expect.reasons and restored.reason not in expect.reasons:
        return f"the reason is {restored.reason}, expected: {' or '.join(expect.reasons)}"
    if expect.chunk is not None:
        graphs = -(-blocks // expect.chunk) if expect.chunk else 1
        if restored.graphs != graphs:
            return f"{restored.graphs} graphs for {blocks} blocks, expected: {graphs}"
    if expect.graphs is not None and not expect.graphs[0] <= restored.graphs <= expect.graphs[1]:
        return f"{restored.graphs} graphs for {blocks} blocks, expected: {expect.graphs[0]} to {expect.graphs[1]}"
    return ""


def judge(
    length: int,
    tokens: Sequence[int],
    right: Sequence[int],
    restored: Restored,
    expect: Expect,
    *,
    block: int = BLOCK,
) -> Verdict:
    """Compares tokens with those of an engine without Forebay, and what was restored with the row.

    `block`: tokens of the engine's blocks.
    """
    equal = list(tokens) == list(right)
    problems = [_restored_problem(restored, length, expect, block), _session_problem(restored, length, expect, block)]
    if equal == expect.differ:
        problems.insert(
            0,
            "the tokens are right, which this change must not leave"
            if equal
            else f"tokens differ: {list(tokens)}, not {list(right)}",
        )
    return Verdict(length, equal, restored, "; ".join(problem for problem in problems if problem))
