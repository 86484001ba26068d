"""Groups of ranks: cards, decisions in any order, reports and verdicts. Messages are bytes that the test carries."""

from __future__ import annotations

import errno

import forebay
import pytest
from conftest import Maker
from forebay import BlockRange, Card, Decision, DecisionKind, FailedBlock, Follower, Leader, MessageType, Ranks, Verdict

PAIR = Ranks(ranks=2, rank=0, incarnation=7)


def load(tag: int, places: list[int]) -> Decision:
    blocks = list(range(len(places)))
    return Decision("load", tag, 16 * len(places), 99, (BlockRange(0, 4, len(places), places, blocks),), b"request")


# ---- Cards -----------------------------------------------------------------------------------------------------------


def card(rank: int, ranks: int = 2, **fields: str | int) -> bytes:
    made = Card(rank, ranks)
    for name, value in fields.items():
        made.set(name, value)
    return made.encode()


def test_equal_cards_give_all_ranks_the_same_group() -> None:
    cards = [card(rank, 3, dtype="f16", heads=8) for rank in range(3)]
    groups = [forebay.compare_cards(cards, rank) for rank in range(3)]
    assert [(group.ranks, group.rank) for group in groups] == [(3, 0), (3, 1), (3, 2)]
    assert len({group.incarnation for group in groups}) == 1
    assert groups[0].incarnation != 0
    assert groups[0].of(2) == groups[2]
    assert forebay.compare_cards(list(reversed(cards)), 1) == groups[1]
    again = [card(rank, 3, dtype="f16", heads=8) for rank in range(3)]
    assert forebay.compare_cards(again).incarnation != groups[0].incarnation


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        ([card(0, dtype="f16"), card(1, dtype="bf16")], "dtype: rank 0 f16, rank 1 bf16"),
        ([card(0, heads=8), card(1, heads=4)], "heads: rank 0 8, rank 1 4"),
        ([card(0, heads=8), card(1)], "heads: rank 0 8, rank 1 .not set."),
        ([card(0), None], "no readable card of rank 1"),
        ([card(0), card(0)], "rank 0"),
        ([card(0), card(1, 3)], "ranks"),
        ([card(0), card(1)[:-1]], "no readable card of rank 1"),
    ],
)
def test_cards_that_differ_name_the_field_and_all_values(cards: list[bytes | None], words: str) -> None:
    texts = set()
    for rank in range(2):
        with pytest.raises(forebay.ConfigError, match=words) as caught:
            forebay.compare_cards(cards, rank)
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_the_values_of_many_ranks_are_not_cut() -> None:
    kinds = [f"{'quantised-' * 8}{rank}" for rank in range(64)]
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.compare_cards([card(rank, 64, dtype=kind) for rank, kind in enumerate(kinds)])
    assert caught.value.detail == "dtype: " + ", ".join(f"rank {rank} {kind}" for rank, kind in enumerate(kinds))


def test_a_card_holds_model_pool_and_digests(open_here: Maker) -> None:
    cache = open_here()
    with_pool = Card(0, 2, incarnation=5)
    with_pool.set_model(cache.model)
    pool = cache.pool()
    pool.close()
    with_pool.set_pool(pool)
    with_pool.set_digest("tokens", b"\x01\x02")
    with_pool.set("device", "cuda:0", per_rank=True)
    message = forebay.parse_message(with_pool.encode())
    assert (message.type, message.rank, message.ranks, message.incarnation) == (MessageType.CARD, 0, 2, 5)
    assert message.count > 10
    other = Card(1, 2)
    other.set_model(cache.model)
    other.set_pool(pool)
    other.set_digest("tokens", bytearray(b"\x01\x02"))
    other.set("device", "cuda:1", per_rank=True)
    assert forebay.compare_cards([with_pool.encode(), other.encode()]).ranks == 2
    other.set_digest("tokens", b"\x01\x03")
    with pytest.raises(forebay.ConfigError, match=r"tokens: rank 0 [0-9a-f]{32}, rank 1 [0-9a-f]{32}"):
        forebay.compare_cards([with_pool.encode(), other.encode()])


def test_a_card_refuses_what_it_cannot_hold() -> None:
    made = Card(0, 1)
    for name, value in (("", "x"), ("a b", "x"), ("n" * 64, "x"), ("name", "v" * 256), ("name", "a\nb")):
        with pytest.raises(forebay.ArgumentError):
            made.set(name, value)
    with pytest.raises(OverflowError):
        made.set("name", -1)
    with pytest.raises(forebay.ArgumentError, match="rank"):
        Card(2, 2)
    for i in range(256):
        made.set(f"field{i}", i)
    with pytest.raises(OSError, match="256") as caught:
        made.set("one-more", 1)
    assert caught.value.errno == errno.ENOSPC


# ---- Decisions -------------------------------------------------------------------------------------------------------


def test_decisions_arrive_in_order_whatever_the_order_of_messages() -> None:
    leader, follower = Leader(PAIR), Follower(PAIR.of(1))
    given = [load(tag, [64 * tag, 64 * tag + 128]) for tag in range(1, 4)]
    assert [leader.decide(one) for one in given] == [1, 2, 3]
    assert leader.next == 4
    everything, following = leader.encode(1)
    assert following == 4
    last, _ = leader.encode(3)
    assert leader.encode(4) == (b"", 4)
    follower.receive(last)
    assert follower.missing == range(1, 3)
    with pytest.raises(forebay.MissingDecisionError, match="1"):
        follower.next()
    follower.receive(everything)
    follower.receive(everything)
    taken = list(follower)
    assert [(one.number, one.kind, one.tag, one.tokens, one.object, one.extra) for one in taken] == [
        (number, DecisionKind.LOAD, number, 32, 99, b"request") for number in (1, 2, 3)
    ]
    assert taken[2].ranges == (BlockRange(0, 4, 2, [192, 320], [0, 1]),)
    assert follower.next() is None
    assert follower.missing == range(0)
    assert leader.receive(follower.acknowledge()) == (1, 3)
    leader.acknowledge(0, 3)
    assert follower.acknowledge() == b""
    with pytest.raises(forebay.StaleError):
        leader.encode(1)
    message = forebay.parse_message(everything)
    assert (message.type, message.rank, message.number, message.count) == (MessageType.DECISIONS, None, 1, 3)


def test_a_full_window_names_the_rank_that_lags() -> None:
    leader = Leader(Ranks(2, 0, 7, window=2))
    leader.decide(Decision("stop", tag=1))
    leader.decide(Decision(DecisionKind.RESET))
    leader.acknowledge(0, 2)
    with pytest.raises(forebay.CapacityError, match="rank 1"):
        leader.decide(Decision("stop"))
    leader.acknowledge(1, 1)
    assert leader.decide(Decision("end")) == 3
    leader.acknowledge(1, 3)
    with pytest.raises(forebay.StateError):
        leader.decide(Decision("stop"))


def test_a_decision_that_cannot_be_is_refused() -> None:
    leader = Leader(PAIR)
    with pytest.raises(ValueError, match="decision kind is 'jump'; accepted: load, save"):
        leader.decide(Decision("jump"))
    with pytest.raises(ValueError, match="1 places for 2 blocks"):
        leader.decide(Decision("load", ranges=(BlockRange(0, 0, 2, [64], [0, 1]),)))
    with pytest.raises(forebay.ArgumentError, match="place"):
        leader.decide(Decision("load", ranges=(BlockRange(0, 0, 1, [forebay.NO_PLACE], [0]),)))
    with pytest.raises(forebay.ArgumentError, match="place"):
        leader.decide(Decision("save", ranges=(BlockRange(0, 0, 1, None, [0]),)))
    with pytest.raises(forebay.ArgumentError):
        leader.decide(Decision("stop", extra=bytes(1025)))
    assert leader.next == 1
    with pytest.raises(forebay.ArgumentError):
        Leader(Ranks(2, 0, 0))
    with pytest.raises(forebay.ArgumentError):
        leader.acknowledge(5, 0)


def test_a_changed_message_changes_nothing() -> None:
    leader, follower = Leader(PAIR), Follower(PAIR.of(1))
    leader.decide(load(1, [64]))
    message, _ = leader.encode(1)
    for i in range(len(message)):
        changed = bytearray(message)
        changed[i] ^= 0x40
        with pytest.raises((forebay.ChecksumError, forebay.FormatError, forebay.StaleError)):
            follower.receive(changed)
    with pytest.raises(forebay.FormatError):
        follower.receive(message[:-1])
    with pytest.raises(forebay.FormatError):
        forebay.parse_message(b"")
    assert follower.next() is None
    stranger = Follower(Ranks(2, 1, 8))
    with pytest.raises(forebay.StaleError, match="incarnation"):
        stranger.receive(message)


# ---- Reports and verdicts --------------------------------------------------------------------------------------------


def apart() -> tuple[Leader, list[Follower], int]:
    """A leader and two followers that have the same load to do."""
    leader = Leader(PAIR)
    followers = [Follower(PAIR.of(rank)) for rank in range(2)]
    number = leader.decide(load(42, [64, 128]))
    message, _ = leader.encode(1)
    for follower in followers:
        follower.receive(message)
        decision = follower.next()
        assert decision is not None
        assert decision.number == number
    return leader, followers, number


def test_a_failure_on_one_rank_reaches_all() -> None:
    _, followers, number = apart()
    verdict = Verdict(PAIR, number)
    assert verdict.result() is None
    assert "0" in verdict.waits_for()
    with pytest.raises(OSError, match="1") as caught:
        verdict.encode()
    assert caught.value.errno == errno.EAGAIN
    verdict.receive(followers[0].report(number))
    failed = followers[1].report(number, -2004, [(0, 5)])
    verdict.receive(failed)
    verdict.receive(failed)
    assert verdict.waits_for() == ""
    wanted = (number, -2004, 1, (FailedBlock(0, 5),))
    result = verdict.result()
    assert result is not None
    assert (result.number, result.code, result.rank, result.failed) == wanted
    assert not result.ok
    message = verdict.encode()
    for follower in followers:
        assert follower.result() is None
        follower.receive(message)
        end = follower.result()
        assert end is not None
        assert (end.number, end.code, end.rank, end.failed) == wanted
        assert (end.tag, end.kind) == (42, DecisionKind.LOAD)
        assert follower.result() is None
        with pytest.raises(FileNotFoundError):
            follower.report(number)


def test_a_dead_rank_fails_the_decision_and_every_load_after_it() -> None:
    leader, followers, number = apart()
    verdict = Verdict(PAIR, number)
    verdict.receive(followers[0].report(number))
    verdict.lost(1)
    leader.lost(1)
    result = verdict.result()
    assert result is not None
    assert (result.code, result.rank, result.failed) == (-errno.ECONNRESET, 1, ())
    with pytest.raises(ConnectionResetError, match="rank 1") as caught:
        leader.decide(load(2, [64]))
    assert isinstance(caught.value, forebay.RankLostError)
    assert leader.decide(Decision("release", object=99)) == 2
    with pytest.raises(forebay.StaleError):
        verdict.receive(followers[1].report(number))


def test_a_dead_leader_ends_what_is_open() -> None:
    _, followers, number = apart()
    followers[1].leader_lost()
    followers[1].leader_lost()
    end = followers[1].result()
    assert end is not None
    assert (end.number, end.code, end.rank, end.failed) == (number, -errno.EOWNERDEAD, None, ())
    with pytest.raises(forebay.LeaderLostError):
        followers[1].next()
