"""Device pages from the slots that SGLang names, one per token."""

from __future__ import annotations

from typing import Any


def pages_of(slots: Any, page_tokens: int, wanted: int) -> list[int]:
    """Pages of whole, aligned runs of slots.

    Args:
        slots: ``page * page_tokens + offset`` of each token, in order: a tensor or array of 64-bit integers.
        page_tokens: tokens of a page.
        wanted: pages that the task moves.

    Raises:
        ValueError: a page that is not whole or not in order, one that comes twice, or another number of pages.
    """
    import numpy

    given = numpy.asarray(slots, dtype=numpy.int64).reshape(-1)
    if given.size != wanted * page_tokens:
        raise ValueError(f"{given.size} slots; accepted: {wanted * page_tokens}, one per token of {wanted} whole pages")
    rows = given.reshape(wanted, page_tokens)
    pages = rows[:, 0] // page_tokens
    if wanted and ((rows != pages[:, None] * page_tokens + numpy.arange(page_tokens)).any() or pages.min() < 0):
        raise ValueError(
            f"slots are not whole pages of {page_tokens} in order; accepted: page * {page_tokens} + offset"
        )
    made: list[int] = pages.tolist()
    if len(set(made)) != wanted:
        raise ValueError("a page comes twice; accepted: each once")
    return made
