"""Views: what they keep alive, and when they are revoked."""

from __future__ import annotations

import gc

import forebay
import pytest
from conftest import BLOCK_BYTES, TENTH, Maker, content, contents, fill, prompt, settings


@pytest.fixture
def cache(open_cache: Maker) -> forebay.Cache:
    return open_cache()


def test_views_of_a_hold_are_read_only_and_copy_nothing(cache: forebay.Cache) -> None:
    sequence = fill(cache, 2)
    with cache.lookup(sequence) as one, cache.lookup(sequence) as other:
        mine, theirs = one.slots()[1], other.slots()[1]
        assert mine is not None
        assert theirs is not None
        assert (mine.readonly, mine.format, mine.shape, mine.nbytes) == (True, "B", (BLOCK_BYTES,), BLOCK_BYTES)
        with pytest.raises(TypeError):
            mine[0] = 1
        assert one.addresses() == other.addresses()
        assert mine == theirs == content(1)


def test_release_revokes_views(cache: forebay.Cache) -> None:
    hold = cache.lookup(fill(cache, 2))
    views = hold.slots()
    hold.release()
    assert cache.stats()["holds_gauge"] == 0
    with pytest.raises(ValueError, match="released"):
        bytes(views[0] or b"")


def test_a_slice_keeps_the_protection_after_release(cache: forebay.Cache) -> None:
    hold = cache.lookup(fill(cache, 2))
    first = hold.slots()[0]
    assert first is not None
    part = first[4:8]
    del first
    hold.release()
    hold.release()
    assert cache.stats()["holds_gauge"] == 1
    assert part == content(0)[4:8]
    copy = memoryview(part)
    del part
    assert cache.stats()["holds_gauge"] == 1
    del copy
    assert cache.stats()["holds_gauge"] == 0


def test_a_dropped_hold_lives_as_long_as_its_views(cache: forebay.Cache) -> None:
    views = cache.lookup(fill(cache, 2)).slots()
    assert cache.stats()["holds_gauge"] == 1
    assert views[1] == content(1)
    views.clear()
    assert cache.stats()["holds_gauge"] == 0


def test_trim_refuses_while_a_slice_is_alive(cache: forebay.Cache) -> None:
    with cache.lookup(fill(cache, 4)) as hold:
        views = hold.slots()
        assert views[3] is not None
        part = views[3][:8]
        with pytest.raises(BufferError, match="slices"):
            hold.trim(16)
        assert hold.tokens == 64
        assert part == content(3)[:8]
        del part
        assert hold.trim(16) == 16
        assert hold.slots() == [content(0)]


def test_commit_refuses_what_could_change_published_bytes(cache: forebay.Cache) -> None:
    with cache.put(cache.sequence(prompt(2))) as put:
        put.copy_from(contents(2))
        views = put.slots()
        assert views[0] is not None
        assert not views[0].readonly
        part = views[0][:8]
        with pytest.raises(BufferError, match="commit"):
            put.commit()
        del part
        assert put.commit().published == 2
        with pytest.raises(ValueError, match="released"):
            views[0][0] = 1


def test_an_aborted_put_keeps_its_slots_for_a_slice(cache: forebay.Cache) -> None:
    put = cache.put(cache.sequence(prompt(2)))
    first = put.slots()[0]
    assert first is not None
    part = first[:8]
    del first
    put.abort()
    assert cache.stats()["puts_gauge"] == 1
    part[:] = b"harmless"
    del part
    assert cache.stats()["puts_gauge"] == 0


def test_close_refuses_while_a_slice_is_alive(cache: forebay.Cache) -> None:
    hold = cache.lookup(fill(cache, 2))
    first = hold.slots()[0]
    assert first is not None
    part = first[:8]
    with pytest.raises(BufferError, match="drop those"):
        cache.close()
    assert not cache.closed
    assert part == content(0)[:8]
    del part, first
    cache.close(TENTH)
    assert cache.closed


def test_an_exception_that_keeps_views_does_not_hide(cache: forebay.Cache) -> None:
    parts: list[memoryview] = []
    with pytest.raises(ZeroDivisionError), cache:  # noqa: PT012
        view = cache.lookup(fill(cache, 2)).slots()[0]
        assert view is not None
        parts.append(view[:4])
        raise ZeroDivisionError
    assert not cache.closed
    assert parts == [content(0)[:4]]
    parts.clear()
    view = None
    gc.collect()
    cache.close(TENTH)


def test_copies_check_their_buffers(cache: forebay.Cache) -> None:
    sequence = fill(cache, 2)
    with cache.lookup(sequence) as hold:
        with pytest.raises(ValueError, match="accepted: at least 2048 bytes"):
            hold.copy_to(bytearray(2047))
        with pytest.raises(ValueError, match="do not fit"):
            hold.copy_to(bytearray(4096), offset=-1)
        with pytest.raises((TypeError, BufferError)):
            hold.copy_to(bytes(4096))
        with pytest.raises(forebay.ArgumentError):
            hold.copy_to(bytearray(4096), start=1, stop=3)
        with pytest.raises(ValueError, match="accepted"):
            hold.slots(0, 2, 1)
    with cache.put(cache.sequence(prompt(2, seed=1))) as put, pytest.raises(ValueError, match="do not fit"):
        put.copy_from(b"short")
    with pytest.raises(forebay.StaleError):
        hold.copy_to(bytearray(4096))


def test_many_views_of_one_hold_do_not_pile_up(cache: forebay.Cache) -> None:
    with cache.lookup(fill(cache, 4)) as hold:
        for _ in range(1000):
            hold.slots()
        pin = hold._pin
        assert pin is not None
        assert len(pin._views) <= 128


def test_a_forgotten_cache_closes_itself() -> None:
    cache = forebay.Cache(settings())
    sequence = fill(cache, 2)
    view = cache.lookup(sequence).slots()[0]
    del cache, sequence
    assert view == content(0)
    with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031
        del view
        gc.collect()
