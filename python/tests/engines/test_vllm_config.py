"""Settings of the vLLM connector: what is accepted, and which of several wins."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.engines.common.stores import parse_store
from forebay.engines.vllm import SUPPORTED, UnsupportedVersionError, check_version
from forebay.engines.vllm.config import read_request, read_settings

WHERE = ["request", "file", "environment", "engine", "default"]


@pytest.mark.parametrize("given", [set(some) for n in range(5) for some in itertools.combinations(WHERE[:4], n)])
def test_the_policy_that_wins(given: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request's own, then the configuration (file, environment), then the engine's argument, then wait_complete."""
    policies = dict(zip(WHERE, ["best_effort", "timeout", "best_effort", "timeout", "wait_complete"], strict=True))
    extra: dict[str, Any] = {}
    if "engine" in given:
        extra["policy"] = policies["engine"]
    if "environment" in given:
        monkeypatch.setenv("FOREBAY_PREFETCH_POLICY", policies["environment"])
    if "file" in given:
        path = tmp_path / "forebay.yaml"
        path.write_text(f"prefetch:\n  policy: {policies['file']}\n", encoding="utf-8")
        extra["config"] = str(path)
    settings = read_settings(extra)
    request = read_request({"policy": policies["request"]} if "request" in given else None)
    policy = request.session.get("policy", settings.config.get("prefetch.policy").value)
    assert policy == policies[next(where for where in WHERE if where in given or where == "default")]
    row = next(row for row in settings.effective() if row.key == "prefetch.policy")
    assert row.origin == next(where for where in WHERE[1:] if where in given or where == "default")


@pytest.mark.parametrize(
    ("extra", "enabled"),
    [
        ({}, "false"),
        ({"policy": "wait_complete"}, "false"),
        ({"policy": "timeout"}, "true"),
        ({"config": {"prefetch.policy": "best_effort"}}, "true"),
        ({"policy": "timeout", "config": {"prefetch.policy": "wait_complete"}}, "false"),
        ({"config": {"prefetch.enabled": True}}, "true"),
    ],
)
def test_the_chunk_runtime_exists_only_for_policies_that_need_it(extra: dict[str, Any], enabled: str) -> None:
    assert read_settings(extra).config.get("prefetch.enabled").value == enabled


def test_a_runtime_that_is_forbidden_and_needed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"prefetch\.enabled is false \(file\) but the policy is 'timeout'"):
        read_settings({"policy": "timeout", "config": {"prefetch.enabled": False}})


def test_plain_keys_stand_for_those_of_the_configuration() -> None:
    settings = read_settings(
        {
            "policy": "timeout", "stop_mode": "detach", "timeout_budget_s": 0.25, "chunk_max_blocks": 32,
            "min_tokens": 64, "pool_bytes": "64MiB", "store": "fault:file@agent:dir=/x,latency_ms=5",
        }
    )  # fmt: skip
    wanted = {
        "prefetch.policy": "timeout", "prefetch.stop_mode": "detach", "prefetch.timeout_budget_s": "0.25",
        "prefetch.chunk_max_blocks": "32", "prefetch.min_tokens": "64", "pool.bytes": "64MiB",
        "store.driver": "fault:file", "store.host": "agent",
    }  # fmt: skip
    assert {key: settings.config.get(key).value for key in wanted} == wanted
    assert {settings.origins[key] for key in wanted} == {"engine"}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"polcy": "timeout"}, r"unknown keys \['polcy'\]; accepted: chunk_max_blocks, config"),
        ({"policy": "eager"}, "wait_complete, timeout, best_effort, break_even"),
        ({"timeout_budget_s": -1}, "timeout_budget_s"),
        ({"timeout_budget_s": float("nan")}, "timeout_budget_s"),
        ({"sync_load": "yes"}, "sync_load is 'yes'; accepted: a bool"),
        ({"idle_wait_ms": -1}, "idle_wait_ms is -1; accepted: a number from 0 on"),
        ({"idle_wait_ms": float("nan")}, "idle_wait_ms is nan"),
        ({"copy_threads": True}, "copy_threads is True; accepted: a int"),
        ({"device": "tpu"}, "device is 'tpu'; accepted: host, cuda"),
        ({"config": {"prefetch.polcy": 1}}, "unknown key"),
        ({"store": "redis:host"}, "store option is 'host'; accepted: key=value"),
        ({"store": "mem@nowhere"}, "store host is 'nowhere'"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_accepted(extra: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, forebay.ConfigError), match=message):
        read_settings(extra)


@pytest.mark.parametrize(
    ("text", "driver", "host", "options"),
    [
        ("mem", "mem", None, {}),
        ("file:/a/b", "file", None, {"dir": "/a/b"}),
        ("file:dir=/a,capacity=1GiB", "file", None, {"dir": "/a", "capacity": "1GiB"}),
        ("redis@agent:host=a,port=1", "redis", "agent", {"host": "a", "port": "1"}),
        ("fault:mem", "fault:mem", None, {}),
        ("fault:file@thread:dir=/a", "fault:file", "thread", {"dir": "/a"}),
        ("fault:mem:script=(get:*:nth=1:delay(5),put),x=1", "fault:mem", None,
         {"script": "(get:*:nth=1:delay(5),put)", "x": "1"}),
        (r"m:devices=a\,b", "m", None, {"devices": "a,b"}),
        ("/lib/my@x.so:a=b", "/lib/my@x.so", None, {"a": "b"}),
    ],
)  # fmt: skip
def test_names_of_stores(text: str, driver: str, host: str | None, options: dict[str, str]) -> None:
    assert parse_store(text) == (driver, host, options)


def test_the_environment_may_name_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_STORE", "redis:host=x")
    assert parse_store("env") == ("redis", None, {"host": "x"})
    monkeypatch.delenv("FOREBAY_STORE")
    with pytest.raises(ValueError, match="store is ''"):
        parse_store("env")


def test_a_request_s_keys_are_flat_or_under_our_name() -> None:
    flat = read_request({"policy": "timeout", "timeout_budget_s": 0, "do_remote_prefill": True, "save": False})
    assert (flat.session, flat.load, flat.save) == ({"policy": "timeout", "timeout_budget_s": 0}, True, False)
    nested = read_request({"policy": "timeout", "forebay": {"min_tokens": 5, "tenant": "a"}})
    assert (nested.session, nested.tenant) == ({"min_tokens": 5}, "a")
    assert read_request(None).session == {}


@pytest.mark.parametrize(
    "params",
    [
        {"policy": "eager"},
        {"timeout_budget_s": -1},
        {"timeout_budget_s": float("nan")},
        {"timeout_budget_s": "1"},
        {"forebay": {"polcy": "timeout"}},
        {"load": 1},
        {"min_tokens": 1.5},
        {"policy": ["timeout"]},
    ],
)
def test_a_request_never_fails_for_what_is_not_accepted(
    params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    options = read_request(params)
    assert (options.session, options.load, options.save) == ({}, True, True)
    assert "is not accepted and has no effect" in caplog.text


def test_versions_that_work_are_listed() -> None:
    check_version("0.32.0")
    check_version("0.32.0+cpu")
    for other in ("0.31.1", "0.32.1", "0.33.0.dev1", "1"):
        with pytest.raises(UnsupportedVersionError, match=f"vLLM {other} .* accepted: {', '.join(SUPPORTED)}"):
            check_version(other)


def test_nothing_of_the_engine_is_imported_with_the_package() -> None:
    import sys

    import forebay.engines.vllm

    assert "forebay.engines.vllm.connector" not in sys.modules
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = forebay.engines.vllm.Nothing
