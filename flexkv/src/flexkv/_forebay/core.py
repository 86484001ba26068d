"""The leader's cache: how it opens when the first rank registers, and the sequences of requests in it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import forebay
from forebay.engines.common.attach import PublishedPool
from forebay.engines.common.journal import Journal
from forebay.engines.common.model import UnsupportedModelError
from forebay.engines.common.opening import open_cache
from forebay.engines.sglang.namespace import adapters_of, namespace_of, tokens_of, with_adapter
from forebay.engines.sglang.pools import device_parts

from .crew import Crew
from .layers import LayerSignals
from .log import complain, log
from .mover import Mover
from .rank import pack_address
from .requests import Request, Requests
from .scope import Scope
from .tasks import Table
from .tensors import Facts, slabs_of

if TYPE_CHECKING:
    from flexkv.common.config import ModelConfig

    from .settings import Settings

REGISTER_LIMIT_S = 360.0
"""How long the ranks may take to register; SGLang's integration tries for so long."""

ANSWER_LIMIT_S = 9.0
"""How long one question for readiness waits: the integration sleeps ten seconds between two."""


class Core:
    """One server's cache, its tasks and its ranks.

    Args:
        model: of SGLang, with the settings.
        path: of the socket at which ranks register.
        layer_path: of the socket for eventfds; None: no layer-wise loads.
    """

    def __init__(self, model: ModelConfig, path: str, layer_path: str | None) -> None:
        self.settings: Settings = model.settings
        self._adapters = adapters_of(model.arguments)
        self._model_config = model
        self._tokens = model.tokens_per_block
        if layer_path is not None and model.tp_size != 1:
            raise ValueError(f"layer-wise transfers with tp_size {model.tp_size}; accepted: tp_size 1")
        self.table = Table()
        self.requests = Requests(self._close_request)
        self._usual = self.settings.session_options()
        self._policy = self.settings.config.get("prefetch.policy").value
        self._stop_mode = self.settings.config.get("prefetch.stop_mode").value
        self._journal = Journal(self.settings.journal, complain)
        self._cache: forebay.Cache | None = None
        self._pool: PublishedPool | None = None
        self._mover: Mover | None = None
        self._off: str | None = None
        self._is_closed = False
        self._page_bytes = 0
        self.is_pool_known = False
        self.settings.log_once(log)
        self._signals = LayerSignals(layer_path, model.num_layers) if layer_path is not None else None
        self._layers = model.num_layers
        try:
            self._crew = Crew(path, model.tp_size, self._open)
        except BaseException:
            if self._signals is not None:
                self._signals.close()
            raise

    # ---- Start and end ----

    def _open(self, facts: Facts) -> dict[str, Any]:
        """Opens the cache for the model that these tensors are of. Runs in the leader's thread of registrations."""
        settings, config = self.settings, self._model_config
        model = facts.model(config.engine, config.arguments, config.version, config.tp_size)
        self._cache = open_cache(settings, model, "sglang flexkv")
        self._layers, self._page_bytes = facts.layers, facts.page_bytes
        verify = settings.config.get("store.verify").value == "on_load"
        self._pool = PublishedPool(self._cache, model, server=settings.server, verify=verify)
        return {
            "address": pack_address(self._pool.address),
            "fields": model.fields,
            "group": model.groups[0].name,
            "device": settings.device if settings.is_device_named else facts.device,
            "threads": settings.copy_threads,
            "layerwise": self._signals is not None,
        }

    def is_ready(self) -> bool:
        """Whether all ranks have the pool.

        Raises:
            RuntimeError: one cannot, or did not come.
        """
        if self._mover is not None:
            return True
        if not self._crew.wait_ready(ANSWER_LIMIT_S):
            if self._crew.age_s() > REGISTER_LIMIT_S:
                raise RuntimeError(f"flexkv: ranks {self._crew.missing()} did not register")
            return False
        assert self._pool is not None
        self._pool.close()
        self._mover = Mover(
            self.table,
            self._crew,
            self._pool,
            block_tokens=self._tokens,
            verify=self._pool.address.verify,
            slabs=slabs_of(self._layers),
            signals=self._signals,
            lost=self.turn_off,
        )
        return True

    def check_pool(self, pool: Any) -> None:
        """Looks at SGLang's KV pool, of which registrations show only tensors: whether those are all that a page has.

        Args:
            pool: of the engine; one that cannot be served turns the integration off.
        """
        self.is_pool_known = True
        try:
            parts = device_parts(pool, self._tokens)
            if [part.page_bytes for part in parts] != [self._page_bytes]:
                raise UnsupportedModelError("the KV pool has more than the tensors that were registered")
        except Exception as error:
            self.turn_off(str(error))

    @property
    def block_tokens(self) -> int:
        """Tokens of a page."""
        return self._tokens

    @property
    def cache(self) -> forebay.Cache:
        """The cache.

        Raises:
            RuntimeError: it is not open, or the integration is off.
        """
        if self._cache is None or self._off is not None or self._is_closed:
            raise RuntimeError(self._off or "the cache is not open")
        return self._cache

    def turn_off(self, why: str) -> None:
        """The engine computes alone from now on."""
        if self._off is None:
            self._off = why
            log.error("forebay: is off, the engine computes alone: %s", why)

    @property
    def is_off(self) -> bool:
        """Whether it was turned off, or is not up yet."""
        return self._off is not None or self._mover is None or self._is_closed

    # ---- Sequences ----

    def sequence(
        self, tokens: Any, scope: Scope, namespace: Sequence[str] | None, *, to_read: bool = True
    ) -> forebay.Sequence:
        """The sequence of a request's tokens.

        Args:
            tokens: int64 array.
            scope: of the request.
            namespace: components that the caller names; they win.
            to_read: whole pages are followed by one token more: Forebay leaves a prompt's last token to the engine, and
                SGLang has left it out already.
        """
        parts = (
            [("text", part) for part in namespace]
            if namespace is not None
            else namespace_of(with_adapter(scope.extra_key, self._adapters), scope.cache_salt, scope.options.tenant)
        )
        ids = tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)
        made = tokens_of(ids)
        if to_read and len(made) % self._tokens == 0:
            made.append(0)
        return self.cache.sequence(made, parts)

    def _close_request(self, handle: Hashable, request: Request) -> None:
        """Ends what a request has, in whatever state."""
        raise NotImplementedError
