"""Tiny seeded models for the engine tests: 3 MB each, made in a second, the same bytes on every machine.

They say nothing sensible. What matters is that their tokens depend on the KV cache: attention is sharp and weighs as
much as the residual stream, so that a wrong block changes the next tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 512, 128, 4, 4, 2, 32, 256
SLIDING_WINDOW = 64
Weights = dict[str, npt.NDArray[np.float32]]

COMMON: dict[str, Any] = {
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": HEAD_DIM,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "max_position_embeddings": 8192,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "use_cache": True,
    "vocab_size": VOCAB,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "query_pre_attn_scalar": HEAD_DIM,
    "rope_local_base_freq": 10000.0,
    "sliding_window": SLIDING_WINDOW,
}


def _layer(rng: np.random.Generator, weights: Weights, number: int) -> None:
    """Adds one layer's matrices, shape (out, in). Queries and keys are large, so that attention is sharp."""

    def matrix(name: str, rows: int, columns: int, gain: float) -> None:
        values = rng.standard_normal((rows, columns)) * (gain / np.sqrt(columns))
        weights[f"model.layers.{number}.{name}.weight"] = values.astype(np.float32)

    matrix("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN, 1.6)
    matrix("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN, 1.6)
    matrix("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN, 2.0)
    matrix("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM, 2.0)
    matrix("mlp.gate_proj", INTERMEDIATE, HIDDEN, 1.0)
    matrix("mlp.up_proj", INTERMEDIATE, HIDDEN, 1.0)
    matrix("mlp.down_proj", HIDDEN, INTERMEDIATE, 1.0)


def _norm(weights: Weights, name: str, size: int, value: float) -> None:
    weights[f"{name}.weight"] = np.full(size, value, dtype=np.float32)


def make_weights(kind: str, seed: int) -> Weights:
    """All tensors of a model; `kind` is "llama" or "gemma3"."""
    rng = np.random.default_rng(seed)
    gemma = kind == "gemma3"
    norm_value = 0.0 if gemma else 1.0  # gemma3 multiplies by one plus the weight
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    # Small embeddings let attention weigh against the residual stream; gemma3 multiplies them by sqrt(HIDDEN) itself.
    embeddings = rng.standard_normal((VOCAB, HIDDEN)) * (0.02 if gemma else 0.5)
    weights: Weights = {"model.embed_tokens.weight": embeddings.astype(np.float32)}
    for number in range(LAYERS):
        _layer(rng, weights, number)
        for name in norms:
            _norm(weights, f"model.layers.{number}.{name}", HIDDEN, norm_value)
        for name in ("q_norm", "k_norm") if gemma else ():
            _norm(weights, f"model.layers.{number}.self_attn.{name}", HEAD_DIM, 0.6)
    _norm(weights, "model.norm", HIDDEN, norm_value)
    weights["lm_head.weight"] = (rng.standard_normal((VOCAB, HIDDEN)) / np.sqrt(HIDDEN)).astype(np.float32)
    return weights


def write(kind: str, directory: Path, seed: int = 7) -> None:
    """Writes config.json and model.safetensors into `directory`, which is there. Prompts are token ids."""
    save_file(make_weights(kind, seed), directory / "model.safetensors", metadata={"format": "pt"})
    config = {**COMMON, **(GEMMA3 if kind == "gemma3" else LLAMA)}
    (directory / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    ids = {name: COMMON[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (directory / "generation_config.json").write_text(json.dumps(ids, sort_keys=True) + "\n")
