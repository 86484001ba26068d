"""The tensors of SGLang's device KV pools as whole pages: a device block is one page of consecutive slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..common.model import UnsupportedModelError

_SIMPLE = ("MHATokenToKVPool", "MLATokenToKVPool")
_SPLIT_WINDOW = "SWAKVPool"
_BY_PAGES = ("hnd", "vectorized_5d")  # layouts whose first dimension counts pages already


@dataclass(frozen=True, slots=True)
class PoolPart:
    """The layers of one attention kind.

    Attributes:
        name: ``"a"`` full attention, ``"w"`` sliding window.
        layers: per layer its name and its page-first views: K and V, or one of both (MLA). Shape of a view:
            ``[pages, …]``; a page's bytes lie together.
        order: how the bytes of a page are ordered.
        is_shared: all ranks have the same bytes (MLA).
        dtype: of the values.
    """

    name: str
    layers: dict[str, list[Any]]
    order: str
    is_shared: bool
    dtype: str

    @property
    def page_bytes(self) -> int:
        """One page of all its layers on this rank."""
        return sum(int(view[0].numel()) * int(view.element_size()) for views in self.layers.values() for view in views)


def _by_page(tensor: Any, page_tokens: int, order: str) -> Any:
    """A tensor ``[slots, …]`` as ``[pages, page_tokens, …]``; one that counts pages stays."""
    if order in _BY_PAGES:
        return tensor
    pages = int(tensor.shape[0]) // page_tokens
    return tensor[: pages * page_tokens].unflatten(0, (pages, page_tokens))


def _part(pool: Any, page_tokens: int, name: str) -> PoolPart:
    kind = type(pool).__name__
    if kind not in _SIMPLE:
        raise UnsupportedModelError(f"the KV pool is a {kind}; accepted: {', '.join((*_SIMPLE, _SPLIT_WINDOW))}")
    is_mla = kind == "MLATokenToKVPool"
    if is_mla and getattr(pool, "kv_scale_buffer", None) is not None:
        raise UnsupportedModelError("the KV pool has scales of its own; accepted: values without")
    if bool(getattr(pool, "layer_shard_enabled", False)):
        raise UnsupportedModelError("the layers of the KV pool are sharded over ranks; accepted: all layers on each")
    order = "nhd" if is_mla else str(getattr(pool, "kv_cache_layout", "nhd"))
    if order not in ("nhd", *_BY_PAGES):
        raise UnsupportedModelError(f"kv_cache_layout is {order!r}; accepted: nhd, {', '.join(_BY_PAGES)}")
    rows = [[one] for one in pool.kv_buffer] if is_mla else list(zip(pool.k_buffer, pool.v_buffer, strict=True))
    ids = getattr(pool, "model_layer_ids", None) or range(pool.start_layer, pool.start_layer + len(rows))
    layers = {
        f"layer {number}": [_by_page(tensor, page_tokens, order) for tensor in row]
        for number, row in zip(ids, rows, strict=True)
    }
    return PoolPart(name, layers, order, is_mla, str(pool.dtype).removeprefix("torch."))


def device_parts(pool: Any, page_tokens: int) -> list[PoolPart]:
    """The parts of a device KV pool, full attention first.

    Args:
        pool: ``token_to_kv_pool_allocator.get_kvcache()``.
        page_tokens: of one page.

    Raises:
        UnsupportedModelError: a pool that is not one of the plain ones; the message says what is accepted.
    """
    if type(pool).__name__ == _SPLIT_WINDOW:
        return [_part(pool.full_kv_pool, page_tokens, "a"), _part(pool.swa_kv_pool, page_tokens, "w")]
    return [_part(pool, page_tokens, "a")]


def tensors_of(parts: list[PoolPart]) -> dict[str, list[Any]]:
    """All layers' views by name, as :func:`common.attach.register_tensors` takes them."""
    return {name: views for part in parts for name, views in part.layers.items()}
