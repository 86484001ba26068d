"""The entry point ``sglang.srt.plugins``: names the backend, and opens the scheduler's gate for it. Imports SGLang.

SGLang runs this in each of its processes, whichever backend is chosen: it may change nothing for another.
"""

from __future__ import annotations

import functools
from typing import Any

from .complaints import log
from .startup import NAME, prepare
from .versions import UnsupportedVersionError, check_version

HOOKED = "sglang.srt.managers.scheduler.Scheduler.__init__"
WEIGHTS = (
    "sglang.srt.managers.scheduler_components.weight_updater"
    ".SchedulerWeightUpdaterManager.flush_cache_after_weight_update"
)
"""Called after every change of the weights in a running engine; its caches are told of a flush, if at all."""


def open_gate(_result: Any, scheduler: Any, *_arguments: Any, **_keywords: Any) -> None:
    """After the scheduler's constructor: with our cache it asks for prefetches; its own flag for that is LMCache's.

    The setting of the server stays as it is: nothing takes the engine for one with LMCache.
    """
    cache = getattr(scheduler, "tree_cache", None)
    if cache is None or getattr(cache, "connector", None) is None or not hasattr(cache, "gate_open"):
        return
    if not isinstance(getattr(scheduler, "enable_lmcache", None), bool):
        log.error(
            "forebay: this SGLang's scheduler has no enable_lmcache, so it cannot be told to ask for prefetches: "
            "nothing is restored"
        )
        return
    scheduler.enable_lmcache = True
    cache.gate_open = True


def weights_changed(_result: Any, updater: Any, *_arguments: Any, **_keywords: Any) -> None:
    """After new weights: what the old ones computed is never found again."""
    scheduler = getattr(updater, "scheduler", None)
    cache = getattr(scheduler, "tree_cache", None)
    tell = getattr(cache, "new_weights", None)
    if tell is not None:
        tell()


def _is_gate_open() -> bool:
    """Whether the engine asks for prefetches by itself.

    Raises:
        RuntimeError: it does not, and the hook is not there either.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry  # type: ignore[import-not-found, unused-ignore]
    from sglang.srt.runtime_context import get_memory  # type: ignore[import-not-found, unused-ignore]

    if get_memory().enable_lmcache:
        return True
    if HOOKED not in HookRegistry._patched:
        raise RuntimeError(
            f"the hook on {HOOKED} was not applied, so the scheduler would never ask for prefetches; accepted: the "
            f"argument --enable-lmcache beside --radix-cache-backend {NAME}"
        )
    return False


def factory(ctx: Any) -> Any:
    """Makes the cache, for ``register_radix_cache_backend``."""
    import sglang  # type: ignore[import-not-found, unused-ignore]
    from sglang.srt.mem_cache.registry import (  # type: ignore[import-not-found, unused-ignore]
        create_unified_radix_cache,
    )
    from sglang.srt.mem_cache.unified_radix_cache import (  # type: ignore[import-not-found, unused-ignore]
        UnifiedRadixCache,
    )

    prepared = prepare(ctx, str(sglang.__version__), UnifiedRadixCache, _is_gate_open)
    from .cache import ForebayRadixCache

    return create_unified_radix_cache(ctx, cache_class=functools.partial(ForebayRadixCache, prepared=prepared))


def register() -> None:
    """Registers the backend, and hooks where they fit."""
    import sglang  # type: ignore[import-not-found, unused-ignore]

    try:
        from sglang.srt.mem_cache.registry import (  # type: ignore[import-not-found, unused-ignore]
            register_radix_cache_backend,
        )
        from sglang.srt.plugins.hook_registry import (  # type: ignore[import-not-found, unused-ignore]
            HookRegistry,
            HookType,
        )
    except ImportError as error:
        log.warning("forebay: not offered, this SGLang has no registry of radix caches or no hooks: %s", error)
        return
    register_radix_cache_backend(NAME, factory)
    try:
        check_version(str(sglang.__version__))
    except UnsupportedVersionError:
        return  # whoever chooses the backend is told; nobody else is to have errors of hooks in the log
    HookRegistry.register(HOOKED, open_gate, HookType.AFTER)
    HookRegistry.register(WEIGHTS, weights_changed, HookType.AFTER)
