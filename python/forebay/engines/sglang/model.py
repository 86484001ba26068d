"""The model that SGLang runs, as Forebay sees it: fields of the fingerprint, payload groups from the KV pool."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..common.model import EngineGroup, EngineModel, UnsupportedModelError
from ..common.weights import weights_revision
from .pools import PoolPart

# What differs between two copies of one configuration, and changes no byte of the KV cache.
_NOT_MODEL = ("transformers_version", "_name_or_path", "_commit_hash", "architectures", "torch_dtype", "dtype")

# Arguments of the server that change values in a page without a trace in the model's own configuration.
_SAYS = ("dtype", "quantization", "quantization_param_path", "modelopt_quant", "rl_quant_profile")


def _said(value: Any) -> str:
    """A value of an argument; of a file its content."""
    if isinstance(value, str) and Path(value).is_file():
        return f"file {hashlib.sha256(Path(value).read_bytes()).hexdigest()[:16]}"
    return str(value)


def config_digest(hf_config: Any, overrides: Any, arguments: Any = None) -> str:
    """A digest of the model's configuration, of what was changed in it, and of what the server's arguments say."""
    values = {key: value for key, value in hf_config.to_dict().items() if key not in _NOT_MODEL}
    says = [_said(getattr(arguments, name, None)) for name in _SAYS]
    is_random = getattr(arguments, "load_format", None) == "dummy"
    text = json.dumps([values, repr(overrides), says, is_random], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def revision_of(model_config: Any, arguments: Any = None) -> str:
    """Which weights: by their content where they lie on this machine, else by the commit or name of the revision."""
    path = Path(str(model_config.model_path))
    commit = getattr(model_config.hf_config, "_commit_hash", None)  # what a moving name like "main" stood for
    where = weights_revision(path) if path.exists() else str(commit or model_config.revision or "main")
    overrides = getattr(model_config, "model_override_args", None)
    return f"{where}/{config_digest(model_config.hf_config, overrides, arguments)}"


def name_of(model_config: Any) -> str:
    """The repository's name; of a local path the last part: two machines may have it in two places."""
    path = Path(str(model_config.model_path))
    name = path.resolve().name if path.exists() else str(model_config.model_path)
    return f"{name} {model_config.quantization}" if model_config.quantization else name


def layer_set(layers: dict[str, Any] | list[str]) -> str:
    """How many layers, and a digest of their names in order."""
    names = "".join(f"{name}\n" for name in layers)
    return f"{len(layers)} layers {hashlib.sha256(names.encode()).hexdigest()[:16]}"


def release_of(version: str) -> str:
    """The part of SGLang's version that says how pages are laid out: ``0.5``."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def window_pages(window_tokens: int, page_tokens: int) -> int:
    """Pages that SGLang wants of a sliding window before it resumes behind them."""
    return max(1, -(-window_tokens // page_tokens))


def groups_of(parts: list[PoolPart], page_tokens: int, window_tokens: int) -> tuple[EngineGroup, ...]:
    """Payload groups from the parts of a KV pool.

    Raises:
        UnsupportedModelError: a window without a size.
    """
    groups = []
    for index, part in enumerate(parts):
        if part.name == "w" and window_tokens <= 0:
            raise UnsupportedModelError(f"sliding_window_size is {window_tokens}; accepted: a number above 0")
        trailing = window_pages(window_tokens, page_tokens) if part.name == "w" else 0
        groups.append(
            EngineGroup(index, f"{part.name}{index}", tuple(part.layers), trailing, part.page_bytes, part.is_shared)
        )
    return tuple(groups)


def describe(
    model_config: Any,
    parts: list[PoolPart],
    *,
    version: str,
    page_tokens: int,
    ranks: int,
    window_tokens: int = 0,
    order: str | None = None,
    arguments: Any = None,
) -> EngineModel:
    """The model that an engine runs.

    Args:
        model_config: SGLang's ``ModelConfig``.
        parts: of its device KV pool (:func:`pools.device_parts`), full attention first.
        version: of SGLang.
        page_tokens: of one page; a block.
        ranks: processes that have a part of each page (tensor parallelism); 1 for MLA pools of any size too, whose
            groups are shared.
        window_tokens: that SGLang keeps of a sliding window.
        order: of the bytes in a slot where it is not this pool's (a host pool's layout).
        arguments: SGLang's ``ServerArgs``: quantization and dtype are not in the model's configuration.

    Raises:
        UnsupportedModelError: a pool that cannot be served.
    """
    orders = sorted({part.order for part in parts})
    fields = {
        "id": name_of(model_config),
        "revision": revision_of(model_config, arguments),
        "kv_dtype": "+".join(sorted({part.dtype for part in parts})),
        "layer_set": layer_set([f"{part.name} {name}" for part in parts for name in part.layers]),
        "layout": f"sglang-{release_of(version)} {order or '+'.join(orders)}",
        "weights_epoch": 0,
        "tp_size": ranks,
        "cp_size": 1,
        "pp_size": 1,
    }
    return EngineModel(fields, page_tokens, groups_of(parts, page_tokens, window_tokens), ranks)
