"""A toy SGLang for the drop-in flexkv: ranks with KV memory that has a meaning, called as its integration calls."""

from __future__ import annotations

import array
import ctypes
import hashlib
import importlib.util
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if getattr(importlib.util.find_spec("flexkv"), "origin", None) is None:  # a directory of that name is no package
    sys.path.insert(0, str(Path(__file__).parents[3] / "flexkv" / "src"))

import numpy
from flexkv._forebay import hooks, refusal
from flexkv._forebay import settings as settings_module
from flexkv._forebay.scope import Scope, current, entered
from flexkv._forebay.settings import read_settings
from flexkv.common.request import KVResponseStatus
from flexkv.common.storage import KVCacheLayout, KVCacheLayoutType
from flexkv.integration.config import FlexKVConfig
from flexkv.kvmanager import KVManager, LoadRefusedError
from flexkv.server.client import KVTPClient
from flexkv.transfer.layerwise import build_layerwise_eventfd_socket_path

import flexkv

__all__ = [
    "FlexKVConfig", "KVCacheLayout", "KVCacheLayoutType", "KVTPClient", "LoadRefusedError", "Scope",
    "build_layerwise_eventfd_socket_path", "current", "entered", "flexkv", "hooks", "read_settings", "refusal",
    "settings_module",
]  # fmt: skip

PAGE, PAGES, HEADS, SIZE = 4, 64, 2, 8
LAYERS = 3
SLOT_BYTES = HEADS * SIZE

SUCCESS = KVResponseStatus.SUCCESS


class Tensor:
    """Memory with a tensor's ways: ``[slots, heads, size]`` of bytes."""

    def __init__(self, slots: int = PAGE * PAGES, heads: int = HEADS) -> None:
        self.shape, self.dtype, self.device = (slots, heads, SIZE), "torch.uint8", "cpu"
        self.memory = ctypes.create_string_buffer(slots * heads * SIZE)

    def stride(self) -> tuple[int, ...]:
        return (self.shape[1] * SIZE, SIZE, 1)

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)

    def write(self, slot: int, data: bytes) -> None:
        ctypes.memmove(self.data_ptr() + slot * SLOT_BYTES, data, SLOT_BYTES)

    def read(self, slot: int) -> bytes:
        return ctypes.string_at(self.data_ptr() + slot * SLOT_BYTES, SLOT_BYTES)


def content(tokens: Sequence[int], piece: int, rank: int, salt: str = "") -> bytes:
    """The KV of the last of so many tokens, in one tensor."""
    seed = array.array("Q", tokens).tobytes() + f"{piece} {rank} {salt}".encode()
    return hashlib.shake_256(seed).digest(SLOT_BYTES)


class HfConfig:
    def to_dict(self) -> dict[str, Any]:
        return {"hidden_size": 16}


def model_config(**changes: Any) -> Any:
    values = {
        "model_path": "toy", "revision": "1", "quantization": None, "hf_config": HfConfig(),
        "num_hidden_layers": LAYERS, "attention_arch": SimpleNamespace(name="MHA"), "model_override_args": "{}",
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def server_args(**changes: Any) -> Any:
    values = {
        "tp_size": 1, "pp_size": 1, "dp_size": 1, "nnodes": 1, "port": 30000, "enable_dp_attention": False,
        "attn_cp_size": 1, "kv_cache_dtype": "auto", "hicache_storage_prefetch_policy": "timeout",
        "_launch_command": "python -m sglang.launch_server",
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


@contextmanager
def sglang(version: str = "0.5.23") -> Iterator[None]:
    """A package of that name, with a version."""
    module = types.ModuleType("sglang")
    module.__version__ = version  # type: ignore[attr-defined]
    before = sys.modules.get("sglang")
    sys.modules["sglang"] = module
    try:
        yield
    finally:
        if before is None:
            del sys.modules["sglang"]
        else:
            sys.modules["sglang"] = before


class Server:
    """One server: its manager and its ranks, all in this process.

    Settings come from the environment, as in SGLang's processes.
    """

    def __init__(self, ranks: int = 1, *, is_mla: bool = False, **arguments: Any) -> None:
        self.ranks, self.is_mla = ranks, is_mla
        pieces = LAYERS if is_mla else 2 * LAYERS
        self.tensors = [[Tensor() for _ in range(pieces)] for _ in range(ranks)]
        self.clients: list[KVTPClient] = []
        self.manager: KVManager | None = None
        self._free = list(range(1, PAGES))
        config = self.configure(0, arguments)
        self.config = config
        self.manager = KVManager(config.model_config, config.cache_config, gpu_register_port=config.gpu_register_port)
        self.manager.start()
        try:
            self._register(arguments)
        except BaseException:
            self.close()
            raise

    def configure(self, rank: int, arguments: dict[str, Any]) -> FlexKVConfig:
        config = FlexKVConfig.from_env()
        with sglang():
            config.post_init_from_sglang_config(
                model_config(attention_arch=SimpleNamespace(name="MLA" if self.is_mla else "MHA")),
                server_args(tp_size=self.ranks, **arguments),
                page_size=PAGE,
                tp_rank=rank,
            )
        return config

    def _register(self, arguments: dict[str, Any]) -> None:
        layout = KVCacheLayout(KVCacheLayoutType.LAYERFIRST, LAYERS, PAGES, PAGE, HEADS, SIZE, self.is_mla)
        for rank in range(self.ranks):
            config = self.configure(rank, arguments)
            client = KVTPClient(config.gpu_register_port, device_id=rank)
            self.clients.append(client)
            client.register_to_server(kv_caches=self.tensors[rank], kv_layout=layout)
        assert self.manager is not None
        while not self.manager.is_ready():
            pass

    # ---- What SGLang does ----

    @property
    def kv(self) -> KVManager:
        assert self.manager is not None
        return self.manager

    def allocate(self, tokens: int) -> numpy.ndarray[Any, Any]:
        """Slots of fresh pages, which are not neighbours."""
        pages = [self._free.pop(0) for _ in range(tokens // PAGE)]
        self._free.extend(pages)
        return numpy.concatenate([numpy.arange(page * PAGE, (page + 1) * PAGE) for page in pages] or [numpy.zeros(0)])

    def compute(self, tokens: Sequence[int], slots: Sequence[int], salt: str = "") -> None:
        for rank, tensors in enumerate(self.tensors):
            for piece, tensor in enumerate(tensors):
                for i, slot in enumerate(slots):
                    tensor.write(int(slot), content(tokens[: i + 1], piece, 0 if self.is_mla else rank, salt))

    @staticmethod
    def right(tokens: Sequence[int], piece: int) -> bytes:
        """What the last of so many tokens has in one tensor of the first rank."""
        return content(tokens, piece, 0)

    def is_there(self, tokens: Sequence[int], slots: Sequence[int], start: int = 0, salt: str = "") -> bool:
        """Whether slots hold the KV of tokens from ``start`` on, on every rank and layer."""
        return all(
            tensor.read(int(slot)) == content(tokens[: start + i + 1], piece, 0 if self.is_mla else rank, salt)
            for rank, tensors in enumerate(self.tensors)
            for piece, tensor in enumerate(tensors)
            for i, slot in enumerate(slots)
        )

    def store(self, tokens: Sequence[int], salt: str = "") -> int:
        """A finished request. Tokens that were written."""
        whole = len(tokens) // PAGE * PAGE
        slots = self.allocate(whole)
        self.compute(tokens, slots, salt)
        task, mask = self.kv.put_match(token_ids=numpy.asarray(tokens[:whole], dtype=numpy.int64), token_mask=None)
        if mask.sum() == 0:
            return 0
        self.kv.launch(task_ids=[task], slot_mappings=[slots[mask]], as_batch=False, layerwise_transfer=False)
        answers = self.kv.wait([task], timeout=20.0, completely=True)
        assert answers[task].status is SUCCESS
        return int(mask.sum())

    def status(self, task: int, timeout: float = 0.0) -> str:
        """What is said of a task."""
        return str(self.kv.wait([task], timeout=timeout)[task].status.value)

    def match(self, tokens: Sequence[int], device: int = 0) -> tuple[int, int]:
        """A waiting request at its turn: the task, and the tokens that were found."""
        ids = numpy.asarray(tokens[: len(tokens) // PAGE * PAGE], dtype=numpy.int64)
        wanted = numpy.ones(len(ids), dtype=bool)
        wanted[:device] = False
        task, mask = self.kv.get_match(token_ids=ids, token_mask=wanted)
        return task, int(mask.sum())

    def load(self, tokens: Sequence[int], device: int = 0, salt: str = "") -> int:
        """A request that is admitted. Tokens that were restored; their bytes were compared."""
        task, hit = self.match(tokens, device)
        if hit == 0:
            return 0
        slots = self.allocate(hit)
        self.kv.launch(task_ids=[task], slot_mappings=[slots], as_batch=True, layerwise_transfer=False)
        answer = self.kv.wait([task], timeout=30.0)[task]
        if answer.status is not SUCCESS:
            return 0
        assert self.is_there(tokens, slots, device, salt)
        return hit

    def quiet(self) -> None:
        """Nothing is held any more, and every counter is right."""
        cache = self.kv.engine.cache
        stats = cache.stats()
        gauges = ("holds_gauge", "puts_gauge", "leases_gauge", "sessions_running_gauge")
        assert {name: stats[name] for name in gauges} == dict.fromkeys(gauges, 0)
        cache.check()

    def close(self) -> None:
        if self.manager is not None:
            self.manager.shutdown()
        for client in self.clients:
            client.close()


def threads() -> list[str]:
    """Names of the drop-in's threads that live."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("forebay-flexkv"))
