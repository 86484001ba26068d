"""What the drop-in flexkv makes of FlexKV's variables and file, of SGLang's arguments, and of its own installation."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="masks of the drop-in are numpy's arrays")

from flexkv_toy import (
    FlexKVConfig,
    flexkv,
    model_config,
    read_settings,
    server_args,
    settings_module,
    sglang,
)

QUIET = {"config": {"log.level": "off"}}


def value(environment: dict[str, str], key: str, **arguments: Any) -> tuple[str, str]:
    """A key's value, and where it came from."""
    settings = read_settings(environment, server_args(**arguments))
    return settings.config.get(key).value, settings.origins.get(key, settings.config.get(key).origin)


@pytest.mark.parametrize(
    ("environment", "key", "wanted"),
    [
        ({"FLEXKV_CPU_CACHE_GB": "2"}, "pool.bytes", ("2GiB", "cpu_cache_gb")),
        ({"FLEXKV_CPU_CACHE_GB": "0.5"}, "pool.bytes", ("512MiB", "cpu_cache_gb")),
        ({"FLEXKV_PREFETCH_MAX_SESSIONS": "7"}, "prefetch.max_sessions", ("7", "prefetch_max_sessions")),
        (
            {"FLEXKV_PREFETCH_MAX_PINNED_BYTES": "1048576"}, "prefetch.max_pinned_bytes",
            ("1MiB", "prefetch_max_pinned_bytes"),
        ),
        ({"FLEXKV_PREFETCH_RESULT_TTL_S": "5"}, "prefetch.result_ttl_s", ("5", "prefetch_result_ttl_s")),
        ({"FLEXKV_SSD_CACHE_GB": "1", "FLEXKV_SSD_CACHE_DIR": "/d"}, "store.driver", ("file", "engine")),
        ({}, "store.write", ("off", "no store is named")),
        ({}, "prefetch.policy", ("wait_complete", "default")),
        ({}, "prefetch.enabled", ("false", "follows from policy wait_complete")),
    ],
)  # fmt: skip
def test_variables_of_flexkv_set_forebays_keys(environment: dict[str, str], key: str, wanted: tuple[str, str]) -> None:
    assert value(environment, key) == wanted


def test_the_file_wins_over_variables_and_forebays_own_over_both(tmp_path: Path) -> None:
    path = tmp_path / "flexkv.json"
    path.write_text(json.dumps({"cpu_cache_gb": 3}))
    both = {"FLEXKV_CONFIG_PATH": str(path), "FLEXKV_CPU_CACHE_GB": "2"}
    assert value(both, "pool.bytes")[0] == "3GiB"
    assert value(both | {"FOREBAY_SGLANG": '{"pool_bytes": "5MiB"}'}, "pool.bytes")[0] == "5MiB"
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"config": {"pool.bytes": "6MiB"}, "pool_bytes": "5MiB"}))
    assert value(both | {"FOREBAY_SGLANG": f"@{own}"}, "pool.bytes")[0] == "6MiB"


def test_an_ssd_is_a_file_store() -> None:
    tier = {"FLEXKV_SSD_CACHE_GB": "1.5", "FLEXKV_SSD_CACHE_DIR": "/d;"}
    assert value(tier, "store.options.dir")[0] == "/d"
    assert value(tier, "store.options.capacity")[0] == f"{3 << 29}B"
    assert value(tier | {"FOREBAY_SGLANG": '{"store": "mem"}'}, "store.driver")[0] == "mem"


def test_the_file_may_be_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    path = tmp_path / "flexkv.yaml"
    path.write_text("cpu_cache_gb: 3\nssd_cache_gb: 10\nssd_cache_dir: /d\n")
    assert value({"FLEXKV_CONFIG_PATH": str(path)}, "store.options.capacity")[0] == str(10 << 30) + "B"


@pytest.mark.parametrize(
    ("switch", "options", "command", "wanted"),
    [
        (None, None, "", "wait_complete"),
        (None, None, "--hicache-storage-prefetch-policy best_effort", "best_effort"),
        ("1", None, "", "timeout"),
        ("1", {"policy": "best_effort", "chunk_max_blocks": 32}, "", "best_effort"),
        ("0", {"policy": "best_effort"}, "--hicache-storage-prefetch-policy timeout", "wait_complete"),
        (None, {"policy": "best_effort"}, "", "wait_complete"),
    ],
)
def test_the_policy_follows_from_the_switch(
    switch: str | None, options: dict[str, Any] | None, command: str, wanted: str
) -> None:
    environment = {} if switch is None else {"FLEXKV_ENABLE_CHUNKED_PREFETCH": switch}
    if options is not None:
        environment["FLEXKV_PREFETCH_OPTIONS"] = json.dumps(options)
    flag = command.rpartition(" ")[2] or "timeout"
    settings = read_settings(environment, server_args(hicache_storage_prefetch_policy=flag, _launch_command=command))
    assert settings.config.get("prefetch.policy").value == wanted
    assert settings.config.get("prefetch.enabled").value == ("false" if wanted == "wait_complete" else "true")
    if options is not None and "chunk_max_blocks" in options:
        assert settings.config.get("prefetch.chunk_max_blocks").value == "32"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"FLEXKV_CPU_CACHE_GB": "much"}, "cpu_cache_gb is 'much'; accepted: a number"),
        ({"FLEXKV_SSD_CACHE_GB": "1", "FLEXKV_SSD_CACHE_DIR": "/a;/b"}, "ssd_cache_dir names 2 directories"),
        ({"FLEXKV_PREFETCH_OPTIONS": "{"}, "prefetch_options cannot be read"),
        ({"FLEXKV_PREFETCH_OPTIONS": "[]"}, "prefetch_options is a list"),
        ({"FLEXKV_PREFETCH_OPTIONS": '{"depth": 1}'}, "prefetch_options has unknown keys"),
        ({"FLEXKV_CONFIG_PATH": "/not/there.json"}, "FLEXKV_CONFIG_PATH"),
        ({"FOREBAY_SGLANG": "["}, "FOREBAY_SGLANG is not JSON"),
        ({"FOREBAY_SGLANG": '{"speed": 1}'}, r"FOREBAY_SGLANG has unknown keys \['speed'\]; accepted: .*match_wait_s"),
        ({"FOREBAY_SGLANG": '{"policy": "eager"}'}, "eager"),
    ],
)
def test_what_is_not_accepted_is_said_at_start(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_settings(environment, server_args())


def test_what_has_no_meaning_is_named_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "_warned", set())
    odd = {"FLEXKV_TRANSFER_SMS_H2D": "8", "FLEXKV_ENABLE_MPS": "1", "FLEXKV_CPU_CACHE_GB": "1", "HOME": "/root"}
    with caplog.at_level(logging.WARNING):
        read_settings(odd, server_args())
        read_settings(odd, server_args())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("forebay: FLEXKV_ENABLE_MPS, FLEXKV_TRANSFER_SMS_H2D: no meaning")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"pp_size": 2}, "pp_size is 2; accepted .*: 1"),
        ({"dp_size": 4}, "dp_size is 4"),
        ({"nnodes": 2}, "nnodes is 2"),
        ({"attn_cp_size": 2}, "attn_cp_size is 2"),
        ({"enable_dp_attention": True}, "enable_dp_attention is True"),
        ({"kv_cache_dtype": "fp4_e2m1"}, "scales beside the values"),
    ],
)
def test_arguments_that_are_not_served_are_refused(arguments: dict[str, Any], why: str) -> None:
    with sglang(), pytest.raises(ValueError, match=why):
        FlexKVConfig.from_env().post_init_from_sglang_config(model_config(), server_args(**arguments), page_size=16)


def test_another_release_of_sglang_is_refused_with_the_list() -> None:
    with sglang("0.5.24"), pytest.raises(ImportError, match=r"SGLang 0\.5\.24 is not supported .*accepted: 0\.5\.23"):
        FlexKVConfig.from_env().post_init_from_sglang_config(model_config(), server_args(), page_size=16)


def test_ranks_of_one_server_find_one_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = []
    for rank in range(2):
        config = FlexKVConfig.from_env()
        with sglang():
            info = config.post_init_from_sglang_config(model_config(), server_args(tp_size=2), 16, tp_rank=rank)
        made.append(config.gpu_register_port)
        assert (info.local_rank, info.attn_tp_rank, info.pp_rank, info.dp_client_id) == (rank, rank, 0, 0)
        assert (info.num_layers_per_pp_stage, config.model_config.attn_tp_size) == (3, 2)
        assert config.cache_config.num_cpu_blocks == 0
    assert made[0] == made[1]
    monkeypatch.setenv("FLEXKV_SERVER_RECV_PORT", f"ipc://{tmp_path}/mine")
    config = FlexKVConfig.from_env()
    with sglang():
        config.post_init_from_sglang_config(model_config(), server_args(), 16)
    assert config.gpu_register_port == f"{tmp_path}/mine_gpu_register"
    for wrong, why in [("tcp://host:1", "accepted: a path"), ("/" + "x" * 120, "longer than 107")]:
        monkeypatch.setenv("FLEXKV_SERVER_RECV_PORT", wrong)
        config = FlexKVConfig.from_env()
        with sglang(), pytest.raises(ValueError, match=why):
            config.post_init_from_sglang_config(model_config(), server_args(), 16)


# ---- The package ----


def imported(path: list[Path]) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(one) for one in path]!r}; import flexkv; print(flexkv.__version__)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_it_refuses_to_be_one_of_two(tmp_path: Path) -> None:
    source = Path(flexkv.__file__).parents[1]
    assert imported([source]).stdout.strip() == flexkv.__version__
    other = tmp_path / "flexkv-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: flexkv\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("flexkv\n")
    answer = imported([source, tmp_path])
    assert answer.returncode != 0
    assert "the import name flexkv belongs to flexkv and to forebay-flexkv" in answer.stderr
