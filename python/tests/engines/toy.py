"""A toy engine that calls the vLLM connector's two sides as vLLM's scheduler and workers do, over plain memory.

Its KV cache has a meaning: the bytes of a block follow from all tokens up to its end, the layer and the rank. So a
wrong, stale or shifted block is found by comparing.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from forebay.engines.common.model import EngineModel
from forebay.engines.vllm.config import read_settings
from forebay.engines.vllm.metadata import StepReport
from forebay.engines.vllm.model import engine_groups
from forebay.engines.vllm.scheduler import SchedulerSide
from forebay.engines.vllm.worker import WorkerSide

BLOCK_TOKENS, LAYER_BYTES, BLOCKS = 4, 64, 64
LIMIT_S = 60.0  # no story needs more; a request that is never answered fails instead of hanging

FIELDS = {
    "id": "toy", "revision": "1", "kv_dtype": "f16", "layer_set": "all", "layout": "toy", "weights_epoch": 0,
    "tp_size": 1, "cp_size": 1, "pp_size": 1,
}  # fmt: skip


def passes() -> Iterator[None]:
    """Passes of a scheduler, until the limit."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        yield


class FullAttentionSpec(SimpleNamespace):
    """As vLLM names it: the connector goes by the names of classes."""


class SlidingWindowSpec(SimpleNamespace):
    """As vLLM names it."""


class MambaSpec(SimpleNamespace):
    """As vLLM names it."""


def group(layers: Sequence[str], window: int | None = None, block_tokens: int = BLOCK_TOKENS) -> Any:
    """A KV cache group as vLLM describes it."""
    values: dict[str, Any] = {"block_size": block_tokens, "page_size_bytes": LAYER_BYTES}
    spec = FullAttentionSpec(**values) if window is None else SlidingWindowSpec(**values, sliding_window=window)
    return SimpleNamespace(layer_names=list(layers), kv_cache_spec=spec)


FULL = [group(["l0", "l1"])]
HYBRID = [group(["l0"], window=5), group(["l1"])]  # a window of 5 tokens needs one block before a boundary


class Tensor:
    """Memory with a tensor's ways: ``[blocks, bytes]``."""

    def __init__(self, memory: Any, blocks: int | None) -> None:
        self.memory = memory
        self.shape = (LAYER_BYTES,) if blocks is None else (blocks, LAYER_BYTES)

    def stride(self, axis: int | None = None) -> Any:
        strides = (1,) if len(self.shape) == 1 else (LAYER_BYTES, 1)
        return strides if axis is None else strides[axis]

    def element_size(self) -> int:
        return 1

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return LAYER_BYTES * (self.shape[0] if len(self.shape) == 2 else 1)

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)

    def __getitem__(self, index: int) -> Tensor:
        return Tensor(self.memory, None)

    def write(self, block: int, data: bytes) -> None:
        ctypes.memmove(ctypes.addressof(self.memory) + block * LAYER_BYTES, data, LAYER_BYTES)

    def read(self, block: int) -> bytes:
        return ctypes.string_at(ctypes.addressof(self.memory) + block * LAYER_BYTES, LAYER_BYTES)


def content(tokens: Sequence[int], layer: str, rank: int) -> bytes:
    """The KV of the last block of so many tokens."""
    seed = array.array("I", tokens).tobytes() + f"{layer} {rank}".encode()
    return hashlib.shake_256(seed).digest(LAYER_BYTES)


class Request(SimpleNamespace):
    """vLLM's request, as far as the connector looks at it."""

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


def request(name: str, tokens: Sequence[int], params: dict[str, Any] | None = None, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "request_id": name, "prompt_token_ids": list(tokens), "prompt_embeds": None, "all_token_ids": list(tokens),
        "num_prompt_tokens": len(tokens), "num_computed_tokens": 0, "kv_transfer_params": params, "cache_salt": None,
        "lora_request": None, "mm_features": [], "resumable": False, "skip_reading_prefix_cache": False,
        "block_hashes": [],
    }  # fmt: skip
    return Request(**values | changes)


class Engine:
    """One engine: its scheduler, its ranks, its blocks. Requests run one by one unless a story steps by hand."""

    def __init__(
        self, extra: dict[str, Any], groups: Sequence[Any] = FULL, ranks: int = 1, window_blocks: int = 1, **roles: Any
    ) -> None:
        tokens, made = engine_groups(SimpleNamespace(kv_cache_groups=list(groups)))
        self.model = EngineModel(FIELDS | {"tp_size": ranks}, tokens, made, ranks)
        config = {"log.level": "off"} | extra.pop("config", {})
        usual = {"store": "mem", "pool_bytes": "4MiB", "config": config}
        self.scheduler = SchedulerSide(
            read_settings(usual | extra),
            self.model,
            load=roles.get("load", True),
            save=roles.get("save", True),
            event_makers=roles.get("event_makers"),
        )
        self.tensors: list[dict[str, Tensor]] = []
        self.workers = [WorkerSide(read_settings(usual | extra), self.model, rank) for rank in range(ranks)]
        for worker in self.workers:
            layers = [layer for one in made for layer in one.layers]
            memory = {layer: ctypes.create_string_buffer(BLOCKS * LAYER_BYTES) for layer in layers}
            self.tensors.append({layer: Tensor(memory[layer], BLOCKS) for layer in layers})
            worker.register(self.tensors[-1])
        self._window = window_blocks
        self._next_block = 1
        self.tables: dict[str, tuple[list[int], ...]] = {}
        self.failed_blocks: set[int] = set()
        self.failed_requests: set[str] = set()

    # ---- vLLM's part ----

    def allocate(self, blocks: int, end: int | None = None) -> tuple[list[int], ...]:
        """Fresh blocks for a request; of a window only those that resuming at ``end`` needs, others are block 0."""
        tables: list[list[int]] = []
        by_index = sorted(self.model.groups, key=lambda one: one.index)
        for one in by_index:
            table = []
            for i in range(blocks):
                if one.trailing and end is not None and i < end - one.trailing:
                    table.append(0)
                    continue
                table.append(self._next_block)
                self._next_block = self._next_block % (BLOCKS - 1) + 1
            tables.append(table)
        return tuple(tables)

    def step(self, scheduled: dict[str, int] | None = None) -> set[str]:
        """One step: plan, workers, report. Names of the requests whose loads ended."""
        scheduled = scheduled or {}
        output = SimpleNamespace(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            kv_connector_block_state=SimpleNamespace(get_block_ids=self.tables.get),
        )
        plan = self.scheduler.plan(output)
        report: StepReport | None = None
        finished: list[set[str]] = []
        for worker in self.workers:
            worker.begin(plan)
        for worker in self.workers:
            worker.save(plan)
            results = worker.results()
            finished.append(results.finished)
            self.failed_requests |= results.failed
            self.failed_blocks |= worker.failed_blocks()
            own = worker.report()
            if own is not None:
                report = own if report is None else report.aggregate(own)
        self.scheduler.take_report(report)
        return set.intersection(*finished)

    def fill(self, one: Request, start: int, end: int) -> None:
        """Computes blocks ``[start, end)`` of a request on every rank."""
        for rank, tensors in enumerate(self.tensors):
            for made in self.model.groups:
                table = self.tables[one.request_id][made.index]
                for layer in made.layers:
                    for i in range(start, end):
                        if table[i]:
                            tensors[layer].write(
                                table[i], content(one.all_token_ids[: (i + 1) * BLOCK_TOKENS], layer, rank)
                            )

    def check(self, one: Request, end: int) -> None:
        """Every block that resuming at ``end`` needs has the right bytes on every rank."""
        for rank, tensors in enumerate(self.tensors):
            for made in self.model.groups:
                table = self.tables[one.request_id][made.index]
                first = max(0, end - made.trailing) if made.trailing else 0
                for layer in made.layers:
                    for i in range(first, end):
                        wanted = content(one.all_token_ids[: (i + 1) * BLOCK_TOKENS], layer, rank)
                        assert tensors[layer].read(table[i]) == wanted, (rank, layer, i)

    # ---- Stories ----

    def ask(self, one: Request, computed: int = 0) -> tuple[int, bool]:
        """Asks until there is an answer, with a step in between."""
        for _ in passes():
            tokens, is_async = self.scheduler.match(one, computed)
            if tokens is not None:
                return tokens, is_async
            self.step()
        raise AssertionError("the request was never answered")

    def load(self, one: Request, tokens: int, is_async: bool) -> bool:
        """Allocates for a match and loads it. Whether every block came."""
        end = tokens // BLOCK_TOKENS
        self.tables[one.request_id] = self.allocate(len(one.all_token_ids) // BLOCK_TOKENS + 1, end)
        self.scheduler.allocated(one, self.tables[one.request_id], tokens)
        if tokens == 0:
            return True
        if is_async:
            for _ in passes():
                if one.request_id in self.step():
                    break
            else:
                raise AssertionError("the load never ended")
            self.scheduler.allocated(one, self.tables[one.request_id], 0)
        else:
            self.step()
        return not self.failed_blocks and not self.failed_requests

    def compute(self, one: Request, start: int, chunk: int | None = None) -> None:
        """Computes the rest of a request's tokens, in chunks, and lets every step save."""
        one.num_computed_tokens = start
        while one.num_computed_tokens < one.num_tokens:
            n = min(chunk or one.num_tokens, one.num_tokens - one.num_computed_tokens)
            full = (one.num_computed_tokens + n) // BLOCK_TOKENS
            self.fill(one, one.num_computed_tokens // BLOCK_TOKENS, full)
            self.step({one.request_id: n})
            one.num_computed_tokens += n

    def run(self, one: Request, chunk: int | None = None) -> int:
        """A request from its arrival to its end. Tokens that were restored; their bytes were compared."""
        self.scheduler.begin(one)
        tokens, is_async = self.ask(one)
        assert self.load(one, tokens, is_async)
        self.check(one, tokens // BLOCK_TOKENS)
        self.compute(one, tokens, chunk)
        self.scheduler.finished(one)
        return tokens

    def quiet(self) -> None:
        """Nothing is held any more, and every counter is right."""
        stats = self.scheduler.cache.stats()
        gauges = ("holds_gauge", "puts_gauge", "leases_gauge", "sessions_running_gauge")
        assert [stats[name] for name in gauges] == [0, 0, 0, 0]
        self.scheduler.cache.check()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.scheduler.close()
