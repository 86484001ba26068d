"""The class that SGLang's scheduler works with: its radix cache, with Forebay behind it. Imports SGLang.

No exception of ours reaches the scheduler from here: it becomes one line in the log, and an answer that lets the engine
compute by itself. Only the constructor raises: a wrong configuration is an error at start.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from sglang.srt.mem_cache.base_prefix_cache import (  # type: ignore[import-not-found, unused-ignore]
    InsertParams,
    MatchPrefixParams,
)
from sglang.srt.mem_cache.radix_cache import RadixKey  # type: ignore[import-not-found, unused-ignore]
from sglang.srt.mem_cache.unified_radix_cache import (  # type: ignore[import-not-found, unused-ignore]
    UnifiedRadixCache,
)

import forebay

from ..common import attach
from .complaints import complain, guarded, log
from .config import read_request
from .connector import Connector
from .metrics import Metrics
from .namespace import with_adapter
from .requests import Arrival, Entry
from .slots import slots_of
from .startup import Prepared


def _nothing() -> None:
    return None


def _is_served(req: Any) -> bool:
    """Whether a request's tokens say all about its KV cache."""
    return getattr(req, "positional_embed_overrides", None) is None and getattr(req, "input_embeds", None) is None


class _HeldByTree:
    """What the tree has of a request: :class:`requests.Held`.

    Args:
        cache: whose tree.
        req: with its newest node.
        full: end of its whole pages in the tree.
    """

    def __init__(self, cache: ForebayRadixCache, req: Any, full: int) -> None:
        self._cache, self._req, self._full = cache, req, full

    def arrival(self) -> Arrival:
        """See :class:`requests.Held`, as for all that follow."""
        req = self._req
        return Arrival(
            req.cache_request_handle,
            str(req.rid),
            req.full_untruncated_fill_ids,
            with_adapter(req.extra_key, self._cache._adapters),
            req.cache_salt,
            read_request(req.sampling_params.custom_params),
            owner=id(req),
        )

    def _slots(self, start: int, end: int) -> Any:
        page = self._cache.page_size
        return self._cache.path_device_indices(self._req.last_node)[start * page : end * page]

    def pages(self, start: int, end: int) -> list[list[int]]:
        """Pages of the tree's slots."""
        return self._cache._slots.pages(self._slots(start, end))

    def window_from(self) -> list[int]:
        """The window's group comes second."""
        return [0, self._cache._slots.window_from(self._slots(0, self._full))]

    def lock(self) -> Callable[[], None]:
        """Locks the node."""
        held = self._cache.lock(self._req.last_node)
        return lambda: self._cache.unlock(held)


class ForebayRadixCache(UnifiedRadixCache):  # type: ignore[misc, unused-ignore]
    """SGLang's unified radix cache whose requests are prefetched and kept by Forebay: ``docs/sglang.md``.

    Args:
        params: SGLang's ``CacheInitParams``.
        prepared: settings, model and ranks (:func:`startup.prepare`).

    Attributes:
        connector: what does it; None while the parent is being made.
        gate_open: the scheduler calls what prefetching needs.

    Raises:
        ValueError: a setting that is not accepted, or a server with another model; the message says what is.
        forebay.ForebayError: the cache cannot be opened.
        RanksError: the same, or ranks that differ, on all ranks.
    """

    def __init__(self, params: Any, prepared: Prepared) -> None:
        self.connector: Connector | None = None  # the parent's constructor calls reset()
        super().__init__(params)
        self.gate_open, self._adapters = prepared.gate_open, prepared.adapters
        window = max(group.trailing for group in prepared.model.groups) * self.page_size
        self._slots = slots_of(self.token_to_kv_pool_allocator, self.page_size, window)
        self._newest: Any = None  # the request that was matched last: its arrival follows
        self._is_told = False
        self._is_empty = True
        self.connector = Connector(
            prepared.settings, prepared.model, prepared.ranks, self._register(prepared), streams=prepared.streams
        )
        self._metrics = Metrics.made(prepared, self.connector) if prepared.settings.metrics else None

    @staticmethod
    def _register(prepared: Prepared) -> Any:
        def register(rank: forebay.Rank) -> None:
            attach.register_tensors(rank, prepared.model, prepared.ranks.rank, prepared.tensors)

        return register

    # ---- What the scheduler's gates ask ----

    def is_backuped(self, node_id: Any) -> bool:  # noqa: ARG002 (the argument's name is SGLang's)
        """Forebay goes by tokens: any node will do."""
        return True

    def supports_retraction_backup(self) -> bool:
        """A request that is retracted is prefetched again when it comes back."""
        return False

    def load_back_is_cache_owned(self) -> bool:
        """What was loaded is in the tree at once."""
        return True

    def has_pending_cache_operations(self) -> bool:
        """Whether a flush must wait."""
        return self.connector is not None and self.connector.has_work()

    # ---- Queue ----

    @guarded(_nothing)
    def prefetch_from_storage(
        self,
        request: Any,
        last_host_node_id: Any,  # noqa: ARG002
        new_input_tokens: Any,
        last_hash: str | None = None,  # noqa: ARG002
        prefix_keys: list[str] | None = None,  # noqa: ARG002
        matched_prefix_tokens: Any = None,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        storage_hit_end: int | None = None,  # noqa: ARG002
    ) -> None:
        """A request comes into the queue: its prefetch starts."""
        assert self.connector is not None
        req, self._newest = self._newest, None
        matched = matched_prefix_tokens if matched_prefix_tokens is not None else []
        limit = len(matched) + len(new_input_tokens)
        is_whole = req is not None and req.cache_request_handle == request
        if is_whole and not _is_served(req):
            return
        if is_whole:
            tokens = req.full_untruncated_fill_ids[: limit + 1]
        else:
            tokens = array("q", matched) + array("q", new_input_tokens) + array("q", [0])
        arrival = Arrival(
            request,
            str(request.rid),
            tokens,
            with_adapter(extra_key, self._adapters),
            cache_salt,
            read_request(req.sampling_params.custom_params if is_whole else None),
            RadixKey(tokens[:limit], extra_key=extra_key, cache_salt=cache_salt),
            id(req) if is_whole else 0,
        )
        self.connector.begin(arrival, limit, len(matched), is_whole=is_whole)

    def check_prefetch_progress(self, request: Any) -> bool:
        """Demand and poll; False: the scheduler skips the request in this pass."""
        try:
            return self.connector.check(request, self._on_device)  # type: ignore[union-attr]
        except Exception as error:
            complain("asking for a prefetch", error)
            return True

    def _on_device(self, entry: Entry) -> int:
        if entry.key is None:
            return 0
        return int(super().match_prefix(MatchPrefixParams(key=entry.key)).device_prefix_len)

    @guarded(lambda: (0, None))
    def pop_prefetch_loaded_span(self, request: Any) -> tuple[int, int | None]:
        """Tokens that the prefetch read from the store, and where they begin; once."""
        assert self.connector is not None
        return self.connector.span(request)

    def pop_prefetch_loaded_tokens(self, request: Any) -> int:
        """The tokens alone."""
        return int(self.pop_prefetch_loaded_span(request)[0])

    # ---- Admission ----

    def match_prefix(self, params: Any) -> Any:
        """The device's prefix, and behind it what Forebay can load, as a host hit."""
        result = super().match_prefix(params)
        req = params.req
        if req is None or self.connector is None:
            return result
        self._newest, self._is_empty = req, False
        try:
            return self._with_match(result, req, len(params.key))
        except Exception as error:
            complain("matching", error)
            return result

    def _with_match(self, result: Any, req: Any, limit: int) -> Any:
        assert self.connector is not None
        on_device = int(result.device_prefix_len)
        found = self.connector.match(req.cache_request_handle, on_device, limit)
        if req.storage_hit_length:  # the span as it was told: the device may have got a part of it since
            req.storage_hit_length = max(0, found.span_end - found.span_start)
            req.storage_hit_start = found.span_start if req.storage_hit_length else None
        if found.end <= on_device:
            return result
        node = result.last_device_node
        return result._replace(
            last_host_node=node,
            best_match_node=node,
            host_hit_length=found.end - on_device,
            swa_host_hit_length=min(found.end - on_device, self._slots.window),
            full_kv_hit_length=max(result.full_kv_hit_length, found.end),
        )

    def init_load_back(self, params: Any) -> tuple[int, Any]:
        """Loads what was matched: all of it, or nothing."""
        req, tokens = params.req, int(params.host_hit_length)
        if req is None or tokens <= 0:
            return 0, params.best_match_node
        try:
            node = self._load_back(req, tokens, params.best_match_node)
        except Exception as error:
            complain("loading", error)
            node = None
        if node is None:
            req.storage_hit_length, req.storage_hit_start = 0, None
            req.host_hit_length = req.swa_host_hit_length = 0
            return 0, params.best_match_node
        return tokens, node

    def _load_back(self, req: Any, tokens: int, node: Any) -> Any:
        """The node behind what was loaded; None: nothing was."""
        assert self.connector is not None
        page, start = self.page_size, int(req.prefix_len)
        end = start + tokens
        slots = self._slots.allocate(self, tokens)
        is_kept = False
        try:
            pages = None if slots is None else self._slots.pages(slots)
            if not self.connector.load(req.cache_request_handle, start // page, end // page, pages):
                return None
            key = RadixKey(req.full_untruncated_fill_ids[:end], extra_key=req.extra_key, cache_salt=req.cache_salt)
            value = torch.cat([self.path_device_indices(node)[:start], slots.to(torch.int64)])
            is_kept = True  # from here on the tree has them, or has freed them
            self.insert(
                InsertParams(
                    key=key,
                    value=value,
                    prev_prefix_len=start,
                    inserted_len=end,
                    priority=req.priority or 0,
                    component_evicted_seqlens=self._slots.window_ends(tokens, end),
                )
            )
        finally:
            if slots is not None and not is_kept:
                self._slots.free(slots)
        found = super().match_prefix(MatchPrefixParams(key=key))
        return found.last_device_node if int(found.device_prefix_len) == end else None

    def finish_storage_prefetch_admission(self, request: Any, fulfilled_tokens: int, reason: str | None) -> None:
        """The request runs."""
        super().finish_storage_prefetch_admission(request, fulfilled_tokens, reason)
        self._tell("admitted", request)

    # ---- Keeping ----

    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        """The end of a chunk, or of the request: what the tree has of it is kept."""
        super().checkpoint(req, up_to=up_to, **kwargs)
        try:
            self._keep(req, up_to)
        except Exception as error:
            complain("saving", error)

    def _keep(self, req: Any, up_to: int) -> None:
        if self.connector is None or self.disable or req.skip_radix_cache_insert or not _is_served(req):
            return
        self._warn_of_shut_gate()
        page, prompt = self.page_size, len(req.origin_input_ids)
        full = min(up_to, int(req.kv.cache_protected_len)) // page
        more = not req.finished() and up_to < prompt
        self.connector.save(
            req.cache_request_handle, full, _HeldByTree(self, req, full), again=(prompt - 1) // page, more=more
        )

    def _warn_of_shut_gate(self) -> None:
        if not self.gate_open and not self._is_told:
            self._is_told = True
            log.error(
                "forebay: the scheduler does not ask for prefetches (the hook on its constructor did not run): "
                "nothing is restored; start the engine with --enable-lmcache beside --radix-cache-backend forebay"
            )

    # ---- Ends ----

    def on_release(self, req: Any, *, checkpointed: bool) -> None:
        """The request's pages are the tree's now, or free."""
        super().on_release(req, checkpointed=checkpointed)
        self._tell("end", req.cache_request_handle)

    def release_aborted_request(self, request: Any) -> None:
        """The request is gone, in whatever state."""
        super().release_aborted_request(request)
        self._tell("end", request)

    def _tell(self, what: str, *arguments: Any) -> None:
        if self.connector is None:
            return
        try:
            getattr(self.connector, what)(*arguments)
        except Exception as error:
            complain(what, error)

    def check_hicache_events(self) -> None:
        """Once per pass of the scheduler."""
        self._tell("step", self._on_device)
        try:
            if self._metrics is not None:
                self._metrics.update()
        except Exception as error:
            complain("metrics", error)

    # ---- The cache as a whole ----

    def reset(self) -> None:
        """A flush: the device's pages and the pool's are forgotten."""
        self._tell("reset")
        self._newest, self._is_empty = None, True
        super().reset()

    @guarded(lambda: False)
    def clear_storage_backend(self) -> bool:
        """The store's objects become unreachable too."""
        assert self.connector is not None
        return self.connector.reset(new_epoch=True)

    def new_weights(self) -> None:
        """The model has other weights: what was computed before is out of reach, in the store too."""
        if self.connector is None:
            return
        log.info("forebay: the weights have changed; what the old ones computed is not found any more")
        if not self._is_empty:
            log.warning("forebay: the device has pages of the old weights: nothing is kept until the next /flush_cache")
        try:
            self.connector.new_weights(is_empty=self._is_empty)
        except Exception as error:
            complain("new weights", error)

    def shutdown(self) -> None:
        """Ends everything. Idempotent."""
        self._tell("close")
        super().shutdown()

    def release_host_resources(self) -> None:
        """The scheduler's last call."""
        self.shutdown()
        super().release_host_resources()
