"""Tensor-parallel ranks of the SGLang connector: what one of them tells is true on all, over queues and over gloo."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forebay
import pytest
from forebay.engines.common import attach
from forebay.engines.sglang.carrier import GATHER_BYTES, Alone, carrier_of
from forebay.engines.sglang.ranks import Ranks, RanksError, refuse_other_groups
from rank_stories import BLOCKS, LIMIT_S, STORIES, Room, RoomCarrier, deadlines, in_threads, model

ROOT = Path(__file__).resolve().parents[3]

GLOO = """
import json, os, sys
import torch.distributed as distributed
from forebay.engines.sglang.ranks import Ranks, carrier_of
from rank_stories import STORIES
rank, size = int(sys.argv[1]), int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=rank, world_size=size)
group = distributed.new_group(list(range(size)), backend="gloo")
results = {name: STORIES[name](Ranks(carrier_of(group))) for name in sys.argv[4:]}
print(json.dumps(results), flush=True)
distributed.barrier(group)
os._exit(0)
"""

LATE = """
import os, sys
import torch.distributed as distributed
from forebay.engines.sglang.ranks import Ranks, RanksError, carrier_of
rank, size = int(sys.argv[1]), int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[3]}", rank=rank, world_size=size)
if rank != 1:
    try:
        Ranks(carrier_of(distributed.group.WORLD)).agree({}, limit_s=0.2)
    except RanksError as error:
        print(error, flush=True)
distributed.barrier()  # the exchange that failed has left the group as it was
os._exit(0)
"""


def torch_python() -> str:
    """An interpreter with torch: this one, or that of the SGLang environment. Skips where there is none."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    cache = Path(os.environ.get("FOREBAY_CACHE", ROOT / "build-cache"))
    found = sorted(cache.glob("sglang-*/bin/python"))
    if not found:
        pytest.skip("neither torch nor the environment of scripts/install-engine sglang is there")
    return str(found[-1])


def in_processes(size: int, program: str, *arguments: str) -> list[str]:
    """What each rank's process prints."""
    python = torch_python()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = os.pathsep.join([str(Path(__file__).resolve().parent), *(one for one in sys.path if "-packages" not in one)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    processes = [
        subprocess.Popen(
            [python, "-c", program, str(rank), str(size), port, *arguments], stdout=subprocess.PIPE, env=environment,
            text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        return [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def expected(size: int) -> dict[str, Any]:
    """What every rank has to tell: one list for all."""
    lowest = max(size - 2, 1)
    values = " ".join(f"rank {rank} f16," for rank in range(1, size)).rstrip(",")
    ready = ", ".join([*(f"rank {rank} ready" for rank in range(size - 1)), f"rank {size - 1} no memory"])
    return {
        # cards, address, attached; then save 2, nothing to save 1, load 2, nothing to load 1
        "round_trip": [True, True, True, True, True, 3 + 2 + 1 + 2 + 1],
        "failures": [-errno.EIO, True, True, [-errno.ENOMEM - lowest, lowest, []], True],
        "deadlines": [[[1, 7, 48], [2, 3, 0], [3, 5, 16]], 4, 4, 4],
        "disagreement": f"the ranks cannot start together: kv_dtype: rank 0 bf16, {values}",
        "start_problem": f"the ranks cannot start together: start: {ready}",
    }


def plain(result: Any) -> Any:
    """As JSON has it; an exception that ended a rank's story is raised."""
    if isinstance(result, BaseException):
        raise result
    return json.loads(json.dumps(result))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", list(STORIES))
def test_ranks_tell_one_story_over_queues(name: str, size: int) -> None:
    assert [plain(result) for result in in_threads(size, STORIES[name])] == [expected(size)[name]] * size


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_tell_one_story_over_gloo(size: int) -> None:
    names = ["round_trip", "failures", "deadlines", "disagreement", "start_problem"]
    lines = in_processes(size, GLOO, *names)
    assert [json.loads(line) for line in lines] == [expected(size)] * size


def test_a_rank_that_does_not_come_is_named_within_the_limit() -> None:
    lines = in_processes(3, LATE)
    text = "the ranks cannot start together: no readable card of rank 1: 1 missing\n"
    assert lines == [text, "", text]


def test_one_rank_does_the_same_without_a_message() -> None:
    ranks = Ranks(Alone())
    assert STORIES["round_trip"](ranks) == [True, True, True, True, True, 0]
    assert STORIES["failures"](Ranks(Alone()))[0] == -errno.EIO
    assert deadlines(Ranks(Alone())) == [[(1, 7, 48), (2, 3, 0), (3, 5, 16)], 4, 0, 0]
    assert ranks.minimum(3, 4) == [3, 4]
    assert ranks.share({"a": 1}) == {"a": 1}
    assert isinstance(carrier_of(None), Alone)
    with pytest.raises(RanksError, match=r"^no memory$"):
        Ranks(Alone()).agree({}, problem="no memory")


def test_a_step_is_one_message_however_many_decisions() -> None:
    room = Room(2)

    def story(ranks: Ranks) -> list[int]:
        ranks.agree({}, limit_s=LIMIT_S)
        made = [forebay.Decision("stop", tag=tag, extra=bytes(1000)) for tag in range(300)]
        return [decision.tag for decision in ranks.decide(made if ranks.is_leader else None)]

    assert in_threads(2, story, room) == [list(range(300))] * 2
    assert room.carried == 1


def test_many_steps_do_not_fill_the_log() -> None:
    def story(ranks: Ranks) -> int:
        ranks.agree({}, limit_s=LIMIT_S)
        last = 0
        for tag in range(3000):
            made = [forebay.Decision("stop", tag=tag)] if ranks.is_leader else None
            (decision,) = ranks.decide(made)
            last = decision.number
        return last

    assert in_threads(2, story) == [3000, 3000]


def test_a_decision_that_the_log_refuses_goes_to_nobody() -> None:
    def story(ranks: Ranks) -> list[Any]:
        ranks.agree({}, limit_s=LIMIT_S)
        made = [
            forebay.Decision("stop", tag=1),
            forebay.Decision("stop", extra=bytes(2000)),
            forebay.Decision("stop", tag=3),
        ]
        seen = [(one.number, one.tag) for one in ranks.decide(made if ranks.is_leader else None)]
        return [seen, len(ranks.refused)]

    assert in_threads(2, story) == [[[(1, 1), (2, 3)], 1], [[(1, 1), (2, 3)], 0]]


def test_more_failed_blocks_than_a_report_holds_are_all_blocks() -> None:
    def story(ranks: Ranks) -> list[Any]:
        ranks.agree({}, limit_s=LIMIT_S)
        blocks = forebay.BlockRange(0, 0, 300, list(range(300)), list(range(300)))
        made = [forebay.Decision("load", object=1, ranges=(blocks,)) for _ in range(2)]
        few, many = ranks.decide(made if ranks.is_leader else None)
        mine = [(0, 10 * ranks.rank + 4), (0, 7)]
        first = ranks.conclude(few.number, -errno.EIO, mine)
        second = ranks.conclude(many.number, -errno.EIO, [(0, i) for i in range(300)])
        return [[tuple(one) for one in first.failed], second.failed]

    assert in_threads(2, story) == [[[(0, 4), (0, 7), (0, 14)], ()]] * 2


def test_a_rank_that_cannot_attach_stops_all() -> None:
    def story(ranks: Ranks) -> str:
        from rank_stories import Toy

        class Broken(Toy):
            def register(self, rank: forebay.Rank) -> None:
                if ranks.rank == 1:
                    raise attach.AttachError("no tensor of layer l0")
                super().register(rank)

        with pytest.raises(RanksError) as raised:
            Broken(ranks)
        assert not raised.value.is_away
        return str(raised.value)

    assert in_threads(2, story) == ["attaching the pool: rank 1: no tensor of layer l0"] * 2


def test_a_model_that_differs_is_named_on_all() -> None:
    def story(ranks: Ranks) -> str:
        fields = model(2).digest() | ({"group kv": "1 layers, 64 bytes, rule 0"} if ranks.rank else {})
        with pytest.raises(RanksError) as raised:
            ranks.agree(fields, limit_s=LIMIT_S)
        return str(raised.value)

    text = (
        "the ranks cannot start together: group-kv: rank 0 1 layers, 96 bytes, rule 0, "
        "rank 1 1 layers, 64 bytes, rule 0"
    )
    assert in_threads(2, story) == [text] * 2


def test_after_the_loss_of_a_rank_nothing_is_sent_and_nothing_restored() -> None:
    room = Room(2)

    def story(ranks: Ranks) -> list[Any]:
        ranks.agree({}, limit_s=LIMIT_S)
        blocks = (forebay.BlockRange(0, 0, 1, [0], [0]),)
        (load,) = ranks.decide([forebay.Decision("load", object=1, ranges=blocks)] if ranks.is_leader else None)
        if ranks.rank == 1:
            room.without(1)
            return []
        assert room.lost.wait(LIMIT_S)
        result = ranks.conclude(load.number)
        sent = ranks.messages
        later = ranks.decide([forebay.Decision("stop", tag=1)])
        return [result.code, ranks.lost, later, ranks.minimum(5), ranks.messages - sent]

    assert in_threads(2, story, room)[0] == [-errno.ECONNRESET, "rank 1 is gone", [], [0], 0]


def test_what_the_leader_shares_comes_whole() -> None:
    thing = {"bytes": bytes(range(256)) * 100}
    assert in_threads(3, lambda ranks: ranks.share(thing if ranks.is_leader else None)) == [thing] * 3
    assert in_threads(3, lambda ranks: ranks.minimum(ranks.rank - 1, -ranks.rank)) == [[-1, -2]] * 3


def test_a_problem_is_told_as_far_as_it_fits() -> None:
    def story(ranks: Ranks) -> tuple[str, bool]:
        problem = attach.AwayError("x" * 3 * GATHER_BYTES) if ranks.rank == 1 else None
        with pytest.raises(RanksError) as raised:
            ranks.unanimous("a thing", problem)
        return str(raised.value), raised.value.is_away

    assert in_threads(2, story) == [(f"a thing: rank 1: {'x' * (GATHER_BYTES - 1)}", True)] * 2


def test_pipelines_and_contexts_are_refused() -> None:
    refuse_other_groups(SimpleNamespace(pp_size=1, attn_cp_size=1))
    with pytest.raises(ValueError, match="pp_size is 2; accepted with Forebay: 1"):
        refuse_other_groups(SimpleNamespace(pp_size=2, attn_cp_size=1))


def test_the_stories_cover_a_whole_prompt() -> None:
    assert BLOCKS > 1
    assert RoomCarrier(Room(1), 0).gather(b"x") == [b"x"]
