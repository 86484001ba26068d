"""Two LoRA adapters for the tiny llama, made from seeds. Under either a prompt has other tokens and another KV."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tiny
from safetensors.numpy import save_file

NAMES = ("one", "two")
RANK = 4


def _weights(seed: int) -> tiny.Weights:
    rng = np.random.default_rng(seed)
    weights: tiny.Weights = {}
    rows = {"q_proj": tiny.HEADS * tiny.HEAD_DIM, "k_proj": tiny.KV_HEADS * tiny.HEAD_DIM}
    rows["v_proj"] = rows["k_proj"]
    for layer in range(tiny.LAYERS):
        for name, size in rows.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            down = rng.standard_normal((RANK, tiny.HIDDEN)) / np.sqrt(tiny.HIDDEN)
            weights[f"{place}.lora_A.weight"] = down.astype(np.float32)
            weights[f"{place}.lora_B.weight"] = rng.standard_normal((size, RANK)).astype(np.float32)
    return weights


def write(directory: Path) -> None:
    """Writes each adapter into a directory of its name below `directory`, as PEFT does."""
    config = {
        "base_model_name_or_path": "tiny-llama",
        "bias": "none",
        "lora_alpha": RANK,
        "peft_type": "LORA",
        "r": RANK,
        "target_modules": ["k_proj", "q_proj", "v_proj"],
        "task_type": "CAUSAL_LM",
    }
    for seed, name in enumerate(NAMES, start=1):
        place = directory / name
        place.mkdir()
        save_file(_weights(seed), place / "adapter_model.safetensors", metadata={"format": "pt"})
        (place / "adapter_config.json").write_text(json.dumps(config, sort_keys=True) + "\n")
