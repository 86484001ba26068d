"""The model as the vLLM connector describes it to Forebay: groups, namespaces, tokens, layouts, reports, figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.common.attach import AttachError, layout_of
from forebay.engines.common.model import EngineModel, UnsupportedModelError, window_blocks
from forebay.engines.common.opening import fingerprint
from forebay.engines.common.weights import weights_revision
from forebay.engines.vllm import figures
from forebay.engines.vllm.config import RequestOptions
from forebay.engines.vllm.metadata import StepReport
from forebay.engines.vllm.model import engine_groups
from forebay.engines.vllm.requests import is_served, namespace_of, tokens_of
from forebay.engines.vllm.section import as_yaml
from toy import FIELDS, LAYER_BYTES, FullAttentionSpec, MambaSpec, SlidingWindowSpec, Tensor, group, request


def groups(*given: Any) -> Any:
    return engine_groups(SimpleNamespace(kv_cache_groups=list(given)))


@pytest.mark.parametrize(
    ("window", "blocks"), [(1, 1), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3), (64, 16), (65, 16), (66, 17)]
)
def test_a_window_needs_the_blocks_that_its_other_tokens_touch(window: int, blocks: int) -> None:
    """At a boundary e the next token sees tokens from e - window + 1 on."""
    assert window_blocks(window, 4) == blocks
    needed = {token // 4 for token in range(400 - window + 1, 400)}
    assert len(needed) == blocks or window == 1


def test_groups_of_full_attention_come_first_and_keep_their_number() -> None:
    tokens, made = groups(group(["a", "b"], window=9), group(["c"]), group(["d"], window=5))
    assert tokens == 4
    assert [(one.index, one.name, one.trailing, one.page_bytes) for one in made] == [
        (1, "a1", 0, LAYER_BYTES), (0, "w0", 2, 2 * LAYER_BYTES), (2, "w2", 1, LAYER_BYTES),
    ]  # fmt: skip
    assert [one.payload_bytes(2) for one in made] == [2 * LAYER_BYTES, 4 * LAYER_BYTES, 2 * LAYER_BYTES]


def test_layers_of_one_kind_may_stand_in_a_wrapper() -> None:
    inside = {name: FullAttentionSpec(block_size=4, page_size_bytes=size) for name, size in (("a", 10), ("b", 30))}
    spec = SimpleNamespace(block_size=4, kv_cache_specs=inside)
    _, made = groups(SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=spec))
    assert made[0].page_bytes == 40


class MLAAttentionSpec(FullAttentionSpec):
    """As vLLM derives it."""


def test_latents_are_the_same_on_all_ranks() -> None:
    spec = MLAAttentionSpec(block_size=4, page_size_bytes=100)
    _, made = groups(SimpleNamespace(layer_names=["a"], kv_cache_spec=spec))
    assert (made[0].is_shared, made[0].payload_bytes(8)) == (True, 100)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([SimpleNamespace(layer_names=["m"], kv_cache_spec=MambaSpec(block_size=4, page_size_bytes=1))], "MambaSpec"),
        ([group(["a"]), group(["b"], block_tokens=8)], "group 1 has blocks of 8 tokens, group 0 of 4"),
        ([group(["a"], window=9)], "every layer has a sliding window"),
        ([group([f"l{i}"]) for i in range(9)], "9 KV cache groups; accepted: 1 to 8"),
        ([], "0 KV cache groups"),
    ],
)
def test_what_cannot_be_served_is_refused(given: list[Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        groups(*given)


def test_sliding_windows_of_other_kinds_are_refused() -> None:
    kind = type("SlidingWindowMLASpec", (SlidingWindowSpec,), {})
    spec = kind(block_size=4, page_size_bytes=1, sliding_window=4)
    with pytest.raises(UnsupportedModelError):
        groups(group(["a"]), SimpleNamespace(layer_names=["m"], kv_cache_spec=spec))


def parts(**changes: Any) -> Any:
    return namespace_of(request("r", [1], **changes), RequestOptions({}, tenant=changes.pop("tenant", None)))


def test_namespaces_tell_adapter_salt_and_tenant_apart() -> None:
    lora = SimpleNamespace(lora_name="x", lora_path="/p")
    assert parts() == parts(cache_salt="") == []
    assert parts(cache_salt="x") == [("salt", "x")]
    assert parts(lora_request=lora, cache_salt="x") == [("adapter", "x\0/p"), ("salt", "x")]
    assert parts(lora_request=SimpleNamespace(lora_name="x", lora_path="/q")) != parts(lora_request=lora)


def test_an_adapter_is_what_lies_at_its_path_not_the_path(tmp_path: Path) -> None:
    def loaded(number: int, place: str, weights: bytes, config: str) -> Any:
        path = tmp_path / place
        path.mkdir(exist_ok=True)
        (path / "adapter_model.safetensors").write_bytes(weights)
        (path / "adapter_config.json").write_text(config)
        return parts(lora_request=SimpleNamespace(lora_name="x", lora_path=str(path), lora_int_id=number))

    first = loaded(1, "a", b"1" * 99, "{}")
    others = [loaded(2, "a", b"2" * 99, "{}"), loaded(3, "a", b"2" * 99, '{"r": 8}')]
    assert len({str(one) for one in (first, *others)}) == 3
    assert loaded(4, "a", b"1" * 99, "{}") == loaded(5, "b", b"1" * 99, "{}") == first


def picture(identifier: str, offset: int, length: int) -> Any:
    return SimpleNamespace(identifier=identifier, mm_position=SimpleNamespace(offset=offset, length=length))


def test_media_stand_in_for_their_placeholders() -> None:
    plain = list(tokens_of(request("r", range(10))))
    assert plain == list(range(10))
    one = list(tokens_of(request("r", range(10), mm_features=[picture("a", 3, 4)])))
    other = list(tokens_of(request("r", range(10), mm_features=[picture("b", 3, 4)])))
    assert one[:3] == other[:3] == [0, 1, 2]
    assert one[7:] == other[7:] == [7, 8, 9]
    assert all(token >= 1 << 31 for token in one[3:7] + other[3:7])
    assert not set(one[3:7]) & set(other[3:7])
    again = request("r", range(10), mm_features=[picture("a", 3, 4)])
    assert list(tokens_of(again, 5)) == one[5:]
    assert list(tokens_of(again, 8)) == one[8:]


@pytest.mark.parametrize(
    ("changes", "served"),
    [
        ({}, True),
        ({"prompt_token_ids": None}, False),
        ({"prompt_embeds": object()}, False),
        ({"prompt_is_token_ids": [True]}, False),
        ({"resumable": True}, False),
    ],
)
def test_requests_whose_tokens_do_not_say_all_are_left_alone(changes: dict[str, Any], served: bool) -> None:
    assert is_served(request("r", [1], **changes)) is served


def test_layouts_of_tensors() -> None:
    class Strided(Tensor):
        def stride(self, axis: int | None = None) -> Any:
            strides = (2,) if len(self.shape) == 1 else (2 * LAYER_BYTES, 2)
            return strides if axis is None else strides[axis]

        def __getitem__(self, index: int) -> Tensor:
            return Strided(self.memory, None)

    import ctypes

    memory = ctypes.create_string_buffer(8 * LAYER_BYTES)
    layout, size = layout_of([Tensor(memory, 8), Tensor(memory, 8)], is_shared=False)
    assert (layout.kind, layout.layers, layout.blocks, layout.row_bytes, size) == (
        "packed", 2, 8, LAYER_BYTES, 2 * LAYER_BYTES,
    )  # fmt: skip
    assert layout_of([Tensor(memory, 8)], is_shared=True)[0].kind == "mla"
    with pytest.raises(AttachError, match="accepted: whole blocks"):
        layout_of([Strided(memory, 4)], is_shared=False)


def test_reports_of_ranks_add_up() -> None:
    one, other = StepReport(), StepReport()
    assert not one
    one.attached, other.attached = 1, 1
    one.end(7, 0)
    other.end(7, 3)
    other.end(8, 1)
    one.saved_bytes, other.saved_bytes, one.copy_s, other.copy_s = 5, 6, 0.5, 0.25
    total = one.aggregate(other)
    assert (total.attached, total.ended, total.saved_bytes, total.copy_s) == (2, {7: (2, 3), 8: (1, 1)}, 11, 0.5)
    assert total


def test_figures_only_grow() -> None:
    before = {"sessions": 3, "graphs": 9, "pinned_bytes": 4}
    now = {"sessions": 5, "graphs": 2, "pinned_bytes": 0}
    made = figures.differences(now, before)
    assert made == {"sessions": 2, "pinned_bytes": 0}
    assert figures.add(made, {"sessions": 1, "pinned_bytes": 7}) == {"sessions": 3, "pinned_bytes": 7}


def test_the_section_for_a_server_can_be_pasted_into_its_configuration(tmp_path: Path) -> None:
    tokens, made = groups(group(["a", "b"], window=9), group(["c"]))
    section = EngineModel(FIELDS | {"revision": "1.10", "id": "a: b # c", "tp_size": 2}, tokens, made, 2).section()
    path = tmp_path / "forebay.yaml"
    text = as_yaml(section)
    assert text.startswith('model:\n  id: "a: b # c"\n  revision: "1.10"\n')
    path.write_text(f"{text}store:\n  driver: mem\npool:\n  bytes: 4MiB\nlog:\n  level: off\n", encoding="utf-8")
    with forebay.Cache(forebay.Config(path=path)) as cache:
        assert cache.model.fingerprint == fingerprint(section)


def test_every_figure_has_a_text() -> None:
    assert set(figures.CACHE_COUNTERS) < set(figures.COUNTERS)
    assert set(figures.CACHE_GAUGES) == set(figures.GAUGES)


def safetensors(sizes: list[int], changed: int | None = None) -> bytes:
    """A file of tensors of so many bytes; in one of them every third byte is another."""
    header, data = {}, b""
    for i, size in enumerate(sizes):
        header[f"t{i}"] = {"dtype": "U8", "shape": [size], "data_offsets": [len(data), len(data) + size]}
        data += bytes((byte * 7 + i + (byte % 3 == 0 and i == changed)) % 256 for byte in range(size))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def revision(place: Path, name: str, content: bytes) -> str:
    place.mkdir()
    (place / name).write_bytes(content)
    (place / "README").write_text(str(place))
    return weights_revision(place)


def test_weights_are_told_apart_by_every_tensor_and_not_by_their_place(tmp_path: Path) -> None:
    sizes = [3, 100, 70_000, 1_000_000, 5000]
    one = revision(tmp_path / "a", "model.safetensors", safetensors(sizes))
    assert one.startswith("files-")
    assert revision(tmp_path / "b", "model.safetensors", safetensors(sizes)) == one
    assert weights_revision(tmp_path / "a" / "model.safetensors") == one
    others = {revision(tmp_path / f"c{i}", "model.safetensors", safetensors(sizes, i)) for i in range(5)}
    (tmp_path / "a" / "model-2.safetensors").write_bytes(b"")
    assert len(others | {one, weights_revision(tmp_path / "a")}) == 7


def test_weights_of_other_formats_are_sampled(tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    one = revision(tmp_path / "a", "model.gguf", content)
    assert revision(tmp_path / "b", "model.gguf", content) == one
    assert revision(tmp_path / "c", "model.gguf", content[:-1] + b"x") != one
    assert revision(tmp_path / "d", "model.safetensors", content) != one  # no header: sampled too
