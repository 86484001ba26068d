"""The judge of SGLang's exactness tests: what it must refuse. `python engines/test_sglang_judge.py` needs no engine."""

from __future__ import annotations

import sys
import unittest
from dataclasses import replace

import sglang_rows
from exact_judge import Restored
from exact_rows import Expect
from sglang_judge import judge
from sglang_rows import FULL, NONE, PAGE
from sglang_server import Answer

TOKENS, LENGTH = [5, 6, 7], 3 * PAGE + 1
WHOLE = Restored(delivered=48, matched=48, graphs=1, reason="complete", outcome="complete")


def why(
    cached: dict[str, int],
    said: Restored,
    expect: Expect,
    tokens: list[int] | None = None,
    knows_requests: bool = True,
    length: int = LENGTH,
) -> str:
    """What the judge says of a prompt."""
    answer = Answer(tokens=TOKENS if tokens is None else tokens, cached=cached)
    return judge(length, answer, TOKENS, said, expect, knows_requests=knows_requests).why


class JudgeStories(unittest.TestCase):
    """What passes and what does not."""

    def test_everything_as_expected_passes(self) -> None:
        """From the host, from the storage, or partly from the device."""
        assert why({"host": 48}, WHOLE, FULL) == ""
        assert why({"host": 16, "storage": 32}, WHOLE, replace(FULL, chunk=8)) == ""
        assert why({"device": 16, "host": 32}, replace(WHOLE, matched=32), FULL) == ""

    def test_a_page_is_the_unit(self) -> None:
        """Whole pages before the last token, and nothing of a prompt that has none."""
        assert "expected: full" in why({"host": 32}, replace(WHOLE, matched=32), FULL)
        assert "expected: part" in why({"host": 40}, replace(WHOLE, matched=40), Expect("part"))
        assert why({}, Restored(), FULL, length=PAGE) == ""

    def test_counts_that_disagree_fail(self) -> None:
        """Whoever says more."""
        assert "SGLang says 48 tokens were restored, Forebay 32" in why({"host": 48}, replace(WHOLE, matched=32), FULL)
        assert "SGLang says 0 tokens were restored, Forebay 48" in why({}, WHOLE, NONE)
        assert "Forebay 0" in why({"storage": 48}, Restored(), Expect("full"), knows_requests=False)

    def test_the_engine_s_own_host_memory_is_its_own(self) -> None:
        """What a cache with a host memory has there, Forebay need not have delivered."""
        assert why({"host": 48}, Restored(), Expect("full"), knows_requests=False) == ""
        assert "Forebay 0" in why({"host": 48}, Restored(), Expect("full"))

    def test_what_nobody_delivered_fails(self) -> None:
        """The engine was given more than the session had."""
        assert "the session delivered 16" in why({"host": 48}, replace(WHOLE, delivered=16), FULL)
        assert why({"storage": 48}, replace(WHOLE, delivered=0), Expect("full"), knows_requests=False) == ""

    def test_another_token_fails(self) -> None:
        """Whatever was restored; and equal ones where a change must be seen."""
        assert "tokens differ" in why({"host": 48}, WHOLE, FULL, tokens=[5, 6, 8])
        assert "must not leave" in why({"host": 48}, WHOLE, replace(FULL, differ=True))

    def test_every_row_has_its_rig_and_its_play(self) -> None:
        """Names in the matrix."""
        for which in (sglang_rows.TINY, sglang_rows.REAL):
            names = [rig.name for rig in sglang_rows.rigs(which)]
            assert len(names) == len(set(names))
            rows = sglang_rows.rows(which)
            assert {row.rig for row in rows} == set(names)
            assert len({(row.rig, row.name) for row in rows}) == len(rows)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
