"""Prompts of the exactness rows: the same ones at every run, no two rows with a common prefix."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

FIRST_ID = 3  # below are the special tokens


def _seed(*words: object) -> int:
    return int.from_bytes(hashlib.sha256("|".join(map(str, words)).encode()).digest()[:8], "little")


@functools.cache
def _text_ids(model: Path) -> tuple[int, ...] | None:
    """The ids of a long text, or None when the model has no tokenizer."""
    if not (model / "tokenizer.json").exists():
        return None
    import text
    from transformers import AutoTokenizer

    return tuple(AutoTokenizer.from_pretrained(str(model))(text.story(), add_special_tokens=False).input_ids)


def _ids(model: Path, seed: int, length: int) -> list[int]:
    ids = _text_ids(model)
    if ids is not None:
        start = seed % len(ids)
        return [*(ids * 2)[start : start + length]]
    vocab: int = json.loads((model / "config.json").read_text())["vocab_size"]
    return [int(token) for token in np.random.default_rng(seed).integers(FIRST_ID, vocab, size=length)]


def make(model: Path, name: str, lengths: Sequence[int], shared: int = 0) -> list[list[int]]:
    """Prompts of these lengths, in tokens, whose first `shared` tokens are the same."""
    common = _ids(model, _seed(name, "shared"), shared)
    return [
        common + _ids(model, _seed(name, number), length - shared) if length > shared else common[:length]
        for number, length in enumerate(lengths)
    ]


def digest(prompt: Sequence[int]) -> str:
    """A short name of a prompt."""
    return hashlib.sha256(np.asarray(prompt, dtype=np.uint32).tobytes()).hexdigest()[:16]
