"""A tiny seeded model that hears: the tiny llama's text, behind an encoder of sounds as Qwen2-Audio has it.

A prompt has SOUND_TOKENS placeholders for a sound of one second, between two marks. What follows depends on the sound.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tiny
from safetensors.numpy import save_file

PLACEHOLDER, BEGIN, END = 0, 1, 2  # ids that no prompt has by chance
WORDS = {"<|AUDIO|>": PLACEHOLDER, "<|audio_bos|>": BEGIN, "<|audio_eos|>": END}
RATE, SOUND_TOKENS = 16_000, 25
WIDTH, HEADS, MELS, FRAMES = 64, 2, 16, 1500  # of the encoder; vLLM wants 30 seconds of frames


def _linear(weights: tiny.Weights, rng: np.random.Generator, name: str, *shape: int, bias: bool = True) -> None:
    values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    weights[f"{name}.weight"] = values.astype(np.float32)
    if bias:
        weights[f"{name}.bias"] = np.zeros(shape[0], dtype=np.float32)


def _norm(weights: tiny.Weights, name: str) -> None:
    weights[f"{name}.weight"] = np.ones(WIDTH, dtype=np.float32)
    weights[f"{name}.bias"] = np.zeros(WIDTH, dtype=np.float32)


def _encoder(weights: tiny.Weights, rng: np.random.Generator) -> None:
    tower = "audio_tower"
    _linear(weights, rng, f"{tower}.conv1", WIDTH, MELS, 3)
    _linear(weights, rng, f"{tower}.conv2", WIDTH, WIDTH, 3)
    weights[f"{tower}.embed_positions.weight"] = np.zeros((FRAMES, WIDTH), dtype=np.float32)
    layer = f"{tower}.layers.0"
    for name in ("q_proj", "v_proj", "out_proj"):
        _linear(weights, rng, f"{layer}.self_attn.{name}", WIDTH, WIDTH)
    _linear(weights, rng, f"{layer}.self_attn.k_proj", WIDTH, WIDTH, bias=False)
    _linear(weights, rng, f"{layer}.fc1", 2 * WIDTH, WIDTH)
    _linear(weights, rng, f"{layer}.fc2", WIDTH, 2 * WIDTH)
    for name in (f"{layer}.self_attn_layer_norm", f"{layer}.final_layer_norm", f"{tower}.layer_norm"):
        _norm(weights, name)
    _linear(weights, rng, "multi_modal_projector.linear", tiny.HIDDEN, WIDTH)


def _weights() -> tiny.Weights:
    weights = {f"language_model.{name}": value for name, value in tiny.make_weights("llama", 7).items()}
    rows = {"q_proj": tiny.HEADS * tiny.HEAD_DIM, "k_proj": tiny.KV_HEADS * tiny.HEAD_DIM}
    rows["v_proj"] = rows["k_proj"]
    for layer in range(tiny.LAYERS):
        for name, size in rows.items():
            place = f"language_model.model.layers.{layer}.self_attn.{name}.bias"
            weights[place] = np.zeros(size, dtype=np.float32)
    _encoder(weights, np.random.default_rng(9))
    return weights


def _config() -> dict[str, Any]:
    text = {**tiny.COMMON, **tiny.LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    audio = {
        "model_type": "qwen2_audio_encoder",
        "num_mel_bins": MELS,
        "encoder_layers": 1,
        "encoder_attention_heads": HEADS,
        "encoder_ffn_dim": 2 * WIDTH,
        "d_model": WIDTH,
        "max_source_positions": FRAMES,
    }
    return {
        "architectures": ["Qwen2AudioForConditionalGeneration"],
        "model_type": "qwen2_audio",
        "text_config": text,
        "audio_config": audio,
        "audio_token_index": PLACEHOLDER,
        "torch_dtype": "float32",
        "tie_word_embeddings": False,
    }


def _write_tokenizer(directory: Path) -> None:
    """Words for the ids: the processor of sounds asks for the text of the placeholders."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = WORDS | {f"t{number}": number for number in range(len(WORDS), tiny.VOCAB)}
    made = Tokenizer(WordLevel(words, unk_token="t3"))
    made.pre_tokenizer = WhitespaceSplit()
    made.add_special_tokens(list(WORDS))
    made.save(str(directory / "tokenizer.json"))
    names = {
        "bos_token": "<|audio_bos|>",
        "eos_token": "<|audio_eos|>",
        "pad_token": "<|audio_eos|>",
        "unk_token": "t3",
    }
    _write_json(directory / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def write(directory: Path) -> None:
    """Writes the model with all that its processor needs into `directory`, which is there."""
    save_file(_weights(), directory / "model.safetensors", metadata={"format": "pt"})
    _write_json(directory / "config.json", _config())
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "Qwen2AudioProcessor",
        "feature_size": MELS,
        "chunk_length": 30,
        "sampling_rate": RATE,
        "hop_length": 160,
        "n_fft": 400,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
    }
    _write_json(directory / "preprocessor_config.json", features)
    _write_json(directory / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    _write_tokenizer(directory)


def sound(number: int) -> npt.NDArray[np.float32]:
    """One second: two tones that no other number has."""
    time = np.arange(RATE) / RATE
    tones = np.sin(2 * np.pi * 190 * (number + 1) * time) + np.sin(2 * np.pi * 1100 * number * time)
    return (tones / 2).astype(np.float32)


def collapsed(prompt: Sequence[int]) -> list[int]:
    """A prompt as the engine wants it: one placeholder, which it spreads over the sound's tokens itself."""
    return [token for at, token in enumerate(prompt) if token != PLACEHOLDER or prompt[at - 1] != PLACEHOLDER]


def with_sound(prompt: Sequence[int], place: int) -> list[int]:
    """A prompt of the same length with the marks and placeholders of a sound in it."""
    heard = [BEGIN, *[PLACEHOLDER] * SOUND_TOKENS, END]
    return [*prompt[:place], *heard, *prompt[place + len(heard) :]]
