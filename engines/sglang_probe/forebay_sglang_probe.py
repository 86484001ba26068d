"""Measuring rig: times requests inside SGLang's scheduler, and says what its caches hold.

Every cache is watched at the same places, from outside: the scheduler's queue, the ``check_prefetch_progress`` of
whatever cache it has, and the batches that it makes. Nothing here is part of the product.

With ``FOREBAY_SGLANG_PROBE=PATH`` the scheduler's process listens on that Unix socket, in a thread of its own, so that
it answers when the scheduler does not. One JSON object for each connection, after one line: ``state`` or ``requests``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

VARIABLE = "FOREBAY_SGLANG_PROBE"
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"


@dataclass
class Seen:
    """One request. Times are of the monotonic clock, in seconds; None: has not happened."""

    rid: str
    queued: float | None = None
    candidate: float | None = None
    ready: float | None = None
    scheduled: float | None = None
    aborted: float | None = None
    checks: int = 0
    check_s: float = 0.0


@dataclass
class Probe:
    """What is seen of one scheduler. The scheduler's thread writes; the listener's reads."""

    scheduler: Any
    requests: dict[str, Seen] = field(default_factory=dict)
    queued: int = 0
    passes: int = 0

    def of(self, rid: str) -> Seen:
        """A request's record, made on first sight."""
        found = self.requests.get(rid)
        if found is None:
            found = self.requests[rid] = Seen(rid)
        return found

    def watch(self) -> None:
        """Puts the watching functions over those of the cache and of the scheduler."""
        cache, scheduler = self.scheduler.tree_cache, self.scheduler
        cache.check_prefetch_progress = self._checked(cache.check_prefetch_progress)
        cache.release_aborted_request = self._released(cache.release_aborted_request)
        scheduler._add_request_to_queue = self._queued(scheduler._add_request_to_queue)
        scheduler.get_new_batch_prefill = self._scheduled(scheduler.get_new_batch_prefill)

    def _queued(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def add(req: Any, *more: Any, **named: Any) -> Any:
            seen = self.of(req.rid)
            if seen.queued is None:
                seen.queued = time.monotonic()
                self.queued += 1
            return inner(req, *more, **named)

        return add

    def _checked(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def check(handle: Any) -> Any:
            seen, started = self.of(handle.rid), time.monotonic()
            answer = inner(handle)
            ended = time.monotonic()
            if seen.candidate is None:
                seen.candidate = started
            if answer and seen.ready is None:
                seen.ready = ended
            seen.checks += 1
            seen.check_s += ended - started
            return answer

        return check

    def _released(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def release(handle: Any) -> Any:
            self.of(handle.rid).aborted = time.monotonic()
            return inner(handle)

        return release

    def _scheduled(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def make(*given: Any, **named: Any) -> Any:
            plan = inner(*given, **named)
            self.passes += 1
            if plan.batch_to_run is not None:
                now = time.monotonic()
                for req in plan.batch_to_run.reqs:
                    seen = self.of(req.rid)
                    if seen.scheduled is None:
                        seen.scheduled = now
            return plan

        return make

    def state(self) -> dict[str, Any]:
        """What the caches hold."""
        return {
            "passes": self.passes,
            "queued": self.queued,
            "waiting": len(self.scheduler.waiting_queue),
            **_pools(self.scheduler),
            "forebay": _forebay(),
        }

    def take(self) -> dict[str, Any]:
        """All requests seen since the last time. Those that are still under way are seen again."""
        seen, self.requests = self.requests, {}
        return {"requests": [asdict(one) for one in list(seen.values())]}


def _pools(scheduler: Any) -> dict[str, int | None]:
    """Tokens in use of the device's pool and of HiCache's host pool, and what HiCache has under way."""
    cache = scheduler.tree_cache
    controller = getattr(cache, "cache_controller", None)
    allocator = scheduler.token_to_kv_pool_allocator
    host = getattr(controller, "mem_pool_host", None)
    return {
        "device_tokens": int(allocator.size - allocator.available_size()),
        "host_tokens": None if host is None else int(host.size - host.available_size()),
        "prefetches": len(getattr(cache, "ongoing_prefetch", None) or ()),
        "prefetch_tokens": int(getattr(controller, "prefetch_tokens_occupied", 0) or 0),
    }


def _forebay() -> dict[str, Any] | None:
    """The statistics of Forebay's cache in this process, whatever holds it; None: there is none."""
    for one in gc.get_objects():
        kind = type(one)
        if kind.__name__ == "Cache" and kind.__module__.split(".")[0] == "forebay":
            with contextlib.suppress(Exception):
                return dict(one.stats())
    return None


def _serve(probe: Probe, listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            asked = connection.makefile("r").readline().strip()
            try:
                answer = probe.take() if asked == "requests" else probe.state()
            except Exception as problem:
                answer = {"error": f"{type(problem).__name__}: {problem}"}
            connection.sendall(json.dumps(answer, default=str).encode() + b"\n")


def _attach(result: Any, scheduler: Any, *_: Any, **__: Any) -> None:
    del result
    probe = Probe(scheduler)
    probe.watch()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ[VARIABLE])
    listener.listen(8)
    threading.Thread(target=_serve, args=(probe, listener), name="forebay-probe", daemon=True).start()


def register() -> None:
    """Called by SGLang in each of its processes."""
    if not os.environ.get(VARIABLE):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{SCHEDULER}.__init__", _attach, HookType.AFTER)
