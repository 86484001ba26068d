"""Settings of the SGLang integration: what is accepted, and which of several wins."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.common.model import UnsupportedModelError
from forebay.engines.sglang import SUPPORTED, UnsupportedVersionError, check_version
from forebay.engines.sglang.config import (
    ARGUMENT,
    POLICY_ARGUMENT,
    VARIABLE,
    policy_given,
    read_request,
    read_settings,
    settings_of,
)
from forebay.engines.sglang.namespace import adapters_of, namespace_of, tokens_of, with_adapter
from forebay.engines.sglang.startup import NAME, check_arguments, check_shape

WHERE = ["request", "file", "environment", "key", "argument", "default"]


@pytest.mark.parametrize("given", [set(some) for n in range(6) for some in itertools.combinations(WHERE[:5], n)])
def test_the_policy_that_wins(given: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request's own, then Forebay's configuration, then the plain key, then the engine's argument."""
    named = ["best_effort", "timeout", "best_effort", "timeout", "best_effort", "wait_complete"]
    policies = dict(zip(WHERE, named, strict=True))
    extra: dict[str, Any] = {}
    if "key" in given:
        extra["policy"] = policies["key"]
    if "environment" in given:
        monkeypatch.setenv("FOREBAY_PREFETCH_POLICY", policies["environment"])
    if "file" in given:
        path = tmp_path / "forebay.yaml"
        path.write_text(f"prefetch:\n  policy: {policies['file']}\n", encoding="utf-8")
        extra["config"] = str(path)
    argument = (policies["argument"], POLICY_ARGUMENT) if "argument" in given else None
    settings = read_settings(None, json.dumps(extra), policy=argument)
    request = read_request({"forebay": {"policy": policies["request"]}} if "request" in given else None)
    policy = request.session.get("policy", settings.config.get("prefetch.policy").value)
    assert policy == policies[next(where for where in WHERE if where in given or where == "default")]
    row = next(row for row in settings.effective() if row.key == "prefetch.policy")
    origins = {"key": "engine", "argument": POLICY_ARGUMENT}
    won = next(where for where in WHERE[1:] if where in given or where == "default")
    assert row.origin == origins.get(won, won)
    assert settings.config.get("prefetch.enabled").value == ("false" if row.value == "wait_complete" else "true")


@pytest.mark.parametrize(
    ("value", "command", "found"),
    [
        ("timeout", "python -m sglang.launch_server --model-path m", None),
        ("timeout", f"launch_server {POLICY_ARGUMENT} timeout", ("timeout", POLICY_ARGUMENT)),
        ("timeout", f"launch_server {POLICY_ARGUMENT}=timeout", ("timeout", POLICY_ARGUMENT)),
        ("timeout", None, None),
        ("best_effort", None, ("best_effort", POLICY_ARGUMENT)),
        ("wait_complete", "launch_server", ("wait_complete", POLICY_ARGUMENT)),
    ],
)
def test_the_engine_s_default_policy_is_not_a_wish(value: str, command: str | None, found: Any) -> None:
    assert policy_given(SimpleNamespace(hicache_storage_prefetch_policy=value, _launch_command=command)) == found


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_keys_may_stand_in_a_file(tmp_path: Path, suffix: str) -> None:
    if suffix != "json":
        pytest.importorskip("yaml", reason="PyYAML is not installed here")
    path = tmp_path / f"keys.{suffix}"
    path.write_text(json.dumps({"store": "mem", "min_tokens": 64}), encoding="utf-8")  # JSON is YAML
    settings = read_settings(f"@{path}", None)
    assert settings.config.get("prefetch.min_tokens").value == "64"


def test_the_argument_wins_over_the_environment_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"min_tokens": 64, "chunk_max_blocks": 8, "save": False}))
    arguments = SimpleNamespace(
        hicache_storage_backend_extra_config=json.dumps({"min_tokens": 32}), hicache_storage_prefetch_policy="timeout"
    )
    settings = settings_of(arguments, "cuda")
    assert settings.config.get("prefetch.min_tokens").value == "32"
    assert settings.config.get("prefetch.chunk_max_blocks").value == "8"
    assert (settings.save, settings.device) == (False, "cuda")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("{", f"{VARIABLE} is not JSON"),
        ("[1]", rf"{VARIABLE} is \[1\]; accepted: an object of keys"),
        ("@/no/such/file", rf"{VARIABLE} \(/no/such/file\) cannot be read: No such file or directory"),
        ('{"polcy": "timeout"}', rf"{VARIABLE} has unknown keys \['polcy'\]; accepted: .*chunk_max_blocks.*policy"),
        ('{"device": "tpu"}', "device is 'tpu'; accepted: host, cuda"),
        ('{"save": 1}', "save is 1; accepted: a bool"),
        ('{"metrics": "yes"}', "metrics is 'yes'; accepted: a bool"),
        ('{"policy": "sometimes"}', "prefetch.policy.*sometimes.*wait_complete"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_accepted(given: str, text: str) -> None:
    with pytest.raises((ValueError, forebay.ConfigError), match=text):
        read_settings(None, given)


def test_a_wrong_key_is_of_the_argument_when_that_is_given() -> None:
    with pytest.raises(ValueError, match=f"{ARGUMENT} has unknown keys"):
        read_settings('{"nonsense": 1}', None)


def test_effective_settings_are_one_line_with_origins(caplog: pytest.LogCaptureFixture) -> None:
    settings = read_settings(None, '{"store": "mem"}', policy=("timeout", POLICY_ARGUMENT))
    with caplog.at_level(logging.INFO):
        settings.log_once(logging.getLogger("x"))
    (line,) = caplog.messages
    assert f"prefetch.policy=timeout ({POLICY_ARGUMENT})" in line
    assert "prefetch.enabled=true (follows from policy timeout)" in line


def test_a_request_s_options_and_what_is_not_one(caplog: pytest.LogCaptureFixture) -> None:
    given = {"forebay": {"policy": "timeout", "load": False, "tenant": "x", "save": 3}, "others": 1}
    options = read_request(given)
    assert (options.session, options.load, options.save, options.tenant) == ({"policy": "timeout"}, False, True, "x")
    assert "custom_params.forebay: save=3 is not accepted" in caplog.text
    assert read_request({"others": 1}) == read_request(None) == read_request({"forebay": [1]})


def test_namespaces_never_meet() -> None:
    keys = [None, "", "x", "empty salt"]
    made = [tuple(namespace_of(*some)) for some in itertools.product(keys, keys, [None, "x"])]
    assert len(set(made)) == len(made)
    assert namespace_of(None, None) == []


def test_wide_ids_of_media_become_ids_that_no_text_has() -> None:
    wide = (1 << 52) + 12345
    made = tokens_of([5, wide, wide, 7])
    assert (made[0], made[3]) == (5, 7)
    assert made[1] >= 1 << 31
    assert made[2] >= 1 << 31
    assert made[1] != made[2]  # the position counts, so a longer picture says more
    assert tokens_of([wide, 7], 2) == made[2:]
    assert tokens_of([5, wide + 1, wide, 7]) != made
    assert tokens_of(range(3)).tolist() == [0, 1, 2]
    assert tokens_of([]).tolist() == []


def test_other_versions_are_refused_with_the_list() -> None:
    check_version(f"{SUPPORTED[0]}+cpu")
    with pytest.raises(UnsupportedVersionError, match=r"SGLang 0\.5\.9 is not supported .*accepted: 0\.5\.23"):
        check_version("0.5.9")


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("enable_hierarchical_cache", True, "False"),
        ("disable_radix_cache", True, "False"),
        ("speculative_algorithm", "EAGLE", "None"),
        ("disaggregation_mode", "prefill", "'null'"),
        ("dcp_size", 2, "1"),
        ("pp_size", 2, "1"),
    ],
)
def test_modes_that_are_not_served_are_refused(name: str, value: Any, accepted: str) -> None:
    argument = "--" + name.replace("_", "-")
    with pytest.raises(UnsupportedModelError, match=f"{argument} is {value!r}; accepted with .* {NAME}: {accepted}"):
        check_arguments(SimpleNamespace(**{name: value}))
    check_arguments(SimpleNamespace(pp_size=1, disaggregation_mode="null", speculative_algorithm=None))


def test_a_function_of_another_shape_is_said_to_be() -> None:
    class Other:
        def prefetch_from_storage(self, request: Any) -> None: ...

    with pytest.raises(TypeError, match=r"Other\.prefetch_from_storage has no last_host_node_id.*not supported"):
        check_shape(Other)
    with pytest.raises(TypeError, match="has no prefetch_from_storage: this SGLang is not supported"):
        check_shape(object)


def test_an_adapter_is_what_lies_at_its_path_not_the_path(tmp_path: Path) -> None:
    def key(weights: bytes, config: str) -> str | None:
        (tmp_path / "adapter_model.safetensors").write_bytes(weights)
        (tmp_path / "adapter_config.json").write_text(config)
        named = SimpleNamespace(lora_id="0123", lora_path=str(tmp_path))
        far = SimpleNamespace(lora_id="4567", lora_path="someone/adapter")
        adapters = adapters_of(SimpleNamespace(lora_paths=[far, named]))
        assert list(adapters) == ["0123"]
        assert [with_adapter(one, adapters) for one in (None, "", "mine", "4567")] == [None, "", "mine", "4567"]
        return with_adapter("mine0123", adapters)

    keys = [key(b"1" * 99, "{}"), key(b"2" * 99, "{}"), key(b"2" * 99, '{"r": 8}'), key(b"1" * 99, "{}")]
    assert len(set(keys)) == 3
    assert keys[0] == keys[3]
    assert str(keys[0]).startswith("mine0123\0")
    assert adapters_of(SimpleNamespace(lora_paths=None)) == {}
