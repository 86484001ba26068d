"""Block events in vLLM's terms: what became resident in the pool, and what left it, by the engine's block hashes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import forebay

from .complaints import log
from .requests import Entry

if TYPE_CHECKING:
    from ..common.model import EngineModel

MOST_KNOWN = 1 << 17
"""Blocks whose engine hash is remembered; a block beyond that is not announced."""

EVENTS_KEPT = 1 << 14
MEDIUM = "CPU"


class BlockEvents:
    """Turns the cache's events into the engine's. One thread calls it.

    Args:
        cache: whose events they are.
        model: block size.
        stored: makes a ``BlockStored`` from (hash, parent's hash or None, tokens, LoRA's name or None).
        removed: makes a ``BlockRemoved`` from a hash.
    """

    def __init__(
        self,
        cache: forebay.Cache,
        model: EngineModel,
        stored: Callable[[Any, Any, list[int], str | None], Any],
        removed: Callable[[Any], Any],
    ) -> None:
        self._subscription = cache.subscribe(EVENTS_KEPT)
        self._tokens = model.block_tokens
        self._stored, self._removed = stored, removed
        self._known: OrderedDict[str, tuple[Any, Any, list[int], str | None]] = OrderedDict()

    def learn(self, entry: Entry, start: int = 0) -> None:
        """Remembers the engine's hashes of a request's whole blocks from ``start`` on."""
        request = entry.request
        lora = request.lora_request.lora_name if request.lora_request is not None else None
        for i in range(start, min(len(request.block_hashes), entry.sequence.blocks)):
            parent = request.block_hashes[i - 1] if i else None
            tokens = list(request.all_token_ids[i * self._tokens : (i + 1) * self._tokens])
            self._known[entry.sequence.key(i)[:32]] = (request.block_hashes[i], parent, tokens, lora)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def take(self) -> Iterator[Any]:
        """The engine's events for what happened since the last call.

        A reset is one removal per block: vLLM's own event for it would speak of the device's blocks too.
        """
        for event in self._subscription:
            if event.type is forebay.EventType.LOST:
                log.warning("forebay: %d block events were lost: the engine took them too slowly", event.block)
            known = self._known.get(event.hash.hex())
            if known is None:
                continue
            if event.type is forebay.EventType.PUBLISHED:
                yield self._stored(*known)
            elif event.type is forebay.EventType.REMOVED:
                yield self._removed(known[0])

    def close(self) -> None:
        """Ends the subscription."""
        self._subscription.unsubscribe()
