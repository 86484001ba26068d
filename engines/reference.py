"""The engine against another implementation of the same model: were its weights converted rightly?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

TOKENS = 24
LENGTHS = (7, 33, 64, 150, 700)  # the last one is longer than every sliding window here


def prompts(directory: Path) -> list[list[int]]:
    """Five prompts as token ids: text where the model has a tokenizer, else seeded."""
    vocab: int = json.loads((directory / "config.json").read_text())["vocab_size"]
    if not (directory / "tokenizer.json").exists():
        rng = np.random.default_rng(11)
        return [[int(token) for token in rng.integers(3, vocab, size=length)] for length in LENGTHS]
    import text
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(directory))
    ids: list[int] = tokenizer(text.story()).input_ids
    return [ids[:length] for length in LENGTHS]


def transformers_tokens(directory: Path, questions: list[list[int]]) -> list[list[int]]:
    """Greedy tokens by transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)
    answers = []
    for question in questions:
        ids = torch.tensor([question])
        options = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        answers.append([int(token) for token in out[0][len(question) :]])
    return answers


def compare(directory: Path) -> int:
    """Prints a line for each prompt; 1 when one differs."""
    import rig

    questions = prompts(directory)
    expected = transformers_tokens(directory, questions)
    with rig.InProcess(rig.Engine(model=directory, max_model_len=1024)) as engine:
        found = [engine.ask([question], TOKENS)[0].tokens for question in questions]
    bad = 0
    for question, ours, theirs in zip(questions, found, expected, strict=True):
        same = ours == theirs
        bad += not same
        print(f"{len(question):5} tokens: {'same' if same else f'vLLM {ours}, transformers {theirs}'}")
    print(f"{len(questions) - bad} passed, {bad} failed, 0 skipped", file=sys.stderr if bad else sys.stdout)
    return 1 if bad else 0
