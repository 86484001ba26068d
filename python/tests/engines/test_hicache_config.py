"""HiCache backend: settings, what a page's key depends on, how far pages of several pools reach."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines import hicache
from forebay.engines.common.versions import UnsupportedVersionError
from forebay.engines.hicache.config import bytes_of, has_files, pool_settings, read_settings
from forebay.engines.hicache.figures import MOST_KEPT, Counter
from forebay.engines.hicache.hits import Hits, find_hits
from forebay.engines.hicache.naming import Facts, facts_of, fields_of, part_name, place_name
from host_pools import Policy, ToyHostPool, storage_config, transfer

ENGINE = {"backend_name": "forebay", "module_path": "forebay.engines.hicache", "class_name": "ForebayStorage"}
V1 = {"interface_v1": 1}
FACTS = Facts("toy", "1", "auto", "0.5")


# ---- Settings ----


def test_settings_have_defaults_and_sglangs_own_keys_mean_nothing() -> None:
    settings = read_settings(ENGINE | V1)
    assert (settings.query_limit_s, settings.get_limit_s, settings.set_limit_s) == (2.0, 5.0, 10.0)
    assert (settings.window, settings.read_ahead, settings.server) == (64, True, None)
    assert pool_settings(settings, 1.0, "kv").config.get("prefetch.max_sessions").value == "2048"


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown keys \['polcy', 'policy'\]; accepted: config, get_limit_s, pool_b"):
        read_settings(V1 | {"policy": "timeout", "polcy": 1})


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({}, "interface_v1 is None in hicache-storage-backend-extra-config; accepted: 1"),
        ({"interface_v1": 0}, "interface_v1 is 0"),
        (V1 | {"get_limit_s": 0}, "get_limit_s is 0; accepted: seconds above 0 and up to 3600"),
        (V1 | {"query_limit_s": 1e9}, "query_limit_s is 1000000000.0; accepted"),
        (V1 | {"set_limit_s": "1"}, "set_limit_s is '1'; accepted: a float"),
        (V1 | {"window": 0}, "window is 0; accepted: 1 to 512"),
        (V1 | {"store": "nonsense:x"}, "store option is 'x'"),
        (V1 | {"store": 5}, "store is 5; accepted: a text"),
        (V1 | {"store": None}, "store is None; accepted: a text"),
    ],
)
def test_a_value_that_is_not_accepted_is_refused(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        read_settings(extra)


def test_forebays_configuration_is_checked_at_once() -> None:
    with pytest.raises(forebay.ConfigError, match=r"prefetch\.max_session"):
        read_settings(V1 | {"config": {"prefetch": {"max_session": 3}}})


def test_a_directory_belongs_to_one_pool_of_one_rank(tmp_path: Path) -> None:
    settings = read_settings(V1 | {"store": f"file:{tmp_path}/below"})
    config = pool_settings(settings, 1.0, "swa-tp1of2").config
    assert config.get("store.options.dir").value == f"{tmp_path}/below/swa-tp1of2"
    assert (tmp_path / "below").is_dir()
    several = read_settings(V1 | {"store": f"fault:file:dirs={tmp_path}/a:{tmp_path}/b"})
    config = pool_settings(several, 1.0, "kv").config
    assert config.get("store.options.dirs").value == f"{tmp_path}/a/kv:{tmp_path}/b/kv"


def test_several_pools_share_the_bytes() -> None:
    settings = read_settings(V1 | {"pool_bytes": "64MiB"})
    assert bytes_of(pool_settings(settings, 0.5, "kv").config.get("pool.bytes").value) == 32 << 20
    by_group = read_settings(V1 | {"config": {"pool": {"group_bytes": {"value": "1MiB"}}}})
    pool_settings(by_group, 1.0, "kv")
    with pytest.raises(ValueError, match="several pools; accepted: pool_bytes"):
        pool_settings(by_group, 0.5, "kv")


def test_which_stores_belong_to_one_process() -> None:
    def of(**keys: str) -> bool:
        return has_files(pool_settings(read_settings(V1 | keys), 1.0, "kv"))

    assert of(store="mem")
    assert not of(store="redis:host=localhost")
    assert not of(store="mem", server="/run/forebay.sock")


def test_an_unsupported_version_is_refused_with_the_list() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"SGLang 0\.6\.0 is not supported .*accepted: 0\.5\.23"):
        hicache.check_version("0.6.0")
    hicache.check_version("0.5.23+cpu")
    with pytest.raises(AttributeError):
        _ = hicache.Nothing


# ---- Names ----


def test_each_fact_changes_the_fields() -> None:
    usual = fields_of(FACTS, storage_config(), "kv", ToyHostPool(), (256, 256))
    other_layers, other_rows, tagged = ToyHostPool(), ToyHostPool(), ToyHostPool()
    other_layers.end_layer = 3
    other_rows.page_size = 8
    tagged.storage_format_tag = "fp4"  # type: ignore[assignment]
    others = [
        fields_of(Facts("toy2", "1", "auto", "0.5"), storage_config(), "kv", ToyHostPool(), (256, 256)),
        fields_of(Facts("toy", "2", "auto", "0.5"), storage_config(), "kv", ToyHostPool(), (256, 256)),
        fields_of(Facts("toy", "1", "fp8_e4m3", "0.5"), storage_config(), "kv", ToyHostPool(), (256, 256)),
        fields_of(Facts("toy", "1", "auto", "0.6"), storage_config(), "kv", ToyHostPool(), (256, 256)),
        fields_of(FACTS, storage_config(tp_size=2), "kv", ToyHostPool(), (256, 256)),
        fields_of(FACTS, storage_config(pp_size=2), "kv", ToyHostPool(), (256, 256)),
        fields_of(FACTS, storage_config(), "swa", ToyHostPool(), (256, 256)),
        fields_of(FACTS, storage_config(), "kv", ToyHostPool(), (128, 384)),
        fields_of(FACTS, storage_config(), "kv", other_layers, (256, 256)),
        fields_of(FACTS, storage_config(), "kv", other_rows, (256, 256)),
        fields_of(FACTS, storage_config(), "kv", tagged, (256, 256)),
    ]
    assert len({repr(one) for one in [usual, *others]}) == 1 + len(others)


def test_fields_fit_whatever_a_model_is_called() -> None:
    long = Facts("m" * 200, "r" * 99, "auto", "0.5")
    fields = fields_of(long, storage_config(), "kv", ToyHostPool(), (256, 256))
    fields_too = fields_of(Facts("m" * 201, "r" * 99, "auto", "0.5"), storage_config(), "kv", ToyHostPool(), (256, 256))
    assert all(len(str(value)) <= 63 for value in fields.values())
    assert fields["id"] != fields_too["id"]
    odd = fields_of(Facts("modèle\n", "1", "auto", "0.5"), storage_config(), "kv", ToyHostPool(), (256, 256))
    assert str(odd["id"]).startswith("mod?le? ")


def test_ranks_share_what_is_the_same_on_all() -> None:
    split = [part_name(storage_config(tp_rank=rank, tp_size=2), "kv", ToyHostPool()) for rank in (0, 1)]
    assert split == ["kv-tp0of2", "kv-tp1of2"]
    mla = storage_config(tp_rank=1, tp_size=2, is_mla_model=True, pp_rank=1, pp_size=2)
    assert part_name(mla, "kv", ToyHostPool()) == "kv-pp1of2"
    assert part_name(mla, "mamba", ToyHostPool()) == "mamba-tp1of2-pp1of2"
    assert place_name(storage_config(dp_rank=3), "kv", ToyHostPool()) == "kv-tp0of1-dp3"
    assert part_name(storage_config(dp_rank=3), "kv", ToyHostPool()) == "kv-tp0of1"
    assert part_name(storage_config(attn_cp_rank=1, attn_cp_size=2), "kv", ToyHostPool()) == "kv-tp0of1-attn_cp1of2"


def test_heads_are_divided_among_ranks_also_beside_an_mla_model() -> None:
    class MHATokenToKVPoolHost(ToyHostPool):
        """Named as SGLang's."""

    class Derived(MHATokenToKVPoolHost):
        """As its variants are."""

    ranks = [storage_config(tp_rank=rank, tp_size=2, is_mla_model=True) for rank in (0, 1)]
    assert {part_name(rank, "draft", Derived()) for rank in ranks} == {"draft-tp0of2", "draft-tp1of2"}
    assert {part_name(rank, "draft", ToyHostPool()) for rank in ranks} == {"draft"}
    assert fields_of(FACTS, ranks[0], "draft", Derived(), (256, 256))["tp_size"] == 2


def test_a_name_of_a_revision_stands_for_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    refs = {
        ("org/name", "main"): "/hub/snapshots/c1/config.json",
        ("org/draft", "main"): "/hub/snapshots/d1/config.json",
    }
    hub = SimpleNamespace(try_to_load_from_cache=lambda model, _, revision: refs.get((model, revision)))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    arguments = SimpleNamespace(model_path="org/name", speculative_draft_model_path="org/draft")

    def revision() -> str:
        return facts_of(storage_config(), arguments, "0.5.23").revision

    seen = [revision()]
    assert seen[0].startswith("c1/")
    refs["org/name", "main"] = "/hub/snapshots/c2/config.json"
    seen.append(revision())
    refs["org/draft", "main"] = "/hub/snapshots/d2/config.json"
    seen.append(revision())
    arguments.load_format = "dummy"
    seen.append(revision())
    assert len(set(seen)) == 4
    arguments.load_format = "safetensors"
    assert revision() == seen[2]


def test_weights_in_a_directory_are_told_apart_by_content(tmp_path: Path) -> None:
    def made(name: str, weights: bytes, config: str) -> Facts:
        place = tmp_path / name / "model"
        place.mkdir(parents=True)
        (place / "a.bin").write_bytes(weights)
        (place / "config.json").write_text(config)
        return facts_of(storage_config(model_name=str(place)), None, "0.5.23")

    one = made("1", b"w", "{}")
    assert one == made("2", b"w", "{}")
    assert (one.model, one.release) == ("model", "0.5")
    assert len({one.revision, made("3", b"v", "{}").revision, made("4", b"w", "[]").revision}) == 3
    assert facts_of(storage_config(model_name="org/name"), None, "0.5.23").model == "org/name"


def test_arguments_that_change_bytes_change_the_revision(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"draft")

    def revision(**arguments: str) -> str:
        return facts_of(storage_config(), SimpleNamespace(model_path="org/name", **arguments), "0.5.23").revision

    seen = [revision(), revision(quantization="fp8"), revision(speculative_draft_model_path=str(tmp_path))]
    (tmp_path / "a.bin").write_bytes(b"other")
    seen += [revision(speculative_draft_model_path=str(tmp_path)), revision(revision="v2")]
    seen += [revision(speculative_draft_model_path=draft) for draft in ("org/one", "org/two")]
    assert len(set(seen)) == 7


# ---- How far pages reach ----


class Store:
    """Which pages there are, by pool; remembers what was asked."""

    def __init__(self, **pools: str) -> None:
        self._pools, self.asked = pools, list[tuple[str, int]]()

    def __call__(self, pool: str, keys: Sequence[str], leading: bool) -> list[bool]:
        self.asked.append((pool, len(keys)))
        there = [self._pools[pool][int(key)] == "x" for key in keys]
        end = there.index(False) if leading and False in there else len(there)
        return [one and i < end for i, one in enumerate(there)]


def _keys(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def test_pages_of_one_pool_reach_to_the_first_gap() -> None:
    assert find_hits(_keys(4), (), Store(kv="xx.x")) == Hits(2, {"kv": 2}, [1, 2])
    assert find_hits(_keys(2), (), Store(kv="..")) == Hits(0, {}, [])
    assert find_hits([], (), Store(kv="")) == Hits(0, {}, [])


def test_all_pages_of_another_pool_are_needed() -> None:
    hits = find_hits(_keys(4), [transfer("indexer", _keys(4))], Store(kv="xxxx", indexer="xx.x"))
    assert hits == Hits(2, {"kv": 4, "indexer": 2}, [1, 2])


def test_trailing_pages_leave_gaps() -> None:
    swa = transfer("swa", _keys(2), Policy.TRAILING_PAGES)
    hits = find_hits(_keys(6), [swa], Store(kv="xxxxx.", swa=".xx.xx"))
    assert hits == Hits(3, {"kv": 5, "swa": 3}, [3])
    hits = find_hits(_keys(6), [swa], Store(kv="xxxxxx", swa="x..xx."))
    assert hits == Hits(5, {"kv": 6, "swa": 5}, [1, 5])  # a prefix shorter than the window needs all of its pages


def test_two_pools_meet_where_both_can_resume() -> None:
    transfers = [transfer("indexer", _keys(6)), transfer("mamba", ["5"], Policy.TRAILING_PAGES)]
    hits = find_hits(_keys(6), transfers, Store(kv="xxxxxx", indexer="xxxx..", mamba=".x..xx"))
    assert hits == Hits(2, {"kv": 6, "indexer": 4, "mamba": 6}, [2])


def test_no_common_end_asks_no_more() -> None:
    store = Store(kv="xx", a="..", b="xx")
    assert find_hits(_keys(2), [transfer("a", _keys(2)), transfer("b", _keys(2))], store) == Hits(0, {"kv": 2}, [])
    assert store.asked == [("kv", 2), ("a", 2)]


def test_block_groups_are_reported_and_bound_nothing() -> None:
    groups = transfer("c4", _keys(6), Policy.BLOCK_GROUPS, group_pages=2, block_pages=8)
    hits = find_hits(_keys(3), [groups], Store(kv="xxx", c4="xxxx.x"))
    assert hits == Hits(3, {"kv": 3, "c4": 16}, [1, 2, 3])
    without = transfer("c4", _keys(6), Policy.BLOCK_GROUPS)
    assert find_hits(_keys(3), [without], Store(kv="xxx", c4="xxxxxx")) == Hits(3, {"kv": 3}, [1, 2, 3])


def test_an_anchor_without_bytes_bounds_nothing() -> None:
    hits = find_hits(_keys(4), [transfer("c4", _keys(4))], Store(c4="xxx."), has_kv=False)
    assert hits == Hits(3, {"kv": 4, "c4": 3}, [1, 2, 3])


def test_an_unknown_policy_is_named() -> None:
    other = transfer("x", _keys(1))
    other.hit_policy = "some_pages"
    with pytest.raises(ValueError, match="hit policy is 'some_pages'; accepted: all_pages"):
        find_hits(_keys(1), [other], Store(kv="x", x="x"))


# ---- Figures ----


def test_figures_are_those_since_the_last_question() -> None:
    counter = Counter()
    counter.add(4, 1 << 28, 2.0, is_backup=False)
    counter.add(0, 1 << 28, 2.0, is_backup=False)
    counter.add(2, 1 << 29, 0.5, is_backup=True)
    assert counter.take() == ([4], [2], [0.5], [2.0])
    assert counter.take() == ([], [], [], [])
    for _ in range(MOST_KEPT + 1):
        counter.add(1, 1, 1.0, is_backup=True)
    assert len(counter.take().backup_pages) == MOST_KEPT
