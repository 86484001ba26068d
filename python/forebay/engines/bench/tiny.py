"""A seeded model of 1 MB, for a benchmark without a model at hand: two layers that say nothing sensible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 512, 128, 2, 4, 2, 32, 256
SEED = 7

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 65536,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": VOCAB,
}

# Rows, columns and gain of a layer's matrices. Attention weighs much: tokens depend on the KV cache.
_MATRICES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN, 1.6),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 1.6),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN, 2.0),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM, 2.0),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN, 1.0),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN, 1.0),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE, 1.0),
}


def write(directory: Path) -> Path:
    """Writes config.json and model.safetensors (float32) into ``directory``, which is made; the directory."""
    import numpy as np  # type: ignore[import-not-found, unused-ignore]
    from safetensors.numpy import save_file  # type: ignore[import-not-found, unused-ignore]

    rng = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, gain: float) -> Any:
        return (rng.standard_normal((rows, columns)) * gain).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN, 0.5)}
    for layer in range(LAYERS):
        for name, (rows, columns, gain) in _MATRICES.items():
            weights[f"model.layers.{layer}.{name}.weight"] = matrix(rows, columns, gain / columns**0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = np.ones(HIDDEN, dtype=np.float32)
    weights["model.norm.weight"] = np.ones(HIDDEN, dtype=np.float32)
    weights["lm_head.weight"] = matrix(VOCAB, HIDDEN, HIDDEN**-0.5)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(CONFIG) + "\n")
    return directory
