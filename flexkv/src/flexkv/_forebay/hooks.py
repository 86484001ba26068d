"""What SGLang's integration leaves out, seen at its own methods: no file of SGLang is changed.

Release 0.5.23 passes neither the request nor what keeps it apart to the manager, never asks for a prefetch, tells a
load's failure to the leader alone, and does not stop a prefetch whose request is gone. Methods of its classes are
wrapped here, in each of its processes, when a rank is made. A method that has another shape than it should is left
alone, and the log says what is missing; without those that tell requests apart the start is refused.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from forebay.engines.sglang.config import read_request

from .engine import LoadRefusedError
from .log import complain, log
from .scope import Scope, entered

_CACHE = "sglang.srt.mem_cache.storage.flexkv.flexkv_radix_cache"
_CONNECTOR = "sglang.srt.mem_cache.storage.flexkv.flexkv_connector"
_SCHEDULER = "sglang.srt.managers.scheduler"

Original = Callable[..., Any]


def _scope_of(request: Any, extra_key: Any, cache_salt: Any, device_tokens: int = 0) -> Scope:
    handle = getattr(request, "cache_request_handle", None)
    options = read_request(getattr(getattr(request, "sampling_params", None), "custom_params", None))
    return Scope(handle, str(getattr(handle, "rid", "")), extra_key, cache_salt, device_tokens, options)


def _engine_of(cache: Any) -> Any:
    """The leader's engine; None on other ranks."""
    manager = cache.flexkv_connector.kv_manager
    return manager.engine if manager is not None else None


def _match_prefix(original: Original, cache: Any, params: Any) -> Any:
    """Says whose match it is. Keys of pairs of tokens count other lengths than the manager: only the device's."""
    key, engine = params.key, _engine_of(cache)
    if engine is not None and not engine.is_pool_known:
        engine.check_pool(cache.token_to_kv_pool_allocator.get_kvcache())
    if getattr(key, "is_bigram", False):
        from sglang.srt.mem_cache.radix_cache import (  # type: ignore[import-not-found, unused-ignore]
            RadixCache,
        )

        return RadixCache.match_prefix(cache, params)
    with entered(_scope_of(params.req, key.extra_key, key.cache_salt)):
        return original(cache, params)


def _checkpoint(original: Original, cache: Any, req: Any, *, up_to: int) -> None:
    with entered(_scope_of(req, req.extra_key, req.cache_salt or None)):
        original(cache, req, up_to=up_to)


def _on_release(original: Original, cache: Any, req: Any, *, checkpointed: bool) -> None:
    original(cache, req, checkpointed=checkpointed)
    engine = _engine_of(cache)
    if engine is not None:
        engine.forget(req.cache_request_handle)


def _release_aborted_request(original: Original, cache: Any, handle: Any) -> None:
    """The node of a store that is under way is unlocked here: its pages are copied before."""
    engine, task = _engine_of(cache), cache.flexkv_connector._inflight_stores.get(handle)
    if engine is not None and task is not None:
        engine.wait([task], 0.0, completely=False)
    original(cache, handle)
    if engine is not None:
        engine.forget(handle)


def _evict(original: Original, cache: Any, params: Any) -> Any:
    """Nodes that a layer-wise load still fills are not locked: their pages are filled before they are given away."""
    engine = _engine_of(cache)
    if engine is not None and cache.flexkv_connector.enable_layerwise:
        engine.drain()
    return original(cache, params)


def _release_host_resources(original: Original, cache: Any) -> None:
    """The scheduler ends politely: what is being written is given time to."""
    original(cache)
    cache.flexkv_connector.shutdown()


def _pop_prefetch_loaded_span(original: Original, cache: Any, handle: Any) -> tuple[int, int | None]:
    del original
    engine = _engine_of(cache)
    span: tuple[int, int | None] = engine.take_span(handle) if engine is not None else (0, None)
    return span


def _clear_storage_backend(cache: Any) -> None:
    """What SGLang calls to clear its host's cache; on every rank."""
    engine = _engine_of(cache)
    if engine is not None:
        try:
            engine.reset()
        except Exception as error:
            complain("clearing", error)


def _has_pending_cache_operations(cache: Any) -> bool:
    """The same answer on all ranks: what is under way is waited for when the cache is reset."""
    del cache
    return False


def _retrieve_kv(original: Original, connector: Any, handle: Any, slot_mapping: Any) -> int:
    """On ranks that do not lead: what the leader said of the load, in place of what was asked for."""
    task = connector._pending_lookups.get(handle, -1)
    loaded: int = original(connector, handle, slot_mapping)
    if connector.kv_manager is not None or task < 0:
        return loaded
    return loaded if connector.tp_client.verdict(task) else 0


def _cancel_prefetch(original: Original, connector: Any, handle: Any) -> None:
    if connector.kv_manager is not None:
        task = connector._ongoing_prefetches.get(handle, -1)
        if task >= 0:
            connector.kv_manager.cancel([task])
    original(connector, handle)


def _start_load_kv_layerwise(original: Original, connector: Any, handle: Any, slot_mapping: Any) -> tuple[int, int]:
    """A load that cannot be made is none; a counter that no forward waited for is free again once its load is over."""
    counter = connector.layer_done_counter
    following = counter.events[(counter.producer_index + 1) % counter.num_counters]
    if not following._finished:
        connector.kv_manager.engine.drain()
        following._finished = True
    try:
        made: tuple[int, int] = original(connector, handle, slot_mapping)
    except LoadRefusedError as error:
        counter.events[counter.producer_index]._finished = True
        counter._task_to_producer.pop(error.task_id, None)
        return 0, -1
    return made


def _prefetch_kvcache(original: Original, scheduler: Any, req: Any, storage_hit_end: Any = None) -> Any:
    """A request comes into the queue: its prefetch begins, and the gate of the check at its turn is opened."""
    cache = scheduler.tree_cache
    connector = getattr(cache, "flexkv_connector", None)
    if connector is None:
        return original(scheduler, req, storage_hit_end)
    if not connector._prefetch_enabled or req.positional_embed_overrides is not None:
        return None
    scheduler.enable_lmcache = True
    try:
        _prefetch(cache, connector, req)
    except Exception as error:
        complain("starting a prefetch", error)
    return None


def _prefetch(cache: Any, connector: Any, req: Any) -> None:
    from sglang.srt.mem_cache.base_prefix_cache import (  # type: ignore[import-not-found, unused-ignore]
        MatchPrefixParams,
    )
    from sglang.srt.mem_cache.radix_cache import (  # type: ignore[import-not-found, unused-ignore]
        RadixCache,
        RadixKey,
    )

    tokens = req.origin_input_ids + req.output_ids
    end = req._compute_max_prefix_len(len(tokens)) // cache.page_size * cache.page_size
    if end <= 0:
        return
    key = RadixKey(tokens[:end], req.extra_key, cache_salt=req.cache_salt)
    device = int(RadixCache.match_prefix(cache, MatchPrefixParams(key=key)).device_prefix_len)
    if device >= end:
        return
    with entered(_scope_of(req, req.extra_key, req.cache_salt or None, device)):
        connector.prefetch_async(req.cache_request_handle, tokens[:end])


# Module, class, method, its parameters, what stands before it, and whether a start without it is refused.
_WRAPPERS: tuple[tuple[str, str, str, tuple[str, ...], Callable[..., Any], bool], ...] = (
    (_CACHE, "FlexKVRadixCache", "match_prefix", ("self", "params"), _match_prefix, True),
    (_CACHE, "FlexKVRadixCache", "checkpoint", ("self", "req", "up_to"), _checkpoint, True),
    (_CACHE, "FlexKVRadixCache", "on_release", ("self", "req", "checkpointed"), _on_release, False),
    (_CACHE, "FlexKVRadixCache", "release_aborted_request", ("self", "handle"), _release_aborted_request, False),
    (_CACHE, "FlexKVRadixCache", "evict", ("self", "params"), _evict, True),
    (_CACHE, "FlexKVRadixCache", "pop_prefetch_loaded_span", ("self", "handle"), _pop_prefetch_loaded_span, False),
    (_CACHE, "FlexKVRadixCache", "release_host_resources", ("self",), _release_host_resources, False),
    (_CONNECTOR, "FlexKVConnector", "retrieve_kv", ("self", "handle", "slot_mapping"), _retrieve_kv, True),
    (_CONNECTOR, "FlexKVConnector", "cancel_prefetch", ("self", "handle"), _cancel_prefetch, False),
    (
        _CONNECTOR, "FlexKVConnector", "start_load_kv_layerwise", ("self", "handle", "slot_mapping"),
        _start_load_kv_layerwise, True,
    ),
    (_SCHEDULER, "Scheduler", "_prefetch_kvcache", ("self", "req", "storage_hit_end"), _prefetch_kvcache, False),
)  # fmt: skip

_ADDED = {
    "clear_storage_backend": _clear_storage_backend,
    "has_pending_cache_operations": _has_pending_cache_operations,
}


def wrap(owner: Any, name: str, parameters: tuple[str, ...], before: Callable[..., Any]) -> str | None:
    """Puts a function before a method, once.

    Args:
        owner: the class.
        name: of the method.
        parameters: that it must have.
        before: called with the method and its arguments.

    Returns:
        None, or why it was left alone.
    """
    method = getattr(owner, name, None)
    if method is None:
        return f"{owner.__name__} has no {name}"
    if getattr(vars(owner).get(name), "__forebay__", None) is before:
        return None
    found = tuple(inspect.signature(method).parameters)
    if found != parameters:
        return f"{owner.__name__}.{name} takes {', '.join(found)}; accepted: {', '.join(parameters)}"

    @functools.wraps(method)
    def run(*arguments: Any, **keywords: Any) -> Any:
        return before(method, *arguments, **keywords)

    run.__forebay__ = before  # type: ignore[attr-defined]
    setattr(owner, name, run)
    return None


def install() -> None:
    """Wraps SGLang's methods, where SGLang is what imports this package. Idempotent.

    Raises:
        RuntimeError: a method that tells requests apart has another shape.
    """
    for module, owner, name, parameters, before, is_needed in _WRAPPERS:
        found = getattr(sys.modules.get(module), owner, None)
        if found is None:
            continue
        reason = wrap(found, name, parameters, before)
        if reason is not None and is_needed:
            raise RuntimeError(f"flexkv: {reason}")
        if reason is not None:
            log.warning("forebay: %s", reason)
    cache = getattr(sys.modules.get(_CACHE), "FlexKVRadixCache", None)
    for name, function in _ADDED.items():
        if cache is not None and not hasattr(cache, name):
            setattr(cache, name, function)
