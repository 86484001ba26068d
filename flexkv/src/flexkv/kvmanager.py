"""The leader's manager, as SGLang's integration calls it: match, launch, wait; put; prefetch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from flexkv._forebay.engine import Engine, LoadRefusedError
from flexkv._forebay.log import complain, guarded
from flexkv._forebay.places import socket_path
from flexkv._forebay.refusal import raise_pending
from flexkv._forebay.sessions import Sessions
from flexkv._forebay.tasks import mask
from flexkv.common.config import CacheConfig, ModelConfig
from flexkv.common.request import KVResponse
from flexkv.transfer.layerwise import build_layerwise_eventfd_socket_path

__all__ = ["KVManager", "LoadRefusedError"]

PUT_LIMIT_S = 20.0


def _numbers(given: int | Iterable[int]) -> list[int]:
    return [given] if isinstance(given, int) else [int(one) for one in given]


def _is_listed(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and not (given and isinstance(given[0], int))


class KVManager(Sessions):
    """One per server, in the process of its first rank. SGLang's scheduler thread calls it; so may one other at a time.

    A failure of Forebay's is never an exception of a call that a request makes: a match is a miss, a launch has the
    status FAILED.

    Args:
        model_config: from :class:`flexkv.integration.config.FlexKVConfig`.
        cache_config: likewise.
        dp_client_id: number of the replica.
        server_recv_port: not needed.
        gpu_register_port: socket at which the ranks register.
        event_collector: not needed.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        cache_config: CacheConfig,
        dp_client_id: int = 0,
        server_recv_port: str = "",
        gpu_register_port: str = "",
        event_collector: Any = None,
    ) -> None:
        del cache_config, server_recv_port, event_collector
        self._model_config = model_config
        self._path = socket_path(gpu_register_port, dp_client_id)
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """What is behind it.

        Raises:
            RuntimeError: it was not started.
        """
        if self._engine is None:
            raise RuntimeError("the manager is not started")
        return self._engine

    # ---- Life ----

    def start(self) -> None:
        """Listens for the ranks; the cache opens when the first one registers.

        Raises:
            OSError: another server has this one's socket: set ``FLEXKV_SERVER_RECV_PORT``.
            ValueError: layer-wise transfers with several ranks.
        """
        is_layerwise = bool(int(os.environ.get("FLEXKV_ENABLE_LAYERWISE_TRANSFER", "0")))
        self._engine = Engine(
            self._model_config, self._path, build_layerwise_eventfd_socket_path() if is_layerwise else None
        )

    def is_ready(self) -> bool:
        """Whether all ranks have registered; waits a few seconds for them.

        Raises:
            RuntimeError: one was refused, or did not come within six minutes.
        """
        raise_pending()
        return self.engine.is_ready()

    def shutdown(self) -> None:
        """Ends everything. Idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def reset(self) -> None:
        """Forgets every block in CPU memory. The store keeps its objects, unless ``reset_bumps_epoch``."""
        self.engine.reset()

    # ---- Get ----

    def get_match(
        self,
        token_ids: Any,
        token_mask: Any = None,
        cpu_only: bool = False,
        namespace: Sequence[str] | None = None,
        swa_aware: bool = False,
    ) -> tuple[int, Any]:
        """Matches a prefix, and protects what it found until it is launched or cancelled.

        A match of a request ends that request's match before, launched or not.

        Args:
            token_ids: 1-D, 64-bit.
            token_mask: bool, False for a prefix that the device has; None: it has nothing.
            cpu_only: the store is not asked; without, it is as far as ``match_wait_s`` allows.
            namespace: components that keep requests apart; None: SGLang's, where its classes are seen.
            swa_aware: no model with such pools is served.

        Returns:
            the task, and a bool array: the tokens that a launch would restore, right behind the device's. None of them:
            there is nothing to launch or cancel.
        """
        del swa_aware
        try:
            tokens = len(token_ids)
            start = self._device_tokens(token_mask, tokens)
            task = self.engine.match(token_ids, start, namespace, store=not cpu_only)
        except Exception as error:
            complain("matching", error)
            task = None
        if task is None:
            return self.engine.table.new_number(), mask(len(token_ids), 0, 0)
        return task.number, mask(task.tokens, task.start, task.end)

    @staticmethod
    def _device_tokens(token_mask: Any, tokens: int) -> int:
        if token_mask is None:
            return 0
        import numpy

        wanted = numpy.asarray(token_mask, dtype=bool)
        start = int(tokens - wanted.sum())
        if wanted.size != tokens or wanted[:start].any():
            raise ValueError("token_mask is not False and then True; accepted: the device's prefix, and the rest")
        return start

    # ---- Put ----

    def put_match(
        self, token_ids: Any, token_mask: Any = None, namespace: Sequence[str] | None = None
    ) -> tuple[int, Any]:
        """Finds what of a request is not kept yet, and makes room for it.

        Args:
            token_ids: 1-D, 64-bit.
            token_mask: None.
            namespace: as for :meth:`get_match`.

        Returns:
            the task, and a bool array: the tokens that a launch would write. None of them: nothing to launch or cancel.
        """
        try:
            if token_mask is not None and not all(token_mask):
                raise ValueError("token_mask leaves tokens out; accepted: None, or True for all")
            task = self.engine.stage(token_ids, namespace)
        except Exception as error:
            complain("preparing a put", error)
            task = None
        if task is None:
            return self.engine.table.new_number(), mask(len(token_ids), 0, 0)
        return task.number, mask(task.tokens, task.start, task.end)

    # ---- Both ----

    def launch(
        self,
        task_ids: int | Sequence[int],
        slot_mappings: Any,
        swa_slot_mappings: Any = None,
        as_batch: bool = False,
        layerwise_transfer: bool = False,
        counter_id: int = 0,
    ) -> list[int]:
        """Starts matched tasks, in order. Each keeps its own id, in a batch too.

        Args:
            task_ids: from a match.
            slot_mappings: per task the device slot of each token that its mask has, in order: whole pages.
            swa_slot_mappings: None.
            as_batch: no difference.
            layerwise_transfer: layers are signalled through the eventfds of ``counter_id`` one after the other.
            counter_id: see there.

        Returns:
            the ids.

        Raises:
            LoadRefusedError: a layer-wise load that cannot be made; nothing of it was.
        """
        del as_batch
        numbers = _numbers(task_ids)
        mappings = list(slot_mappings) if _is_listed(slot_mappings) else [slot_mappings]
        if len(mappings) != len(numbers) or swa_slot_mappings:
            complain("launching", ValueError(f"{len(numbers)} tasks with {len(mappings)} slot mappings"))
            mappings = [()] * len(numbers)
        for number, slots in zip(numbers, mappings, strict=True):
            try:
                self.engine.launch(number, slots, counter=counter_id if layerwise_transfer else -1)
            except LoadRefusedError:
                raise
            except Exception as error:
                complain("launching", error)
        return numbers

    def wait(
        self, task_ids: int | Sequence[int], timeout: float = 20.0, completely: bool = False
    ) -> dict[int, KVResponse]:
        """Waits for tasks.

        A task that had not begun to copy when the time is over never will. One that copies is waited for: its pages may
        not be used before.

        Args:
            task_ids: which.
            timeout: seconds.
            completely: of a put also its publication, not only its copy out of the device.

        Returns:
            an answer for each.
        """
        return self.engine.wait(_numbers(task_ids), timeout, completely=completely)

    def try_wait(self, task_ids: int | Sequence[int]) -> dict[int, KVResponse]:
        """Answers for those tasks that have one; never waits. For a prefetch it says that its request is wanted now."""
        return self.engine.try_wait(_numbers(task_ids))

    @guarded(lambda: None)
    def cancel(self, task_ids: int | Sequence[int]) -> None:
        """Lets tasks go. A copy under way goes on to its end."""
        for number in _numbers(task_ids):
            self.engine.cancel(number)

    # ---- Prefetch of a whole task ----

    def prefetch_async(self, token_ids: Any, namespace: Sequence[str] | None = None, swa_aware: bool = False) -> int:
        """Starts to bring a request's blocks from the store into CPU memory.

        Args:
            token_ids: 1-D, 64-bit.
            namespace: as for :meth:`get_match`.
            swa_aware: no model with such pools is served.

        Returns:
            the task; -1: there is no prefetch.
        """
        del swa_aware
        try:
            task = self.engine.prefetch(token_ids, namespace)
        except Exception as error:
            complain("starting a prefetch", error)
            return -1
        return -1 if task is None else task.number

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown()
