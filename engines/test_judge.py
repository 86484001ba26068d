"""The judge of the exactness tests itself: what it must refuse. `python engines/test_judge.py` needs no engine."""

from __future__ import annotations

import sys
import unittest
from dataclasses import replace

from exact_judge import Restored, judge, whole_tokens
from exact_rows import FULL, NONE, Expect

TOKENS = [5, 6, 7]
WHOLE = Restored(delivered=96, matched=96, graphs=3, reason="complete", outcome="complete")
LENGTH = 100


def why(restored: Restored, expect: Expect, tokens: list[int] | None = None, length: int = LENGTH) -> str:
    """What the judge says of a prompt."""
    return judge(length, TOKENS if tokens is None else tokens, TOKENS, restored, expect).why


class JudgeStories(unittest.TestCase):
    """What passes and what does not."""

    def test_one_token_is_always_computed(self) -> None:
        """Whole blocks before the last token."""
        assert [whole_tokens(length) for length in (1, 32, 33, 64, 65)] == [0, 0, 32, 32, 64]

    def test_everything_as_expected_passes(self) -> None:
        """Tokens, restored tokens, reason and graphs."""
        assert why(WHOLE, replace(FULL, chunk=1)) == ""

    def test_another_token_fails(self) -> None:
        """Whatever was restored."""
        assert "tokens differ" in why(WHOLE, FULL, tokens=[5, 6, 8])

    def test_equal_tokens_fail_where_they_must_differ(self) -> None:
        """A change that is not seen shows that nothing is compared."""
        assert "must not leave" in why(WHOLE, replace(FULL, differ=True))
        assert why(WHOLE, replace(FULL, differ=True), tokens=[1, 2, 3]) == ""

    def test_right_tokens_without_a_restored_prefix_fail(self) -> None:
        """Recomputing everything gives right tokens too."""
        assert "0 of 96 tokens" in why(Restored(reason="complete"), FULL)
        assert "96 of 96 tokens" in why(WHOLE, NONE)

    def test_a_part_is_some_and_not_all(self) -> None:
        """For deadlines that cut."""
        cut = Expect("part", ("deadline",))
        part = replace(WHOLE, delivered=64, matched=64, reason="deadline")
        assert why(part, cut) == ""
        for matched in (0, 96, 50):
            assert "expected: part" in why(replace(part, delivered=96, matched=matched), cut)

    def test_more_than_the_session_delivered_fails(self) -> None:
        """The engine must not be given what nobody loaded."""
        assert "delivered 64" in why(replace(WHOLE, delivered=64), FULL)

    def test_a_number_of_tokens_is_meant(self) -> None:
        """What lies before a block that was changed, and not a block more or less."""
        part = replace(WHOLE, delivered=64, matched=64, reason="partial_read")
        assert why(part, Expect(64, ("partial_read",), delivered=64)) == ""
        assert "64 of 96 tokens were restored, expected: 32" in why(part, Expect(32))
        assert "the session delivered 64 of 96 tokens, expected: full" in why(part, Expect("any", delivered="full"))

    def test_graphs_may_be_between_two_numbers(self) -> None:
        """For what is stopped in the middle."""
        cut = Expect("part", ("deadline",), graphs=(1, 2))
        part = replace(WHOLE, delivered=64, matched=64, reason="deadline")
        assert "3 graphs for 3 blocks, expected: 1 to 2" in why(part, cut)
        assert "0 graphs" in why(replace(part, graphs=0), cut)
        assert why(replace(part, graphs=2), cut) == ""

    def test_reason_and_graphs_count(self) -> None:
        """One graph for the whole plan, or one for each chunk."""
        assert "the reason is demand" in why(replace(WHOLE, reason="demand"), FULL)
        assert "3 graphs for 3 blocks, expected: 1" in why(WHOLE, replace(FULL, chunk=0))
        assert "3 graphs for 3 blocks, expected: 2" in why(WHOLE, replace(FULL, chunk=2))


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed, 0 skipped")
    sys.exit(1 if bad else 0)
