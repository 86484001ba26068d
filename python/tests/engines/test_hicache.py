"""HiCache backend, driven as SGLang's threads drive it, over toy host pools."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from conftest import TENTH, ServerMaker, until
from forebay.engines.common.keyed import keyed_model
from forebay.engines.hicache import complaints
from forebay.engines.hicache.backend import Backend
from forebay.engines.hicache.config import read_settings
from forebay.engines.hicache.naming import Facts, fields_of
from forebay.engines.hicache.pools import HostPool, PoolError
from host_pools import LogicalPool, Policy, ToyHostPool, rows, storage_config, transfer

FACTS = Facts("toy", "1", "auto", "0.5")
NAMES = [f"{i:064x}" for i in range(40)]
LIMITS = {"query_limit_s": 1.0, "get_limit_s": 1.0, "set_limit_s": 1.0}  # ends a call on a store that hangs
# Nothing but those limits ends what hangs; a stop is answered at once.
PATIENT = {
    "prefetch": {"io_timeout_s": 1000, "no_progress_timeout_s": 1000, "query_timeout_s": 1000, "drain_limit_s": 0},
    "log": {"level": "off"},
}

Maker = Callable[..., Backend]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Opens backends with pools by name, and closes them."""
    monkeypatch.setattr("forebay.engines.hicache.backend.CLOSE_LIMIT_S", 0.5)
    made: list[Backend] = []

    def open_one(store: str, *, kv: Any = None, changes: dict[str, Any] | None = None, **pools: Any) -> Backend:
        settings = read_settings({"interface_v1": 1, "store": store, "pool_bytes": "1MiB"} | (changes or {}))
        backend = Backend(settings, storage_config(), FACTS, lambda n: list(range(n)))
        made.append(backend)
        backend.add_pool("kv", ToyHostPool() if kv is None else kv)
        for name, pool in pools.items():
            backend.add_pool(name, pool)
        backend.open()
        return backend

    yield open_one
    for backend in made:
        backend.close()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was complained of."""
    complaints._own._last.clear()
    caplog.set_level(logging.WARNING, "sglang.forebay.hicache")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "sglang.forebay.hicache"]


def hang(operation: str) -> str:
    return f"fault:mem:script={operation}:*:hang"


def test_pages_come_back_after_a_restart_through_the_hosts_own_memory(make: Maker, tmp_path: Path) -> None:
    pool = ToyHostPool()
    first = make(f"file:{tmp_path}", kv=pool)
    written = [pool.fill(page, page) for page in range(20)]
    assert first.hits(NAMES, ()).pages == 0
    assert first.set("kv", NAMES[:20], rows(*range(20))) == [True] * 20
    assert first.hits(NAMES, ()).pages == 20
    first.close()
    pool = ToyHostPool()
    second = make(f"file:{tmp_path}", kv=pool)
    assert second.hits(NAMES, ()).pages == 20
    assert second.get("kv", NAMES[5:9], rows(3, 1, 2, 40)) == [True] * 4
    assert [pool.page(page) for page in (3, 1, 2, 40)] == written[5:9]
    assert pool.page(0) == bytes(len(written[0]))


def test_never_more_is_claimed_than_was_read(make: Maker, said: Callable[[], list[str]]) -> None:
    pool = ToyHostPool()
    backend = make("fault:mem:script=get:*:times=1:corrupt(9)", kv=pool)
    written = [pool.fill(page, page) for page in range(3)]
    assert backend.set("kv", NAMES[:3], rows(0, 1, 2)) == [True] * 3
    assert backend.get("kv", NAMES[:4], rows(10, 11, 12, 13)) == [True, True, True, False]  # of the pool
    shelf = backend._shelves["kv"]
    shelf.pages.forget()
    until(lambda: shelf.cache.reset(TENTH))
    done = backend.get("kv", NAMES[:3], rows(20, 21, 22))
    assert done.count(False) >= 1
    for page, (came, wanted) in enumerate(zip(done, written, strict=True)):
        assert not came or pool.page(20 + page) == wanted
    assert done == sorted(done, reverse=True)  # a leading run
    assert said() == []


def test_a_read_that_hangs_is_a_miss_in_time_and_host_memory_stays(make: Maker) -> None:
    pool = ToyHostPool()
    backend = make(hang("get"), kv=pool, changes=LIMITS | {"config": PATIENT})
    pool.fill(0, 1)
    assert backend.set("kv", NAMES[:1], rows(0)) == [True]
    backend._shelves["kv"].pages.forget()
    until(lambda: backend._shelves["kv"].cache.reset(TENTH))
    before = bytes(pool.memory)
    assert backend.hits(NAMES[:1], ()).pages == 1  # the store says that it is there
    assert backend.get("kv", NAMES[:1], rows(7)) == [False]
    assert bytes(pool.memory) == before


def test_a_question_or_a_write_that_hangs_is_no_in_time(make: Maker) -> None:
    backend = make(hang("exists"), changes=LIMITS | {"config": PATIENT})
    assert backend.hits(NAMES, ()).pages == 0
    backend = make(hang("put"), changes=LIMITS | {"config": PATIENT})
    assert backend.set("kv", NAMES, rows(*range(40))) == [False] * 40


def test_a_read_that_ends_late_is_never_written_to_host_memory(make: Maker) -> None:
    pool = ToyHostPool()
    backend = make("fault:mem:script=get:*:delay(400)", kv=pool, changes=LIMITS | {"get_limit_s": 0.05})
    pool.fill(0, 1)
    assert backend.set("kv", NAMES[:1], rows(0)) == [True]
    cache = backend._shelves["kv"].cache
    until(lambda: cache.reset(TENTH))
    before = bytes(pool.memory)
    assert backend.get("kv", NAMES[:1], rows(7)) == [False]
    until(lambda: cache.health().oldest_operation_ns == 0 and cache.stats()["inflight_graphs_gauge"] == 0)
    assert bytes(pool.memory) == before


def test_pools_of_other_sizes_have_pages_of_their_own(make: Maker, tmp_path: Path) -> None:
    def opened() -> tuple[Backend, ToyHostPool, ToyHostPool]:
        kv, swa = ToyHostPool(), ToyHostPool(row_bytes=16)
        return make(f"file:{tmp_path}", kv=kv, swa=swa), kv, swa

    backend, kv, swa = opened()
    written = [(kv.fill(page, page), swa.fill(page, 50 + page)) for page in range(6)]
    assert backend.set("kv", NAMES[:6], rows(*range(6))) == [True] * 6
    window = transfer("swa", NAMES[2:6], Policy.TRAILING_PAGES, rows(2, 3, 4, 5))
    assert backend.move_all([window], is_backup=True) == {"swa": [True] * 4}
    backend.close()
    backend, kv, swa = opened()
    hits = backend.hits(NAMES, [transfer("swa", NAMES[:2], Policy.TRAILING_PAGES)])
    assert (hits.pages, hits.by_pool, hits.restorable) == (6, {"kv": 6, "swa": 6}, [4, 5, 6])
    both = [transfer("kv", NAMES[:6], indices=rows(*range(6))), transfer("swa", NAMES[4:6], indices=rows(8, 9))]
    assert backend.move_all(both, is_backup=False) == {"kv": [True] * 6, "swa": [True] * 2}
    assert [kv.page(page) for page in range(6)] == [one for one, _ in written]
    assert [swa.page(8), swa.page(9)] == [written[4][1], written[5][1]]


def test_a_pool_that_comes_later_is_served(make: Maker) -> None:
    backend, draft = make("mem"), ToyHostPool(row_bytes=32)
    backend.add_pool("draft", draft)
    page = draft.fill(0, 3)
    assert backend.set("draft", NAMES[:1], rows(0)) == [True]
    assert backend.get("draft", NAMES[:1], rows(5)) == [True]
    assert draft.page(5) == page


def test_an_anchor_without_bytes_is_there_and_its_pools_decide(make: Maker) -> None:
    c4 = ToyHostPool()
    backend = make("mem", kv=LogicalPool(), deepseek_v4_c4=c4)
    c4.fill(0, 1)
    assert backend.set("kv", NAMES[:3], rows(0, 1, 2)) == [True] * 3
    assert backend.set("deepseek_v4_c4", NAMES[:2], rows(0, 1)) == [True] * 2
    assert backend.hits(NAMES[:3], [transfer("deepseek_v4_c4", NAMES[:3])]).pages == 2
    assert backend.get("kv", NAMES[:3], rows(0, 1, 2)) == [True] * 3


def test_no_exception_reaches_sglangs_threads(make: Maker, said: Callable[[], list[str]]) -> None:
    backend = make("mem")
    assert backend.get("nothing", NAMES[:2], rows(0, 1)) == [False, False]
    assert backend.set("kv", NAMES[:2], None) == [False, False]
    assert backend.set("kv", NAMES[:2], rows(0)) == [False, False]
    odd = transfer("kv", NAMES[:1])
    odd.hit_policy = "some"
    assert backend.hits(NAMES[:1], [odd]).pages == 0
    assert backend.set("kv", NAMES[:1], rows(0)) == [True]
    assert backend.hits(NAMES[:1], [odd]).pages == 0
    assert backend.get("kv", NAMES[:1], rows(8, 9)[1:5]) == [False]  # begins inside of a page
    assert backend.move_all([transfer("kv", []), transfer("x", NAMES[:1])], is_backup=True) == {"kv": [], "x": [False]}
    backend.close()
    assert backend.get("kv", NAMES[:1], rows(0)) == [False]
    assert backend.hits(NAMES, ()).pages == 0
    assert len(said()) == len(set(said()))  # each kind once
    assert any("reading pages failed, the engine goes on without: KeyError" in line for line in said())


def test_clear_makes_what_was_stored_unreachable(make: Maker, tmp_path: Path) -> None:
    backend = make(f"file:{tmp_path}")
    assert backend.set("kv", NAMES[:2], rows(0, 1)) == [True, True]
    backend.clear()
    assert backend.hits(NAMES, ()).pages == 0
    assert backend.set("kv", NAMES[:1], rows(0)) == [True]
    assert backend.hits(NAMES, ()).pages == 1
    backend.close()
    again = make(f"file:{tmp_path}")  # at the epoch that the directory keeps
    assert again.hits(NAMES, ()).pages == 1
    again.clear()
    again.close()
    with pytest.raises(forebay.StaleError, match="weights epoch 1 is below 2"):
        make(f"file:{tmp_path}", changes={"config": {"model": {"weights_epoch": 1}}})


def test_a_slow_question_leaves_time_for_the_pools_behind_it(make: Maker) -> None:
    kv, swa = ToyHostPool(), ToyHostPool(row_bytes=16)
    backend = make("mem:latency_ms=20", kv=kv, swa=swa, changes={"query_limit_s": 1.0, "read_ahead": False})
    names = [f"{i:064x}" for i in range(1000)]  # more than there is time for
    for pool in ("kv", "swa"):
        for first in range(0, 40, 20):
            assert all(backend.set(pool, names[first : first + 20], rows(*range(20))))
        until(lambda pool=pool: backend._shelves[pool].cache.reset(TENTH))  # type: ignore[misc]
    asked: list[tuple[str, float]] = []
    for name, shelf in backend._shelves.items():
        exists = shelf.pages.exists

        def spy(keys: Any, size: int, limit_s: float, name: str = name, exists: Any = exists, **options: Any) -> Any:
            asked.append((name, limit_s))
            return exists(keys, size, limit_s, **options)

        shelf.pages.exists = spy  # type: ignore[method-assign]
    backend.hits(names, [transfer("swa", names, Policy.ALL_PAGES)])
    assert [name for name, _ in asked] == ["kv", "swa"]
    assert asked[0][1] <= 0.5 < asked[1][1] + 0.1


def test_figures_count_pages_that_moved(make: Maker) -> None:
    backend = make("mem")
    backend.set("kv", NAMES[:4], rows(0, 1, 2, 3))
    backend.get("kv", NAMES[:6], rows(*range(6)))
    made = backend.figures()
    assert (made.backup_pages, made.prefetch_pages) == ([4], [4])
    assert made.prefetch_gib_s[0] > 0
    assert backend.figures().prefetch_pages == []


def test_three_threads_work_at_once(make: Maker) -> None:
    pool = ToyHostPool()
    backend, failures = make("mem", kv=pool), list[str]()
    pages = {thread: range(thread * 20, thread * 20 + 10) for thread in range(3)}

    def work(thread: int) -> None:
        mine, targets = pages[thread], [page + 10 for page in pages[thread]]
        for turn in range(5):
            names = [f"{thread}-{turn}-{page}" for page in mine]
            written = [pool.fill(page, thread * 50 + turn * 7 + page) for page in mine]
            if not all(backend.set("kv", names, rows(*mine))) or backend.hits(names, ()).pages != 10:
                failures.append("not stored")
            if not all(backend.get("kv", names, rows(*targets))):
                failures.append("not there")
            if [pool.page(page) for page in targets] != written:
                failures.append("other bytes")

    threads = [threading.Thread(target=work, args=(thread,)) for thread in pages]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []


# ---- What is refused at start-up ----


def test_too_small_a_pool_is_refused_with_what_it_needs(make: Maker) -> None:
    with pytest.raises(PoolError, match=r"holds \d+ pages of host pool kv; accepted: at least 16, \d+ bytes"):
        make("mem", changes={"pool_bytes": "8KiB"})


def test_a_layout_without_addresses_is_refused() -> None:
    class Split(ToyHostPool):
        layout = "page_first_kv_split"

        def get_page_buffer_meta(self, indices: Any) -> Any:
            raise ValueError(f"Unsupported layout: {self.layout} {len(indices)}")

    with pytest.raises(PoolError, match=r"host pool kv .Split, layout page_first_kv_split. have no addresses"):
        HostPool("kv", Split(), lambda n: list(range(n)))


def test_pages_that_all_ranks_share_need_a_store_that_they_share(tmp_path: Path) -> None:
    settings = read_settings({"interface_v1": 1, "store": f"file:{tmp_path}", "pool_bytes": "1MiB"})
    config = storage_config(is_mla_model=True, tp_rank=1, tp_size=2)
    backend = Backend(settings, config, FACTS, lambda n: list(range(n)))
    backend.add_pool("kv", ToyHostPool())
    with pytest.raises(PoolError, match=r"same on all 2 ranks.*store file belongs to one process; accepted: a server"):
        backend.open()


def test_ranks_have_directories_and_pages_of_their_own(tmp_path: Path) -> None:
    settings = read_settings({"interface_v1": 1, "store": f"file:{tmp_path}", "pool_bytes": "1MiB"})
    backends = []
    for rank in (0, 1):
        backend = Backend(settings, storage_config(tp_rank=rank, tp_size=2), FACTS, lambda n: list(range(n)))
        backend.add_pool("kv", ToyHostPool())
        backend.open()
        backends.append(backend)
    assert backends[0].set("kv", NAMES[:1], rows(0)) == [True]
    assert (backends[0].hits(NAMES, ()).pages, backends[1].hits(NAMES, ()).pages) == (1, 0)
    for backend in backends:
        backend.close()


# ---- Over a server ----


def test_a_server_outlives_the_engine_and_its_absence_is_a_miss(
    start_server: ServerMaker, said: Callable[[], list[str]]
) -> None:
    pool, config = ToyHostPool(), storage_config()
    host = HostPool("kv", pool, lambda n: list(range(n)))
    fields = fields_of(FACTS, config, "kv", pool, host.sizes)
    server = start_server(model=keyed_model(fields, host.page_bytes).section())

    def opened() -> Backend:
        settings = read_settings({"interface_v1": 1, "server": str(server.path)})
        backend = Backend(settings, config, FACTS, lambda n: list(range(n)))
        backend.add_pool("kv", pool)
        backend.open()
        return backend

    first = opened()
    page = pool.fill(0, 9)
    assert first.set("kv", NAMES[:1], rows(0)) == [True]
    first.close()
    second = opened()
    assert second.hits(NAMES, ()).pages == 1
    assert second.get("kv", NAMES[:1], rows(5)) == [True]
    assert pool.page(5) == page
    server.kill()
    assert second.hits(NAMES[1:], ()).pages == 0
    assert second.get("kv", NAMES[1:2], rows(6)) == [False]
    assert second.set("kv", NAMES[1:2], rows(6)) == [False]
    with pytest.raises(forebay.ForebayError):  # SGLang tells its caller by the exception that nothing was cleared
        second.clear()
    second.close()
    assert len(said()) == len(set(said()))


def test_a_server_of_another_model_is_refused_with_the_section_it_needs(start_server: ServerMaker) -> None:
    server = start_server()
    settings = read_settings({"interface_v1": 1, "server": str(server.path)})
    backend = Backend(settings, storage_config(), FACTS, lambda n: list(range(n)))
    backend.add_pool("kv", ToyHostPool())
    with pytest.raises(ValueError, match=r'has another model .*accepted: a server with this section.*"value"'):
        backend.open()
    backend.add_pool("swa", ToyHostPool(row_bytes=16))
    with pytest.raises(PoolError, match="a server has pages of one size, and this model has pools kv, swa"):
        backend.open()
