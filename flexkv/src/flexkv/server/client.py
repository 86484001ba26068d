"""The rank's end: registers the rank's KV tensors with the leader, and copies what the leader says."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from flexkv._forebay import hooks
from flexkv._forebay.places import socket_path
from flexkv._forebay.rank import RankEnd, RefusedError, register
from flexkv._forebay.refusal import remember
from flexkv.common.storage import KVCacheLayout


class KVTPClient:
    """One rank. Its copies are made in this process, by a thread of its own that the leader commands.

    Args:
        gpu_register_port: where the leader listens.
        dp_client_id: number of the replica.
        pp_rank: 0.
        device_id: number of the rank on its machine.
    """

    def __init__(self, gpu_register_port: str, dp_client_id: int = 0, pp_rank: int = 0, device_id: int = 0) -> None:
        if pp_rank != 0:
            raise ValueError(f"pp_rank is {pp_rank}; accepted: 0")
        self._path = socket_path(str(gpu_register_port), dp_client_id)
        self._rank = device_id
        self._end: RankEnd | None = None
        hooks.install()

    def register_to_server(
        self,
        kv_caches: Sequence[Any],
        kv_layout: KVCacheLayout,
        indexer_buffers: Sequence[Any] | None = None,
        indexer_layout: KVCacheLayout | None = None,
        **others: Any,
    ) -> None:
        """Registers the rank's tensors; afterwards the leader may copy.

        What no repetition mends is raised by the next call that SGLang does not repeat
        (:func:`flexkv.transfer.layerwise.build_layerwise_eventfd_socket_path`).

        Args:
            kv_caches: K of all layers and then V of all, or one tensor per layer.
            kv_layout: how they lie.
            indexer_buffers: of sparse attention; not served.
            indexer_layout: likewise.
            **others: tensors of later releases; not served.

        Raises:
            OSError: the leader does not listen yet.
        """
        del indexer_layout
        if self._end is not None:
            return
        extra = [name for name, value in (("indexer_buffers", indexer_buffers), *others.items()) if value]
        try:
            if extra:
                raise RefusedError(f"{', '.join(extra)} are given; accepted: models with plain KV tensors alone")
            self._end = register(self._path, self._rank, list(kv_caches), kv_layout)
        except (RefusedError, ValueError) as error:
            remember(error)

    def verdict(self, task_id: int) -> bool:
        """Whether all ranks restored a task's tokens; asked once, behind the barrier that follows the load."""
        return self._end is not None and self._end.take_verdict(task_id)

    def close(self) -> None:
        """Ends the rank's thread."""
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError, socket.error):
            self.close()
