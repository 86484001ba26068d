"""Groups of ranks over a server: start-up, a decision and its verdict, and a rank that is lost."""

from __future__ import annotations

import errno
import json
import re
import subprocess

import forebay
import pytest
from conftest import BLOCK_BYTES, TENTH, Maker, ServerMaker, client_of, content, fill, until

RANK = """
import json, sys, forebay
from test_rank_groups import card_of
path, number, ranks, dtype = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
cache = forebay.connect(path, name=f"rank {number}")
try:
    group = cache.join("pair", number, ranks, card_of(cache, number, ranks, dtype), 10)
except forebay.ForebayError as error:
    print(json.dumps([error.name, error.detail]))
    sys.exit()
print("joined", flush=True)
follower = forebay.Follower(group.ranks)
follower.receive(group.receive(10))
decision = follower.next()
blocks, = decision.ranges
shard = cache.model.groups[0].payload_bytes // ranks
memory = bytearray(blocks.blocks * shard)
with forebay.Rank.attach_cache(cache, number, ranks) as rank:
    layout = forebay.Layout("packed", 1, (forebay.Tensor(memory),), blocks.blocks, shard)
    rank.register(0, layout, offset=number * shard, size=shard)
    status = rank.load(0, blocks.places, blocks.device_blocks, verify=True).wait(10)
group.done(decision.object)
group.report(follower.report(decision.number, status.error))
follower.receive(group.verdict(decision.number, 10))
print(json.dumps([follower.result().code, memory.hex()]), flush=True)
sys.stdin.read()
"""


def card_of(cache: forebay.Cache, rank: int, ranks: int, dtype: str) -> bytes:
    card = forebay.Card(rank, ranks)
    card.set_model(cache.model)
    card.set("dtype", dtype)
    return card.encode()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_ranks_of_two_processes_copy_what_the_leader_decides(start_server: ServerMaker) -> None:
    server, half = start_server(), BLOCK_BYTES // 2
    with (
        forebay.connect(server.path) as cache,
        client_of(server, RANK, "1", "2", "f16") as follower,
    ):
        group = cache.join("pair", 0, 2, card_of(cache, 0, 2, "f16"), TENTH)
        assert (group.name, group.ranks.ranks, group.ranks.rank) == ("pair", 2, 0)
        assert line_of(follower) == "joined\n"
        leader, mine = forebay.Leader(group.ranks), forebay.Follower(group.ranks)
        sequence = fill(cache, 3)
        hold = cache.lookup(sequence)
        group.grant(hold)
        blocks = forebay.BlockRange(0, 0, 3, hold.places(), [2, 0, 1])
        number = leader.decide(forebay.Decision("load", 5, hold.tokens, hold.handle, (blocks,)))
        group.send(leader.encode(number)[0])
        hold.release()
        mine.receive(group.receive(TENTH))
        decision = mine.next()
        assert decision is not None
        assert decision.ranges == (blocks,)
        group.done(decision.object)
        group.report(mine.report(number))
        mine.receive(group.verdict(number, TENTH))
        end = mine.result()
        assert end is not None
        assert end.ok
        wanted = b"".join(content(block)[half:] for block in (1, 2, 0))
        assert json.loads(line_of(follower)) == [0, wanted.hex()]
        until(lambda: cache.stats()["holds_gauge"] == 0)
        with pytest.raises(forebay.StaleError):
            group.done(decision.object)
        with pytest.raises(forebay.WaitTimeoutError):
            group.receive(0)
        follower.kill()
        with pytest.raises(ConnectionResetError) as caught:
            group.receive(TENTH)
        assert isinstance(caught.value, forebay.RankLostError)
        assert caught.value.rank == 1


def test_a_mismatch_names_all_values_on_all_ranks(start_server: ServerMaker) -> None:
    server = start_server()
    kinds = ["f16", "bf16", "f16"]
    processes = [client_of(server, RANK, str(rank), "3", kind) for rank, kind in enumerate(kinds)]
    answers = []
    for process in processes:
        with process:
            answers.append(json.loads(line_of(process)))
    assert answers[1:] == answers[:-1]
    name, detail = answers[0]
    assert name == "CONFIG"
    assert re.search("dtype: rank 0 f16, rank 1 bf16, rank 2 f16", detail)


def test_a_rank_that_does_not_come_is_named(start_server: ServerMaker, open_here: Maker) -> None:
    server = start_server()
    with forebay.connect(server.path) as cache:
        with pytest.raises(forebay.WaitTimeoutError, match="1"):
            cache.join("pair", 0, 2, forebay.Card(0, 2).encode(), 0.05)
        for group, rank, ranks in (("", 0, 1), ("g" * 48, 0, 1), ("g", 2, 2)):
            with pytest.raises(forebay.ArgumentError):
                cache.join(group, rank, ranks, forebay.Card(0, 1).encode(), 1)
        alone = cache.join("alone", 0, 1, forebay.Card(0, 1).encode(), TENTH)
        alone.send(b"whatever the engine says")
        assert alone.receive(TENTH) == b"whatever the engine says"
        with forebay.connect(server.path) as other, pytest.raises(OSError, match="0") as caught:
            other.join("alone", 0, 1, forebay.Card(0, 1).encode(), 1)
        assert caught.value.errno == errno.EEXIST
    with pytest.raises(forebay.StateError):
        open_here().join("pair", 0, 1, forebay.Card(0, 1).encode(), 1)
