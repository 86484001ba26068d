"""What is looked at before the cache is made: SGLang's version, arguments and functions, and the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..common.model import EngineModel, UnsupportedModelError
from .config import Settings, settings_of
from .copying import Streams
from .model import describe
from .namespace import adapters_of
from .pools import device_parts, tensors_of
from .ranks import Ranks, carrier_of, refuse_other_groups
from .versions import check_version

NAME = "forebay"
"""Of the backend: ``--radix-cache-backend forebay``."""

CALLED: dict[str, tuple[str, ...]] = {
    "prefetch_from_storage": (
        "request", "last_host_node_id", "new_input_tokens", "last_hash", "prefix_keys", "matched_prefix_tokens",
        "extra_key", "cache_salt", "storage_hit_end",
    ),
    "check_prefetch_progress": ("request",),
    "pop_prefetch_loaded_span": ("request",),
    "match_prefix": ("params",),
    "init_load_back": ("params",),
    "finish_storage_prefetch_admission": ("request", "fulfilled_tokens", "reason"),
    "checkpoint": ("req", "up_to"),
    "on_release": ("req", "checkpointed"),
    "release_aborted_request": ("request",),
    "check_hicache_events": (),
    "reset": (),
    "insert": ("params",),
    "evict_for_alloc": ("params",),
    "path_device_indices": ("node",),
    "lock": ("node_id",),
    "unlock": ("lock",),
}  # fmt: skip
"""Methods of SGLang's cache that ours overrides or calls, with the arguments that both count on."""

# Arguments of the server whose other values change what a page or a request is.
_ONLY: dict[str, Any] = {
    "enable_hierarchical_cache": False,
    "enable_unified_cache_external_linker": False,
    "enable_flexkv": False,
    "disable_radix_cache": False,
    "enable_streaming_session": False,
    "enable_hisparse": False,
    "enable_unified_memory": False,
    "enable_dp_attention": False,
    "speculative_algorithm": None,
    "disaggregation_mode": "null",
    "dcp_size": 1,
    "pp_size": 1,
    "attn_cp_size": 1,
    "dllm_algorithm": None,
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the cache is made from.

    Attributes:
        settings: of the engine.
        model: that it runs.
        ranks: that share the cache.
        tensors: page-first views of the device's KV pool, by layer.
        streams: of the engine; None on the host.
        labels: of the engine's metrics; None: those are off.
        gate_open: the engine itself asks for prefetches (``--enable-lmcache``).
        adapters: what the LoRA adapters are that it was started with, by id.
    """

    settings: Settings
    model: EngineModel
    ranks: Ranks
    tensors: dict[str, list[Any]]
    streams: Streams | None
    labels: dict[str, str] | None
    gate_open: bool
    adapters: dict[str, str] = field(default_factory=dict)


def check_shape(cache_class: type) -> None:
    """Looks at the functions that are overridden or called.

    Raises:
        TypeError: one is missing, or lacks an argument.
    """
    for name, wanted in CALLED.items():
        method = getattr(cache_class, name, None)
        if method is None:
            raise TypeError(f"{cache_class.__name__} has no {name}: this SGLang is not supported")
        have = inspect.signature(method).parameters
        missing = [one for one in wanted if one not in have]
        if missing:
            raise TypeError(
                f"{cache_class.__name__}.{name} has no {', '.join(missing)} (it has {', '.join(have)}): "
                "this SGLang is not supported"
            )


def check_arguments(server_args: Any) -> None:
    """Refuses modes of the engine in which pages or requests are others than Forebay knows.

    Raises:
        UnsupportedModelError: one is on; the message has the argument and what is accepted.
    """
    for name, accepted in _ONLY.items():
        value = getattr(server_args, name, accepted)
        if value != accepted and value is not None:
            argument = "--" + name.replace("_", "-")
            raise UnsupportedModelError(
                f"{argument} is {value!r}; accepted with --radix-cache-backend {NAME}: {accepted!r}"
            )


def _device_of(tensors: dict[str, list[Any]]) -> str:
    kind = str(next(iter(tensors.values()))[0].device.type)
    if kind not in ("cpu", "cuda"):
        raise UnsupportedModelError(f"the KV pool is on a device {kind!r}; accepted: cpu, cuda")
    return "cuda" if kind == "cuda" else "host"


def _check_model(ctx: Any, allocator: Any) -> None:
    """Refuses models whose cache is more than pages of keys and values."""
    if ctx.is_hybrid_ssm or ctx.is_dsa or ctx.params.is_eagle:
        raise UnsupportedModelError(
            "the model's cache has states, sparse indices or pairs of tokens; accepted: full attention, MLA, and both "
            "beside sliding windows"
        )
    if not ctx.is_hybrid_swa:
        return
    kind = type(allocator).__name__
    is_plain = kind == "SWATokenToKVPoolAllocator" and not allocator.swa_req_ring
    if not is_plain or not ctx.params.swa_gates_prefix_match or ctx.params.decoder_swa_bounded_replay:
        raise UnsupportedModelError(
            f"the sliding windows of this model are kept by a {kind} in a way that is not served; accepted: a pool of "
            "pages for them, or --disable-hybrid-swa-memory"
        )
    if ctx.full_tokens_per_layer == 0:
        raise UnsupportedModelError("every layer has a sliding window; accepted: at least one of full attention")


def _prepare(ctx: Any, ranks: Ranks, version: str, cache_class: type, open_gate: Callable[[], bool]) -> Prepared:
    params = ctx.params
    check_version(version)
    check_shape(cache_class)
    check_arguments(ctx.server_args)
    refuse_other_groups(params)
    allocator = params.token_to_kv_pool_allocator
    _check_model(ctx, allocator)
    parts = device_parts(allocator.get_kvcache(), params.page_size)
    tensors = tensors_of(parts)
    settings = settings_of(ctx.server_args, _device_of(tensors))
    model = describe(
        ctx.model_config,
        parts,
        version=version,
        page_tokens=params.page_size,
        ranks=ranks.size,
        window_tokens=int(params.swa_retain_window or 0),
        arguments=ctx.server_args,
    )
    is_cuda = settings.device == "cuda"
    streams = Streams(getattr(ctx.tp_worker.model_runner, "forward_stream", None)) if is_cuda else None
    labels = _labels(ctx, ranks) if params.enable_metrics else None
    return Prepared(settings, model, ranks, tensors, streams, labels, open_gate(), adapters_of(ctx.server_args))


def _labels(ctx: Any, ranks: Ranks) -> dict[str, str]:
    """As SGLang labels its own series."""
    name = ctx.server_args.served_model_name or ctx.server_args.model_path
    return {"model_name": str(name), "tp_rank": str(ranks.rank)}


def prepare(ctx: Any, version: str, cache_class: type, open_gate: Callable[[], bool]) -> Prepared:
    """Looks at everything and reads the settings. All ranks succeed, or all raise.

    Args:
        ctx: SGLang's ``TreeCacheBuildContext``.
        version: of SGLang.
        cache_class: SGLang's, which ours derives from.
        open_gate: whether the engine itself asks for prefetches; raises where it never will.

    Raises:
        UnsupportedVersionError: it is not one of those that work.
        UnsupportedModelError: a mode or a model that cannot be served.
        ValueError: a setting; forebay.ConfigError is one.
        RanksError: the same, of another rank.
    """
    ranks = Ranks(carrier_of(ctx.params.tp_cache_group))
    made: Prepared | None = None
    problem: Exception | None = None
    try:
        made = _prepare(ctx, ranks, version, cache_class, open_gate)
    except Exception as error:
        problem = error
    if ranks.size > 1:
        ranks.unanimous("starting", problem)
    elif problem is not None:
        raise problem
    assert made is not None
    return made
