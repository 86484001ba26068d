"""What became of a prompt in SGLang: its tokens, SGLang's count of what was restored, and Forebay's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import exact_judge
from exact_judge import Restored, Verdict
from exact_rows import Expect
from sglang_rows import PAGE
from sglang_server import Answer


def restored_tokens(answer: Answer) -> int:
    """Prompt tokens that came from outside the device, as SGLang says."""
    return answer.cached.get("host", 0) + answer.cached.get("storage", 0)


def judge(
    length: int, answer: Answer, right: Sequence[int], said: Restored, expect: Expect, *, knows_requests: bool
) -> Verdict:
    """Compares tokens with the right ones, and SGLang's count with Forebay's and with the row.

    Args:
        length: of the prompt.
        answer: SGLang's.
        right: the tokens of a server without Forebay.
        said: Forebay's account; its ``matched`` are tokens beyond the device's.
        expect: what has to be. What the device still had counts as given to the engine, as everywhere in the matrix.
        knows_requests: Forebay's account is of this request, and says what its prefetch delivered.
    """
    restored, device = restored_tokens(answer), answer.cached.get("device", 0)
    found = replace(said, matched=restored + device)
    if not knows_requests:  # and the engine has a host memory of its own, which is none of Forebay's
        found, restored = replace(found, delivered=found.matched), answer.cached.get("storage", 0)
    verdict = exact_judge.judge(length, answer.tokens, right, found, expect, block=PAGE)
    if said.matched != restored and not (expect.beyond and said.matched > restored):
        why = f"SGLang says {restored} tokens were restored, Forebay {said.matched}"
        verdict = replace(verdict, why="; ".join(filter(None, (verdict.why, why))))
    return verdict
