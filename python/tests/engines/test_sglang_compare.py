"""The comparison on SGLang's server: what its figures are made of, its table, and the disk that it slows down."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forebay.engines.bench.figures import Figure

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "engines"))

import compare_figures as figures  # noqa: E402
from compare_arms import ARMS, PAIRS, POLICIES, Place, master_of, missing, options, variables  # noqa: E402
from compare_faults import READ_BYTES, READS, WAITING, Disk, NotHereError  # noqa: E402
from compare_process import mapped_bytes  # noqa: E402
from compare_samples import Aborts, Hang, Held, Queue, Samples, Slow  # noqa: E402

SEED = 1
PATIENCE = 1000  # looks, 10 ms apart, until a child reads
PLACE = Place(Path("/stores"), "mooncake:master=127.0.0.1:5,python=/wheel/bin/python", 1, 0.5, 8)
BEFORE = Held(rss_bytes=100 << 20, threads=30, descriptors=50, tokens=0, device_tokens=0)
AFTER = Held(rss_bytes=103 << 20, threads=31, descriptors=50, tokens=32, device_tokens=16)


def samples() -> Samples:
    made = Samples(failed={"hicache-mooncake": "no Mooncake store runs here"}, asked=8)
    made.queue = {
        "hicache-file": [Queue([1.0, 3.0, 2.0, 4.0], 60, 120), Queue([2.0, 2.0, 2.0, 2.0], 120, 120)],
        "forebay-file": [Queue([1.0, 1.0, 1.0, 2.0], 120, 120), Queue([1.0, 1.0, 1.0, 3.0], 120, 120)],
    }
    made.slow = {("forebay-file", "timeout"): [Slow([0.25, 0.5], [0.5, 0.75], 16, 64, 400, 0.0008)]}
    made.hang = {
        ("hicache-file", "wait_complete"): Hang(None, 12.0, 0.01, None, True, 0, 64),
        ("forebay-file", "wait_complete"): Hang(5.5, 12.0, 0.02, 0.03, False, 64, 64),
    }
    made.aborts = {"forebay-file": Aborts(1000, 990, BEFORE, AFTER)}
    return made


def by_name(made: Samples) -> dict[str, Figure]:
    return {one.name: one for one in figures.report(made, {}, 2, SEED).figures}


def test_a_quantile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert [figures.quantile(values, percent) for percent in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert [figures.quantile([4.0, 1.0, 3.0, 2.0], percent) for percent in (50, 90, 99)] == [2, 4, 4]
    assert figures.quantile([7.0], 50) == 7
    with pytest.raises(ValueError, match="no values"):
        figures.quantile([], 50)


def test_times_under_a_queue_are_medians_of_the_rounds_quantiles() -> None:
    found = by_name(samples())
    p50 = found["hicache_file_queue_ttft_p50_ms"]
    assert (p50.value, p50.lo, p50.hi, p50.unit) == (2000, 2000, 2000, "ms")
    assert found["hicache_file_queue_ttft_p90_ms"].value == 3000  # of 4 s and 2 s
    assert (found["hicache_file_queue_ttft_p90_ms"].lo, found["hicache_file_queue_ttft_p90_ms"].hi) == (2000, 4000)
    assert found["hicache_file_queue_restored"].value == 0.75
    assert found["forebay_file_queue_restored"].value == 1


def test_ratios_compare_the_same_round() -> None:
    found = by_name(samples())
    assert found["forebay_file_queue_ttft_p50_over_hicache"].value == 0.5
    assert found["forebay_file_queue_ttft_p90_over_hicache"].value == (2 / 4 + 3 / 2) / 2
    assert "hicache_file_queue_ttft_p50_over_hicache" not in found
    assert all(ARMS[ours].store == ARMS[theirs].store for ours, theirs in PAIRS)


def test_waits_are_given_for_each_policy() -> None:
    found = by_name(samples())
    assert found["forebay_file_slow_timeout_wait_p50_ms"].value == 250
    assert found["forebay_file_slow_timeout_wait_most_ms"].value == 500
    assert found["forebay_file_slow_timeout_restored"].value == 0.25
    assert found["forebay_file_slow_timeout_check_us"].value == pytest.approx(2)
    assert not any("slow_wait_complete" in name for name in found)


def test_a_request_that_is_still_held_is_a_bound_and_said_to_be_one() -> None:
    made = figures.report(samples(), {}, 2, SEED)
    found = {one.name: one.value for one in made.figures}
    assert found["hicache_file_hang_wait_complete_held_ms"] == 12000
    assert found["forebay_file_hang_wait_complete_held_ms"] == 5500
    assert found["hicache_file_hang_wait_complete_cold_ttft_ms"] is None
    assert found["forebay_file_hang_wait_complete_healthy"] == 0
    assert found["forebay_file_hang_wait_complete_restored_after"] == 1
    assert made.notes == [
        "hicache-mooncake did not run: no Mooncake store runs here",
        "hicache_file_hang_wait_complete_held_ms: the request was still held after 12 s",
    ]


def test_what_aborts_leave_is_after_less_before() -> None:
    found = {name: one.value for name, one in by_name(samples()).items()}
    assert found["forebay_file_aborts_unscheduled"] == 990
    assert found["forebay_file_aborts_rss_growth_mib"] == 3
    assert found["forebay_file_aborts_threads_growth"] == 1
    assert found["forebay_file_aborts_descriptors_growth"] == 0
    assert (found["forebay_file_aborts_held_tokens"], found["forebay_file_aborts_device_tokens"]) == (32, 16)


def test_what_could_not_be_done_is_said() -> None:
    made = dataclasses.replace(samples(), notes=["Mooncake is not slowed"])
    assert "Mooncake is not slowed" in figures.report(made, {}, 2, SEED).notes


def test_other_tokens_are_counted_and_said() -> None:
    assert by_name(samples())["other_tokens"].value == 0
    wrong = dataclasses.replace(samples(), wrong=2)
    assert by_name(wrong)["other_tokens"].value == 2
    assert "2 of 8 answers have other tokens" in figures.report(wrong, {}, 2, SEED).notes[-1]


def test_json_has_the_form_of_every_benchmark() -> None:
    whole = json.loads(figures.to_json(figures.report(samples(), {"engine": "sglang"}, 2, SEED)))
    assert list(whole) == ["bench", "machine", "rounds", "engine", "notes", "figures"]
    assert whole["bench"] == "sglang"
    keys = ["name", "value", "unit", "op", "goal", "met", "lo", "hi"]
    assert all(list(row) == keys for row in whole["figures"])
    names = [row["name"] for row in whole["figures"]]
    assert len(set(names)) == len(names)


def test_the_table_has_a_column_for_each_arm_and_says_who_is_missing() -> None:
    made = samples()
    text = figures.to_table(made, figures.report(made, {"engine": "sglang"}, 2, SEED), SEED)
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.split() == ["hicache-file", "forebay-file"])
    assert lines[1:3] == ["Repetitions: 2", "Engine: sglang"]
    assert "Note: hicache-mooncake did not run: no Mooncake store runs here" in lines
    cells = {tuple(line.split()[:2]): line.split()[2:] for line in lines[head + 1 :]}
    assert cells["queue", "ttft_p50_ms"] == ["2000", "1000"]
    assert cells["queue", "restored"] == ["0.75", "[0.50,", "1.00]", "1"]
    assert cells["hang_wait_complete", "cold_ttft_ms"] == ["none", "30"]
    assert cells["slow_timeout", "wait_p50_ms"] == ["250"]


def test_the_document_has_the_same_cells() -> None:
    made = samples()
    lines = figures.to_markdown(made, figures.report(made, {}, 2, SEED), SEED).splitlines()
    head = lines.index("|  | hicache-file | forebay-file |")
    assert lines[head + 1 : head + 3] == ["| --- | --- | --- |", "| queue ttft_p50_ms | 2000 | 1000 |"]
    assert len(lines) == head + 1 + len(figures.cells(made, SEED))


def test_every_arm_gets_the_same_prefetching() -> None:
    hicache, dynamic = options(ARMS["hicache-file"], "timeout", PLACE), options(ARMS["dynamic-file"], "timeout", PLACE)
    key = "hicache-storage-backend-extra-config"
    assert {**hicache, key: 0, "hicache-storage-backend": 0} == {**dynamic, key: 0, "hicache-storage-backend": 0}
    for name in ("prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token"):
        assert hicache[key][name] == dynamic[key][name]
    assert hicache[key]["prefetch_timeout_base"] == 0.5
    forebay = json.loads(variables(ARMS["forebay-file"], "timeout", PLACE)["FOREBAY_SGLANG"])
    assert forebay["timeout_budget_s"] == 0.5
    assert forebay["pool_bytes"] == f"{hicache['hicache-size']}GiB"
    assert forebay["store"] == "file:dir=/stores/forebay-file,io=sync"


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_come_from_the_engines_argument(policy: str) -> None:
    for name in ("hicache-file", "hicache-mooncake", "forebay-file", "dynamic-file"):
        assert options(ARMS[name], policy, PLACE)["hicache-storage-prefetch-policy"] == policy
    forebay = json.loads(variables(ARMS["forebay-file"], policy, PLACE)["FOREBAY_SGLANG"])
    assert "policy" not in forebay
    assert ("timeout_budget_s" in forebay) == (policy == "timeout")


def test_stores_are_apart_and_stop_modes_differ_where_the_name_says_so() -> None:
    directories = [variables(arm, "timeout", PLACE)["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] for arm in ARMS.values()]
    assert len(set(directories)) == len(ARMS)
    stop = {
        name: json.loads(variables(ARMS[name], "timeout", PLACE)["FOREBAY_SGLANG"])["stop_mode"]
        for name in ("forebay-file", "detach-file")
    }
    assert stop == {"forebay-file": "drain", "detach-file": "detach"}


def test_mooncake_is_the_same_node_for_both_or_is_said_to_be_missing() -> None:
    extra = options(ARMS["hicache-mooncake"], "timeout", PLACE)["hicache-storage-backend-extra-config"]
    assert (extra["master_server_address"], extra["global_segment_size"]) == ("127.0.0.1:5", 0)
    assert (
        json.loads(variables(ARMS["forebay-mooncake"], "timeout", PLACE)["FOREBAY_SGLANG"])["store"] == PLACE.mooncake
    )
    without = dataclasses.replace(PLACE, mooncake="")
    assert [name for name, arm in ARMS.items() if missing(arm, without)] == [
        name for name, arm in ARMS.items() if arm.store == "mooncake"
    ]
    with pytest.raises(ValueError, match="names no master"):
        master_of("redis:host=127.0.0.1")


def test_pools_do_not_count_as_growth() -> None:
    smaps = "\n".join([
        "7f0000000000-7f0000200000 rw-p 00000000 00:00 0", "Rss: 2048 kB", "Pss:  1024 kB", "Pss_Anon: 7 kB",
        "7f1000000000-7f1040000000 rw-s 00000000 00:01 5   /memfd:pool (deleted)", "Pss:  900000 kB",
        "7f2000000000-7f2000001000 r--p 00000000 00:00 0", "Pss:  4 kB",
    ])  # fmt: skip
    assert mapped_bytes(smaps) == 1028 << 10


def disk(tmp_path: Path) -> Disk:
    try:
        return Disk(tmp_path / "slow")
    except NotHereError as missing_tool:
        pytest.skip(str(missing_tool))


def read_in_child(slow: Disk, path: Path, count: int) -> bytes:
    code = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb', buffering=0).read(int(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(path), str(count)]
    return subprocess.run(command, env={**os.environ, **slow.environment()}, stdout=subprocess.PIPE, check=True).stdout


def test_reads_of_pages_below_the_directory_pay_and_others_do_not(tmp_path: Path) -> None:
    slow = disk(tmp_path)
    inside, outside = slow.directory / "below" / "page", tmp_path / "page"
    for path in (inside, outside):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(range(256)) * 64)
    slow.slow(1 << 30)
    assert read_in_child(slow, inside, 8192) == (bytes(range(256)) * 32)
    assert (slow.count(READS), slow.count(READ_BYTES)) == (1, 8192)
    read_in_child(slow, outside, 8192)
    read_in_child(slow, inside, 64)
    assert (slow.count(READS), slow.count(READ_BYTES)) == (1, 8192)


def test_a_read_hangs_until_the_disk_is_healed(tmp_path: Path) -> None:
    slow = disk(tmp_path)
    page = slow.directory / "page"
    page.write_bytes(b"x" * 8192)
    slow.hang()
    code = "import os, sys; print(len(os.pread(os.open(sys.argv[1], os.O_RDONLY), 8192, 0)))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(page)], env={**os.environ, **slow.environment()}, stdout=subprocess.PIPE
    )
    try:
        for _ in range(PATIENCE):
            if slow.count(WAITING):
                break
            time.sleep(0.01)
        assert slow.count(WAITING) == 1
        assert child.poll() is None
        slow.heal()
        assert child.communicate()[0] == b"8192\n"
        assert slow.count(WAITING) == 0
    finally:
        child.kill()
        child.wait()
