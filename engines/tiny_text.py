"""The tiny llama with a tokenizer, for what asks in text: every byte is a token."""

from __future__ import annotations

import json
from pathlib import Path

import tiny

SPECIAL = {"<pad>": 0, "<s>": 1, "</s>": 2}


def write(directory: Path) -> None:
    """Writes model and tokenizer into `directory`, which is there."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tiny.write("llama", directory)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = SPECIAL | {letter: len(SPECIAL) + place for place, letter in enumerate(letters)}
    made = Tokenizer(BPE(vocab=words, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    made.save(str(directory / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, **names}
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
