"""Test rig: SGLang on CPUs without a kernel package. No part of Forebay.

SGLang's engine for CPUs needs a kernel package of which there is no wheel. Without it SGLang takes the device "cpu" for
one that it does not know and runs PyTorch's own operators, except for those below. They are registered by a plugin
(entry point group sglang.srt.plugins), so that nothing of SGLang is changed. Each follows what its caller in SGLang
0.5.23 expects; a copy is done when its function returns, hence streams and events have nothing to wait for.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

POOLS = ("mha", "mla", "mamba")
"""Modules of sglang.srt.mem_cache.pool_host that call the copies by these names."""


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Turns `query` and `key` in place.

    Args:
        positions: (tokens,).
        query: (tokens, heads * head_size).
        key: the same with its own number of heads.
        head_size: values of a head, of which the first ones are turned.
        cos_sin_cache: (positions, rotated), the cosines before the sines.
        is_neox: pairs are half of what is rotated apart; otherwise they are neighbours.
    """
    cosines, sines = (half.unsqueeze(1) for half in cos_sin_cache[positions.flatten()].chunk(2, dim=-1))
    rotated = cos_sin_cache.shape[-1]
    for tensor in (query, key):
        heads = tensor.view(positions.numel(), -1, head_size)[..., :rotated]
        pairs = heads.unflatten(-1, (2, -1) if is_neox else (-1, 2))
        axis = -2 if is_neox else -1
        first, second = pairs.unbind(axis)
        turned = torch.stack((first * cosines - second * sines, second * cosines + first * sines), dim=axis)
        pairs.copy_(turned)


def transfer_kv_direct(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copies slots between buffers of shape (slots, …), one pair for each layer."""
    del page_size
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices] = source[src_indices]


def transfer_kv_all_layer_direct_lf_pf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copies whole pages from the device to the host.

    Args:
        src_ptrs: for each of the targets its layers, each (slots, …).
        dst_ptrs: (pages, layers, page_size, …): keys, then values.
        src_indices: slots of the device, whole pages.
        dst_indices: as many slots of the host.
        page_size: tokens.
    """
    pages = dst_indices[::page_size] // page_size
    layers = len(src_ptrs) // len(dst_ptrs)
    for number, source in enumerate(src_ptrs):
        target, layer = divmod(number, layers)
        dst_ptrs[target][pages, layer] = source[src_indices].unflatten(0, (-1, page_size))


def transfer_kv_per_layer_direct_pf_lf(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copies one layer of whole pages from the host, (pages, layers, page_size, …), to the device, (slots, …)."""
    pages = src_indices[::page_size] // page_size
    for source, target in zip(src_ptrs, dst_ptrs, strict=True):
        target[dst_indices] = source[pages, layer_id].flatten(0, 1)


COPIES = (transfer_kv_direct, transfer_kv_all_layer_direct_lf_pf, transfer_kv_per_layer_direct_pf_lf)


def host_memory(dims: Sequence[int], dtype: torch.dtype, device: str, *_: object, **__: object) -> torch.Tensor:
    """Memory of a host pool, which is not registered with a device that is not there."""
    return torch.zeros(tuple(dims), dtype=dtype, device=device)


class Event:
    """An event that has always happened."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def record(self, stream: object = None) -> None:
        """Nothing to record."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, other: object) -> float:
        """Milliseconds to `other`: none are measured."""
        del other
        return 0.0


class Stream:
    """A stream whose work is done when it is submitted."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether its work is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """An event behind the work so far."""
        return Event() if event is None else event


def _replace_streams() -> None:
    for module in (torch.cpu, torch.cuda):
        module.Stream, module.Event = Stream, Event
    torch.cpu._current_stream = torch.cpu._default_cpu_stream = Stream()
    torch.cuda.stream = torch.cpu.stream
    torch.cuda.current_stream = torch.cpu.current_stream


def _replace_operators() -> None:
    """The module from which SGLang takes the rotary embedding of a device it does not know."""
    package, operators = ModuleType("vllm"), ModuleType("vllm._custom_ops")
    package.__path__ = []
    operators.rotary_embedding = rotary_embedding  # type: ignore[attr-defined]
    package._custom_ops = operators  # type: ignore[attr-defined]
    for module in (package, operators):
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module


def _replace_copies() -> None:
    pools = "sglang.srt.mem_cache.pool_host"
    importlib.import_module(f"{pools}.common").ALLOC_MEMORY_FUNCS["cpu"] = host_memory
    for name in POOLS:
        module = importlib.import_module(f"{pools}.{name}")
        for copy in COPIES:
            setattr(module, copy.__name__, copy)


def _unpin_dummy_pages() -> None:
    """The page that SGLang's slower interface reads into is asked for pinned, which needs a device."""
    pool = importlib.import_module("sglang.srt.mem_cache.pool_host.mha").MHATokenToKVPoolHost
    original = pool.get_dummy_flat_data_page

    def unpinned(self: Any) -> Any:
        self.pin_memory = False
        return original(self)

    pool.get_dummy_flat_data_page = unpinned


def register() -> None:
    """Called by SGLang in each of its processes before it makes anything."""
    if torch.cuda.is_available():
        return
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiling a few helpers takes 20 s of the first request
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin stand still on a busy machine
    _replace_operators()
    _replace_streams()
    _replace_copies()
    _unpin_dummy_pages()
