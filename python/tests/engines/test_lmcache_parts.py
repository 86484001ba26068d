"""The LMCache adapter's parameters, versions, and how values lie in blocks."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.lmcache import SUPPORTED, ForebayL2, UnsupportedVersionError, check_version
from forebay.engines.lmcache.settings import ACCEPTED, read_settings, value_model
from forebay.engines.lmcache.values import HEADER_BYTES, blocks_of, bytes_of, copy_in, copy_out, length_in

PAYLOAD = 4096 + HEADER_BYTES


def test_the_parameters_that_are_accepted() -> None:
    settings = read_settings(
        {"store": "redis:host=cache1,port=6379", "pool_bytes": "8GiB", "block_bytes": "512KiB", "timeout_s": 3}
    )
    values = {row.key: row.value for row in settings.config}
    assert (values["store.driver"], values["pool.bytes"]) == ("redis", "8GiB")
    assert (settings.block_bytes, settings.timeout_s, settings.server) == (512 << 10, 3, None)
    assert (values["prefetch.enabled"], values["log.level"]) == ("false", "warn")
    assert read_settings({}).block_bytes == 1 << 20


def test_the_configuration_wins() -> None:
    config = {"pool": {"bytes": "2GiB"}, "log": {"level": "debug"}, "store": {"driver": "mem"}}
    settings = read_settings({"config": config, "pool_bytes": "1GiB", "store": "file:/nowhere"})
    values = {row.key: row.value for row in settings.config}
    assert (values["pool.bytes"], values["log.level"], values["store.driver"]) == ("2GiB", "debug", "mem")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"stores": "mem"}, r"unknown keys \['stores'\]; accepted: " + ", ".join(ACCEPTED)),
        ({"policy": "timeout"}, r"unknown keys \['policy'\]"),
        ({"block_bytes": "1 apple"}, "block_bytes is '1 apple'; accepted: 4KiB to 256MiB"),
        ({"block_bytes": 100}, "block_bytes is 100; accepted"),
        ({"block_bytes": True}, "block_bytes is True; accepted"),
        ({"block_bytes": "1TiB"}, "block_bytes is '1TiB'; accepted"),
        ({"timeout_s": 0}, "timeout_s is 0; accepted"),
        ({"timeout_s": -1}, "timeout_s is -1; accepted"),
        ({"timeout_s": float("inf")}, "timeout_s is inf; accepted"),
        ({"timeout_s": float("nan")}, "timeout_s is nan; accepted"),
        ({"timeout_s": "5"}, "timeout_s is '5'; accepted"),
        ({"store": "mem:oops"}, "store option is 'oops'"),
        ({"pool_bytes": "many"}, r"pool\.bytes"),
    ],
)
def test_parameters_that_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ForebayL2(**params)


def test_a_refused_start_leaves_no_thread() -> None:
    import threading

    before = threading.active_count()
    with pytest.raises(forebay.ForebayError):
        ForebayL2(store="file:dir=/proc/nowhere/at/all", pool_bytes="1MiB")
    assert threading.active_count() == before


def test_views_are_counted() -> None:
    client = ForebayL2(store="mem", pool_bytes="1MiB", block_bytes=4096, config={"log": {"level": "off"}})
    try:
        with pytest.raises(ValueError, match="1 memoryviews for 2 keys; accepted: one per key"):
            client.submit_batch_get(["a", "b"], [bytearray(1)])
        with pytest.raises(TypeError):
            client.submit_batch_set(["a"], [memoryview(bytearray(8))[::2]])
        assert client.drain_completions() == []
    finally:
        client.close()


def test_another_form_of_blocks_is_another_model() -> None:
    small, big = (value_model(read_settings({"block_bytes": size})).section() for size in (4096, 8192))
    assert small["groups"] == [{"name": "value", "payload_bytes": 4096 + 64, "rule": "all"}]
    assert small != big


# ---- Versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [*SUPPORTED, SUPPORTED[0] + "+cpu"])
def test_versions_that_work(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.5.5", "0.5.60", "0.6.0", "unknown", ""])
def test_versions_that_do_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    message = f"LMCache {version} is not supported by forebay.engines.lmcache; accepted: {', '.join(SUPPORTED)}"
    monkeypatch.setitem(sys.modules, "lmcache", SimpleNamespace(__version__=version))
    with pytest.raises(UnsupportedVersionError) as refused:
        ForebayL2(store="mem")
    assert str(refused.value) == message


# ---- Values in blocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "blocks"),
    [(0, 1), (1, 1), (4096, 1), (4097, 2), (8192, 2), (8192 + 64, 2), (8192 + 65, 3), (64 * 4096, 64)],
)
def test_the_blocks_of_a_value(length: int, blocks: int) -> None:
    assert blocks_of(length, PAYLOAD) == blocks
    memory = bytearray(b"\xee" * (blocks * PAYLOAD))
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    slots = [start + block * PAYLOAD for block in range(blocks)]
    source = bytearray(i * 31 % 251 for i in range(length))
    copy_in(slots, PAYLOAD, 0, bytes_of(source))
    assert memory[:HEADER_BYTES] == b"FBYLMC1\0" + length.to_bytes(8, "little") + bytes(48)
    assert memory[HEADER_BYTES : HEADER_BYTES + length] == source
    assert not any(memory[HEADER_BYTES + length :])  # what another value left in a slot does not go to the store
    assert length_in(slots[0]) == length
    target = bytearray(length)
    copy_out(slots, PAYLOAD, bytes_of(target))
    assert target == source


def test_the_blocks_that_are_missing_are_filled_alone() -> None:
    memory = bytearray(b"\xee" * (3 * PAYLOAD))
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    source = bytearray(i * 31 % 251 for i in range(3 * 4096))
    copy_in([start + PAYLOAD, start + 2 * PAYLOAD], PAYLOAD, 1, bytes_of(source))
    assert set(memory[:PAYLOAD]) == {0xEE}
    behind = source[PAYLOAD - HEADER_BYTES :]
    assert memory[PAYLOAD : PAYLOAD + len(behind)] == behind
