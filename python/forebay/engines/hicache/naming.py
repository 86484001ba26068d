"""What a page's bytes depend on besides its hash: fields of the fingerprint, and the name of a rank's part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.weights import weights_revision

_OF_ONE_RANK = ("mamba",)
"""Pools whose bytes differ between ranks even where the KV cache is the same on all (MLA)."""

_OF_HEADS = ("MHATokenToKVPoolHost", "MHATokenToKOnlyPoolHost")
"""Host pools of attention heads, which ranks divide among them: an MLA model's draft may have one."""

# Arguments that change the bytes of a page, besides the model and the weights of a draft model.
_SAYS = (
    "json_model_override_args", "quantization", "quantization_param_path", "modelopt_quant", "rl_quant_profile",
    "dtype", "speculative_draft_model_quantization",
)  # fmt: skip

_LOADS = ("load_format", "speculative_draft_load_format")  # of which only random weights matter

_MOST_TEXT = 63  # bytes of a field


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short(text: str) -> str:
    """The text, or what a field holds of it with a digest of the whole."""
    fits = len(text.encode()) <= _MOST_TEXT and text.isascii() and text.isprintable()
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    return text if fits else f"{plain[:40]} {_digest(text)}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What SGLang says of its model, apart from pools.

    Attributes:
        model: its name.
        revision: of its weights and configuration.
        cache_dtype: what was asked of the KV cache: variants of one byte share a tensor's type.
        release: of SGLang, as far as it says how pages lie: ``0.5``.
    """

    model: str
    revision: str
    cache_dtype: str
    release: str


def release_of(version: str) -> str:
    """The part of SGLang's version that says how pages lie."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def _revision(model: str, revision: Any) -> str:
    """Which weights: by their content where they lie here, else by the commit that a name like ``main`` stands for."""
    if Path(model).exists():
        return weights_revision(Path(model))
    name = str(revision or "main")
    try:
        from huggingface_hub import try_to_load_from_cache  # type: ignore[import-not-found, unused-ignore]

        found = try_to_load_from_cache(model, "config.json", revision=name)
    except Exception:  # no hub, or a name that is none of its
        found = None
    return Path(found).parent.name if isinstance(found, str) else name


def facts_of(config: Any, arguments: Any, version: str) -> Facts:
    """Facts from SGLang's storage configuration and its server's arguments.

    Args:
        config: ``HiCacheStorageConfig``.
        arguments: ``ServerArgs``, or None.
        version: of SGLang.
    """
    given = str(getattr(arguments, "model_path", None) or config.model_name or "unnamed")
    path = Path(given)
    revision = _revision(given, getattr(arguments, "revision", None))
    draft = str(getattr(arguments, "speculative_draft_model_path", None) or "")
    says = [getattr(arguments, name, None) for name in _SAYS]
    says += [getattr(arguments, name, None) == "dummy" for name in _LOADS]
    if draft:
        says += ["" if Path(draft).exists() else draft]
        says += [_revision(draft, getattr(arguments, "speculative_draft_model_revision", None))]
    settings = path / "config.json"
    text = repr(says) + (settings.read_text(encoding="utf-8", errors="replace") if settings.is_file() else "")
    return Facts(
        path.resolve().name if path.exists() else given,  # two machines may have it in two places
        f"{revision}/{_digest(text)}",
        str(getattr(arguments, "kv_cache_dtype", None) or "auto"),
        release_of(version),
    )


def is_replicated(config: Any, pool: str, host: Any) -> bool:
    """Whether all tensor-parallel ranks have the same bytes of a pool."""
    has_heads = any(kind.__name__ in _OF_HEADS for kind in type(host).__mro__)
    return bool(config.is_mla_model) and pool not in _OF_ONE_RANK and not has_heads


def is_stored_by_all(config: Any, pool: str) -> bool:
    """Whether SGLang stores the pages of every rank: with MLA it takes one rank's for all, but of states."""
    return not config.is_mla_model or pool in _OF_ONE_RANK


def part_name(config: Any, pool: str, host: Any) -> str:
    """Which part of a page a rank has of a pool, as text; equal on ranks that have the same."""
    parts = [pool]
    if not is_replicated(config, pool, host):
        parts.append(f"tp{config.tp_rank}of{config.tp_size}")
    for name in ("pp", "attn_cp", "dcp"):
        rank, size = int(getattr(config, f"{name}_rank", 0)), int(getattr(config, f"{name}_size", 1))
        if size > 1:
            parts.append(f"{name}{rank}of{size}")
    return "-".join(parts)


def place_name(config: Any, pool: str, host: Any) -> str:
    """The same for a directory, which belongs to one process: ranks of data parallelism have one each."""
    rank = int(getattr(config, "dp_rank", 0))
    return part_name(config, pool, host) + (f"-dp{rank}" if rank else "")


def fields_of(facts: Facts, config: Any, pool: str, host: Any, sizes: Sequence[int]) -> dict[str, Any]:
    """Fields of the fingerprint for the pages of a host pool.

    Args:
        facts: of the model.
        config: ``HiCacheStorageConfig``.
        pool: its name.
        host: the pool.
        sizes: bytes of a page's pieces, in order.
    """
    layers = [str(getattr(host, name, "?")) for name in ("start_layer", "end_layer", "layer_num")]
    form = [type(host).__name__, host.layout, getattr(host, "storage_format_tag", None), host.page_size, *sizes]
    return {
        "id": _short(facts.model),
        "revision": _short(facts.revision),
        "kv_dtype": _short(f"{getattr(host, 'dtype', 'bytes')} {facts.cache_dtype}"),
        "layer_set": _short(f"{pool} {' '.join(layers)}"),
        "layout": _short(f"hicache-{facts.release} {host.layout} {_digest(repr(form))}"),
        "weights_epoch": 0,
        "tp_size": 1 if is_replicated(config, pool, host) else int(config.tp_size),
        "cp_size": 1,
        "pp_size": int(config.pp_size),
    }
