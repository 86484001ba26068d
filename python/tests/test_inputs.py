"""Tokens, namespaces, configurations, errors."""

from __future__ import annotations

import array
import json
import pickle
from pathlib import Path
from typing import Any

import forebay
import pytest
from conftest import Maker, fill, model, settings
from forebay import Config, Namespace


@pytest.fixture
def cache(open_cache: Maker) -> forebay.Cache:
    return open_cache()


def test_every_kind_of_tokens_gives_the_same_key(cache: forebay.Cache) -> None:
    tokens = list(range(70_000, 70_033))
    wanted = cache.sequence(tokens).key(1)
    spread = memoryview(array.array("I", [0] * 66))
    spread[::2] = memoryview(array.array("I", tokens))
    kinds: list[Any] = [
        tuple(tokens),
        range(70_000, 70_033),
        (token for token in tokens),
        array.array("i", tokens),
        array.array("I", tokens),
        array.array("q", tokens),
        array.array("Q", tokens),
        memoryview(array.array("q", tokens)),
        spread[::2],
        array.array("I", tokens).tobytes(),
        bytearray(array.array("I", tokens).tobytes()),
    ]
    for kind in kinds:
        sequence = cache.sequence(kind)
        assert (sequence.key(1), len(sequence), sequence.blocks) == (wanted, 33, 2), type(kind)
    assert cache.sequence([2**32 - 1] * 16).blocks == 1
    assert cache.sequence([]).tokens == 0
    assert cache.sequence(b"").tokens == 0


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ([1, -1], ValueError, "token 1 is -1"),
        ([2**32], ValueError, "token 0 is 4294967296"),
        (array.array("q", [5, 2**32]), ValueError, "token 1 is 4294967296"),
        (array.array("i", [5, -7]), ValueError, "token 1 is -7"),
        (b"abc", ValueError, "four bytes per token"),
        (array.array("d", [1.0]), TypeError, "accepted: 32-bit"),
        (["a"], TypeError, "str"),
        (7, TypeError, "int"),
    ],
)
def test_what_is_no_token_is_refused(cache: forebay.Cache, tokens: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        cache.sequence(tokens)


def test_append_equals_one_piece(cache: forebay.Cache) -> None:
    tokens = list(range(100))
    grown = cache.sequence(tokens[:7])
    grown.append(tokens[7:40])
    grown.append(array.array("q", tokens[40:]))
    whole = cache.sequence(tokens)
    assert [grown.key(i) for i in range(6)] == [whole.key(i) for i in range(6)]
    with pytest.raises(forebay.ArgumentError, match="6 whole blocks"):
        grown.key(6)
    with pytest.raises(forebay.ArgumentError):
        grown.key(0, 1)
    with pytest.raises(OverflowError):
        grown.key(-1)


def test_namespaces_part_sequences(cache: forebay.Cache) -> None:
    tokens = range(16)
    parts: list[Any] = [
        None,
        {"tenant": "a"},
        {"adapter": "a"},
        {"tenant": "a", "salt": b"\x00"},
        [(Namespace.SALT, b"\x00"), (Namespace.TENANT, "a")],
        [("text", "ä")],
    ]
    assert len({cache.sequence(tokens, part).key(0) for part in parts}) == len(parts)
    assert cache.sequence(tokens, {"tenant": "a"}).key(0) == cache.sequence(tokens, [("tenant", b"a")]).key(0)
    assert cache.sequence(tokens, {"salt": ""}).key(0) == cache.sequence(tokens).key(0)
    with pytest.raises(ValueError, match="accepted: adapter, salt, tenant, text"):
        cache.sequence(tokens, {"user": "a"})


def test_a_configuration_says_where_values_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_POOL_BYTES", "32MiB")
    path = tmp_path / "forebay.yaml"
    path.write_text("prefetch:\n  policy: timeout\n", encoding="utf-8")
    config = Config({"prefetch.max_sessions": 7}, path=path, model=model())
    assert config.get("prefetch.policy") == ("prefetch.policy", "timeout", "file")
    assert config.get("prefetch.max_sessions")[1:] == ("7", "file")
    assert config.get("pool.bytes").origin == "environment"
    assert config.get("prefetch.stop_mode")[1:] == ("drain", "default")
    rows = {row.key: row for row in config}
    assert rows["prefetch.policy"] == config.get("prefetch.policy")
    assert list(rows) == [row.key for row in config.each()]
    config.check()
    config.set("prefetch.timeout_budget_s", None)
    config.set("secret", "0123456789abcdef")
    assert config.get("secret").value == "(set)"
    config.parse("pool: {bytes: 8MiB}", "inline")
    config.set("pool.group_bytes", {"kv": "8MiB"})
    with pytest.raises(KeyError):
        config.get("no.such")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"prefetch": {"policy": "eager"}}, "prefetch.policy"),
        ({"prefetch": {"timeout_max": 3}}, "prefetch.timeout_max_s"),
        ({"pool.bytes": -1}, "pool.bytes"),
        ({"prefetch.timeout_base_s": float("nan")}, "timeout_base_s"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_wrong_configuration_names_key_and_value(values: dict[str, Any], words: str) -> None:
    with pytest.raises(forebay.ConfigError, match=words) as caught:
        Config(values)
    assert (caught.value.name, caught.value.code) == ("CONFIG", -2026)
    assert isinstance(caught.value, ValueError)


def test_a_missing_field_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(forebay.ConfigError, match="model"):
        forebay.Cache(pool={"bytes": "4MiB"})
    with pytest.raises(FileNotFoundError):
        Config(path=tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("prefetch: {policy: 5}", encoding="utf-8")
    with pytest.raises(forebay.ConfigError, match=r"bad\.yaml:1"):
        Config().load(bad)
    with pytest.raises(TypeError, match=r"pool\.bytes"):
        Config({"pool.bytes": object()})


def test_a_cache_opens_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "forebay.yaml"
    path.write_text(json.dumps(settings()), encoding="utf-8")
    with forebay.Cache(path, pool={"bytes": "8MiB"}) as cache:
        assert cache.model.block_tokens == 16
    config = Config(settings())
    with forebay.Cache(config) as cache:
        del config
        assert len(cache.model.fingerprint) == 32


def test_errors_carry_code_name_and_detail(cache: forebay.Cache) -> None:
    session = cache.start(cache.sequence(range(33)))
    session.handle ^= 1 << 40
    with pytest.raises(forebay.StaleError) as caught:
        session.poll()
    failure = caught.value
    assert (failure.code, failure.name) == (-2020, "STALE")
    assert "session" in failure.detail
    assert str(failure) == f"STALE: {failure.detail}"
    again = pickle.loads(pickle.dumps(failure))
    assert (type(again), again.code, again.detail) == (forebay.StaleError, -2020, failure.detail)
    timeout = forebay.WaitTimeoutError(-110, "late")
    assert isinstance(timeout, TimeoutError)
    assert timeout.errno == 110
    assert forebay.strerror(-2020).startswith("the handle")
    assert forebay.errname(-22) == "EINVAL"
    with pytest.raises(ValueError, match="accepted"):
        session.wait(-1)
    session.handle ^= 1 << 40


def test_policies_need_the_chunk_runtime(open_cache: Maker) -> None:
    plain = open_cache(prefetch={"enabled": False, "policy": "wait_complete"})
    with pytest.raises(forebay.NotEnabledError):
        plain.start(plain.sequence(range(33)), policy="timeout")


def test_budgets_are_capacity(open_cache: Maker) -> None:
    cache = open_cache(pool={"max_hold_bytes": "3KiB"})
    sequences = [fill(cache, 1, seed) for seed in range(3)]
    holds = [cache.lookup(sequence) for sequence in sequences[:2]]  # of 1,024 bytes and a trailer each
    with pytest.raises(forebay.CapacityError, match="BUDGET: lookup"):
        cache.lookup(sequences[2])
    holds[0].release()
    with cache.lookup(sequences[2]) as hold:
        assert hold.tokens == 16
