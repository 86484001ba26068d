"""What the SGLang integration makes of a model and its KV pools: groups, views of pages, fields of the fingerprint."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forebay.engines.common.model import UnsupportedModelError
from forebay.engines.sglang.model import describe, window_pages
from forebay.engines.sglang.pools import PoolPart, device_parts, tensors_of

PAGE, HEADS, DIM, SLOTS = 4, 2, 8, 44  # ten pages and the one for padding


class Tensor:
    """What is asked of a tensor: shape and element size; it knows what was made of it."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __getitem__(self, index: Any) -> Tensor:
        if isinstance(index, slice):
            return Tensor(len(range(*index.indices(self.shape[0]))), *self.shape[1:])
        return Tensor(*self.shape[1:])

    def unflatten(self, axis: int, sizes: tuple[int, int]) -> Tensor:
        assert axis == 0
        assert sizes[0] * sizes[1] == self.shape[0]
        return Tensor(*sizes, *self.shape[1:])

    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self) -> int:
        return 2


class MHATokenToKVPool(SimpleNamespace):
    """As SGLang names it: the integration goes by the names of classes."""


class MLATokenToKVPool(SimpleNamespace):
    """As SGLang names it."""


class SWAKVPool(SimpleNamespace):
    """As SGLang names it."""


class MHATokenToKVPoolFP4(SimpleNamespace):
    """As SGLang names it."""


def mha(layers: int = 3, **changes: Any) -> MHATokenToKVPool:
    shape = (SLOTS, HEADS, DIM)
    values: dict[str, Any] = {
        "k_buffer": [Tensor(*shape) for _ in range(layers)], "v_buffer": [Tensor(*shape) for _ in range(layers)],
        "start_layer": 0, "dtype": "torch.float16", "kv_cache_layout": "nhd", "layer_shard_enabled": False,
    }  # fmt: skip
    return MHATokenToKVPool(**values | changes)


def mla(**changes: Any) -> MLATokenToKVPool:
    values: dict[str, Any] = {
        "kv_buffer": [Tensor(SLOTS, 1, 24) for _ in range(2)], "start_layer": 0, "dtype": "torch.bfloat16",
        "kv_scale_buffer": None, "layer_shard_enabled": False,
    }  # fmt: skip
    return MLATokenToKVPool(**values | changes)


def hybrid() -> SWAKVPool:
    return SWAKVPool(full_kv_pool=mha(1, model_layer_ids=(5,)), swa_kv_pool=mha(2, model_layer_ids=(0, 1)))


class HfConfig(SimpleNamespace):
    """A configuration of a Hugging Face model."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def model_config(path: str = "some/model", **changes: Any) -> Any:
    values: dict[str, Any] = {
        "model_path": path, "revision": None, "quantization": None, "model_override_args": {},
        "hf_config": HfConfig(hidden_size=64, architectures=["X"]),
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def described(parts: list[PoolPart] | None = None, config: Any = None, **changes: Any) -> Any:
    values: dict[str, Any] = {"version": "0.5.23", "page_tokens": PAGE, "ranks": 1}
    return describe(config or model_config(), parts or device_parts(mha(), PAGE), **values | changes)


def test_a_page_of_a_layer_is_its_consecutive_slots_keys_before_values() -> None:
    (part,) = device_parts(mha(), PAGE)
    assert (part.name, part.order, part.is_shared, part.dtype) == ("a", "nhd", False, "float16")
    assert list(part.layers) == ["layer 0", "layer 1", "layer 2"]
    assert [view.shape for view in part.layers["layer 1"]] == [(SLOTS // PAGE, PAGE, HEADS, DIM)] * 2
    assert part.page_bytes == 3 * 2 * PAGE * HEADS * DIM * 2


def test_slots_behind_the_last_whole_page_belong_to_none() -> None:
    pool = mha(1, k_buffer=[Tensor(SLOTS + 3, HEADS, DIM)], v_buffer=[Tensor(SLOTS + 3, HEADS, DIM)])
    (part,) = device_parts(pool, PAGE)
    assert part.layers["layer 0"][0].shape[0] == SLOTS // PAGE


def test_a_layout_that_counts_pages_is_taken_as_it_is() -> None:
    shape = (SLOTS // PAGE, HEADS, PAGE, DIM)
    (part,) = device_parts(mha(1, kv_cache_layout="hnd", k_buffer=[Tensor(*shape)], v_buffer=[Tensor(*shape)]), PAGE)
    assert part.layers["layer 0"][0].shape == shape
    assert part.order == "hnd"


def test_latents_are_one_tensor_of_a_layer_and_the_same_on_all_ranks() -> None:
    (part,) = device_parts(mla(), PAGE)
    assert (part.is_shared, [len(views) for views in part.layers.values()]) == (True, [1, 1])
    made = described([part], ranks=4)
    assert made.groups[0].payload_bytes(4) == part.page_bytes


def test_windows_are_a_group_of_their_own_behind_full_attention() -> None:
    parts = device_parts(hybrid(), PAGE)
    made = described(parts, window_tokens=9)
    assert [(group.name, group.layers, group.trailing) for group in made.groups] == [
        ("a0", ("layer 5",), 0), ("w1", ("layer 0", "layer 1"), 3),
    ]  # fmt: skip
    assert list(tensors_of(parts)) == ["layer 5", "layer 0", "layer 1"]
    with pytest.raises(UnsupportedModelError, match="sliding_window_size is 0; accepted: a number above 0"):
        described(parts)


@pytest.mark.parametrize(("window", "pages"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_window_is_as_many_pages_as_hold_it(window: int, pages: int) -> None:
    assert window_pages(window, PAGE) == pages


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (MHATokenToKVPoolFP4(), "is a MHATokenToKVPoolFP4; accepted: MHATokenToKVPool, MLATokenToKVPool, SWAKVPool"),
        (mha(kv_cache_layout="page_major"), "kv_cache_layout is 'page_major'; accepted: nhd, hnd"),
        (mla(kv_scale_buffer=[1]), "has scales of its own"),
        (mha(layer_shard_enabled=True), "sharded over ranks"),
    ],
)
def test_other_pools_are_refused(pool: Any, text: str) -> None:
    with pytest.raises(UnsupportedModelError, match=text):
        device_parts(pool, PAGE)


def test_every_field_of_the_fingerprint_follows_from_what_it_says() -> None:
    usual = described().fields
    assert usual["kv_dtype"] == "float16"
    assert usual["layout"] == "sglang-0.5 nhd"
    changed = {
        "id": described(config=model_config("other/model")),
        "revision": described(config=model_config(hf_config=HfConfig(hidden_size=65))),
        "kv_dtype": described(device_parts(mha(dtype="torch.uint8"), PAGE)),
        "layer_set": described(device_parts(mha(2), PAGE)),
        "layout": described(version="0.6.0"),
        "tp_size": described(ranks=2),
    }
    for name, made in changed.items():
        assert {key for key in usual if made.fields[key] != usual[key]} == {name}
    assert described(config=model_config(hf_config=HfConfig(hidden_size=64, architectures=["Y"]))).fields == usual
    for argument, value in (("dtype", "half"), ("quantization_param_path", "scales.json"), ("load_format", "dummy")):
        made = described(arguments=SimpleNamespace(**{argument: value}))
        assert {key for key in usual if made.fields[key] != usual[key]} == {"revision"}
    assert described(arguments=SimpleNamespace(load_format="auto")).fields == usual


def test_scales_in_a_file_are_told_apart_by_their_content_not_by_its_name(tmp_path: Path) -> None:
    revisions = []
    for name, scales in (("a.json", "[1]"), ("a.json", "[2]"), ("b.json", "[1]")):
        (tmp_path / name).write_text(scales)
        arguments = SimpleNamespace(quantization_param_path=str(tmp_path / name))
        revisions.append(described(arguments=arguments).fields["revision"])
    assert revisions[0] == revisions[2] != revisions[1]


def test_weights_in_a_directory_are_told_apart_by_their_content_not_by_its_name(tmp_path: Path) -> None:
    fields = []
    for place, weights in (("a/model", b"1" * 100), ("b/model", b"1" * 100), ("c/model", b"2" * 100)):
        path = tmp_path / place
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(weights)
        (path / "config.json").write_text(json.dumps({}))
        fields.append(described(config=model_config(str(path))).fields)
    assert fields[0] == fields[1] != fields[2]
    assert fields[0]["id"] == "model"
