"""The model that vLLM runs, as Forebay sees it: payload groups from the engine's KV cache groups."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..common.model import MOST_GROUPS, EngineGroup, EngineModel, UnsupportedModelError, window_blocks
from ..common.weights import weights_revision

# What differs between two copies of one configuration, and changes no byte of the KV cache.
_NOT_MODEL = ("transformers_version", "_name_or_path", "_commit_hash", "architectures", "torch_dtype", "dtype")


def _page_bytes(spec: Any, layers: tuple[str, ...]) -> int:
    per_layer = getattr(spec, "kv_cache_specs", None)
    if per_layer is not None:
        return sum(int(per_layer[layer].page_size_bytes) for layer in layers)
    return int(spec.page_size_bytes) * len(layers)


def _family(spec: Any) -> set[str]:
    """Names of the classes that a group's specification is made of; of what is inside, where it is a wrapper."""
    per_layer = getattr(spec, "kv_cache_specs", None)
    inside = next(iter(per_layer.values())) if per_layer else spec
    return {kind.__name__ for kind in type(inside).__mro__}


def _engine_group(index: int, group: Any, block_tokens: int) -> EngineGroup:
    spec, layers = group.kv_cache_spec, tuple(group.layer_names)
    family = _family(spec)
    if int(spec.block_size) != block_tokens:
        raise UnsupportedModelError(
            f"KV cache group {index} has blocks of {spec.block_size} tokens, group 0 of {block_tokens}; "
            "accepted: one block size for all groups"
        )
    if "SlidingWindowSpec" in family and "SlidingWindowMLASpec" not in family:
        inside = next(iter(spec.kv_cache_specs.values())) if getattr(spec, "kv_cache_specs", None) else spec
        trailing = window_blocks(int(inside.sliding_window), block_tokens)
    elif "FullAttentionSpec" in family and not family & {"SinkFullAttentionSpec", "RSWASpec", "HiddenStateCacheSpec"}:
        trailing = 0
    else:
        raise UnsupportedModelError(
            f"KV cache group {index} is a {type(spec).__name__}; accepted: full attention, MLA, sliding window"
        )
    name = f"{'w' if trailing else 'a'}{index}"
    return EngineGroup(index, name, layers, trailing, _page_bytes(spec, layers), "MLAAttentionSpec" in family)


def engine_groups(kv_cache_config: Any) -> tuple[int, tuple[EngineGroup, ...]]:
    """Tokens of a block, and the groups, those of full attention first, from vLLM's ``KVCacheConfig``.

    Raises:
        UnsupportedModelError: a kind of cache that is not supported.
    """
    given = list(kv_cache_config.kv_cache_groups)
    if not 1 <= len(given) <= MOST_GROUPS:
        raise UnsupportedModelError(f"the model has {len(given)} KV cache groups; accepted: 1 to {MOST_GROUPS}")
    block_tokens = int(given[0].kv_cache_spec.block_size)
    groups = tuple(_engine_group(index, group, block_tokens) for index, group in enumerate(given))
    if all(group.trailing for group in groups):
        raise UnsupportedModelError("every layer has a sliding window; accepted: at least one group of full attention")
    return block_tokens, tuple(sorted(groups, key=lambda group: group.trailing > 0))


def _config_digest(hf_config: Any, overrides: Any) -> str:
    values = {key: value for key, value in hf_config.to_dict().items() if key not in _NOT_MODEL}
    text = json.dumps([values, repr(overrides)], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _revision(model: Any) -> str:
    path = Path(str(model.model))
    commit = getattr(model.hf_config, "_commit_hash", None)  # what a moving name like "main" stood for
    where = weights_revision(path) if path.exists() else str(commit or model.revision or "main")
    return f"{where}/{_config_digest(model.hf_config, getattr(model, 'hf_overrides', None))}"


def _model_name(model: Any) -> str:
    """The repository's name; of a local path the last part: two machines may have it in two places."""
    path = Path(str(model.model))
    name = path.resolve().name if path.exists() else str(model.model)
    return f"{name} {model.quantization}" if model.quantization else name


def _layout(vllm_config: Any, kv_cache_config: Any, block_tokens: int) -> str:
    """What decides the order of the bytes in a block beside the shape: platform, kernels' instruction set, version."""
    from vllm import __version__  # type: ignore[import-not-found, unused-ignore]
    from vllm.platforms import current_platform  # type: ignore[import-not-found, unused-ignore]

    release = ".".join(str(__version__).split(".")[:2])
    order = getattr(kv_cache_config, "kv_cache_layout", None) or "default"
    if not current_platform.is_cpu():
        return f"vllm-{release} {current_platform.device_name} {order}"
    from vllm.v1.attention.backends.cpu_attn import (  # type: ignore[import-not-found, unused-ignore]
        _get_attn_isa,
    )

    model = vllm_config.model_config
    isa = _get_attn_isa(model.dtype, block_tokens, model.get_head_size(), vllm_config.cache_config.cache_dtype)
    return f"vllm-{release} cpu {current_platform.get_cpu_architecture().name.lower()} {isa} {order}"


def _kv_dtype(vllm_config: Any) -> str:
    given = str(vllm_config.cache_config.cache_dtype)
    return str(vllm_config.model_config.dtype).removeprefix("torch.") if given == "auto" else given


def _layer_set(groups: tuple[EngineGroup, ...]) -> str:
    names = "\n".join("\n".join(group.layers) + "\n" for group in groups)
    layers = sum(len(group.layers) for group in groups)
    return f"{layers} layers {hashlib.sha256(names.encode()).hexdigest()[:16]}"


def describe(vllm_config: Any, kv_cache_config: Any) -> EngineModel:
    """The model that an engine runs.

    Raises:
        UnsupportedModelError: a configuration that the connector cannot serve.
    """
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        if int(getattr(parallel, name, 1) or 1) != 1:
            raise UnsupportedModelError(f"{name} is {getattr(parallel, name)}; accepted: 1")
    block_tokens, groups = engine_groups(kv_cache_config)
    ranks = int(parallel.tensor_parallel_size)
    fields = {
        "id": _model_name(model),
        "revision": _revision(model),
        "kv_dtype": _kv_dtype(vllm_config),
        "layer_set": _layer_set(groups),
        "layout": _layout(vllm_config, kv_cache_config, block_tokens),
        "weights_epoch": 0,
        "tp_size": ranks,
        "cp_size": 1,
        "pp_size": 1,
    }
    return EngineModel(fields, block_tokens, groups, ranks)
