"""Processes: fork, interpreter exit with live objects, flat memory and descriptors, the command, the examples."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forebay
import pytest
from conftest import BLOCK_BYTES, PATIENT, TENTH, Maker, ServerMaker, content, fill, in_child, prompt, settings

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
LIMIT_S = 60


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_is_refused_and_may_open_its_own(open_cache: Maker) -> None:
    cache = open_cache()
    sequence = fill(cache, 2)
    session, hold, put, events = cache.start(sequence), cache.lookup(sequence), cache.put(sequence), cache.subscribe()
    views, others = hold.slots(), cache.lookup(sequence).slots()

    def story() -> None:
        for call in (
            session.poll, session.wait, session.demand, session.release, hold.slots, hold.release, put.commit,
            put.abort, events.next, cache.stats, cache.close, lambda: cache.start(sequence),
            lambda: cache.progress([session]), lambda: cache.sequence([1]),
        ):  # fmt: skip
            with pytest.raises(forebay.ForkedError):
                call()
        assert others[1] is not None
        assert others[1].nbytes == BLOCK_BYTES  # close was refused before it revoked anything
        events.unsubscribe()
        with forebay.Cache(settings()) as own:
            fill(own, 2)
        gc.collect()

    assert in_child(story) == 0
    assert views[1] == content(1)
    assert cache.stats()["holds_gauge"] == 2
    assert session.wait(TENTH).answered
    hold.release()


def python(code: str, *arguments: str, limit: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Runs a program with the tests' helpers in reach."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error::ResourceWarning:__none__", "-c", code, *arguments],
        env=environment, capture_output=True, text=True, timeout=limit, check=False,
    )  # fmt: skip


LIVE = """
import threading, sys, os, forebay
from conftest import PATIENT, settings, fill, prompt
sections = {"store": {"driver": "mem", "options": {"script": "get:*:hang"}}, "prefetch": PATIENT}
sections["store"]["host"] = HOST if HOST != "served" else "inline"
cache = forebay.connect(sys.argv[1]) if HOST == "served" else forebay.Cache(settings(**sections))
sequence = fill(cache, 4)
kept = cache.lookup(sequence)
cache.reset(0)
session = cache.start(sequence)
fill(cache, 1, seed=9)
hold = cache.lookup(cache.sequence(prompt(1, seed=9)))
put = cache.put(cache.sequence(prompt(2, seed=8)))
events = cache.subscribe()
"""
ENDINGS = {
    "plain": "",
    "a daemon waits": "threading.Thread(target=session.wait, daemon=True).start()",
    "many daemons wait": "[threading.Thread(target=session.wait, daemon=True).start() for _ in range(16)]",
    "views are alive": "view = hold.slots()[0][:10]; other = put.slots()[0]",
    "an exception": "views = hold.slots(); 1 / 0",
    "sys.exit": "sys.exit(3)",
    "a cycle": "cycle = [session, hold, put, events]; cycle.append(cycle); del session, hold, put, events, cache",
    "a fork's child": "child = os.fork()\nif child: os.waitpid(child, 0)",
    "a daemon polls": "def poll():\n    while True: session.poll()\nthreading.Thread(target=poll, daemon=True).start()",
}


@pytest.mark.parametrize("host", ["inline", "thread", "agent", "served"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_with_live_objects(ending: str, host: str, start_server: ServerMaker) -> None:
    hanging = {"driver": "mem", "options": {"script": "get:*:hang"}}
    path = str(start_server(store=hanging, prefetch=PATIENT).path) if host == "served" else ""
    done = python(f"HOST = {host!r}\n" + LIVE + ENDINGS[ending] + "\nprint('end', flush=True)", path)
    wanted = {"an exception": 1, "sys.exit": 3}.get(ending, 0)
    assert done.returncode == wanted, done.stderr
    assert ("ZeroDivisionError" in done.stderr) == (ending == "an exception")
    assert "Fatal" not in done.stderr


INTERRUPTED = """
import signal
def interrupt():
    main = threading.main_thread().ident
    while "lambda" not in sys._current_frames()[main].f_code.co_name:  # the call into the library
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    session.wait()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_keyboard_interrupt_ends_a_wait() -> None:
    done = python("HOST = 'inline'\n" + LIVE + INTERRUPTED)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


# ---- Leaks -----------------------------------------------------------------------------------------------------------


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def flat(rounds: int, call: Callable[[], object], warm_up: int = 100, room_kib: int = 1024) -> None:
    """After a warm-up, which touches tables and pool, rounds cost neither memory nor descriptors nor Python objects."""
    for _ in range(warm_up):
        call()
    gc.collect()
    memory, files, objects = resident_kib(), descriptors(), len(gc.get_objects())
    for _ in range(rounds):
        call()
    gc.collect()
    assert resident_kib() - memory < room_kib
    assert descriptors() == files
    assert abs(len(gc.get_objects()) - objects) < 100


def test_a_million_polls_leak_nothing(open_cache: Maker) -> None:
    cache = open_cache()
    with cache.start(fill(cache, 4)) as session:
        session.wait(TENTH)
        flat(1_000_000, session.poll)


def test_ten_thousand_sessions_leak_nothing(open_cache: Maker) -> None:
    cache = open_cache()
    fill(cache, 4)

    def story() -> None:
        with cache.start(cache.sequence(prompt(4)), label="leak") as session:
            session.fileno()
            session.wait(TENTH)
            with session.take() as hold:
                hold.slots()

    flat(10_000, story, warm_up=5_000)  # the table has 4,096 places
    stats = cache.stats()
    assert (stats["holds_gauge"], stats["leases_gauge"], stats["sessions_running_gauge"]) == (0, 0, 0)


def test_puts_events_and_errors_leak_nothing(open_cache: Maker) -> None:
    cache = open_cache(store={"write": "off"})  # or the store, which is in this process, would grow
    number = iter(range(10**9))

    def story() -> None:
        with cache.subscribe(8) as events, cache.put(cache.sequence([next(number)] * 16)) as put:
            put.slots()
            put.commit()
            list(events)
            with pytest.raises(forebay.StateError):
                put.commit()

    flat(3_000, story, warm_up=5_000)


def test_ranks_leak_nothing(open_cache: Maker) -> None:
    cache = open_cache()
    memory = bytearray(4 * BLOCK_BYTES)
    layout = forebay.Layout("packed", 1, (forebay.Tensor(memory),), 4, BLOCK_BYTES)
    with cache.lookup(fill(cache, 4)) as hold:

        def story() -> None:
            with forebay.Rank.attach_cache(cache, threads=2) as rank:
                rank.register(0, layout, offset=0, size=BLOCK_BYTES)
                for _ in range(4):
                    assert rank.load(0, hold.places(), range(4), verify=True).wait().error == 0

        flat(500, story)


def test_caches_leak_nothing() -> None:
    def story() -> None:
        with forebay.Cache(settings()) as cache:
            fill(cache, 2)

    flat(100, story, warm_up=20)


# ---- Programs --------------------------------------------------------------------------------------------------------


def test_the_command_is_in_the_package() -> None:
    command = Path(sys.executable).parent / "forebay"
    if not command.exists():
        pytest.skip("the package is not installed here, so the command is not either")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert forebay.__version__ in version.stdout
    wrong = subprocess.run([command, "nonsense"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert wrong.returncode == 2
    demo = subprocess.run(
        [command, "demo", "--json", "--store", "mem@agent"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("quickstart.py", "prefetched 512 of 513 tokens, every byte as stored"),
        ("asyncio_prefetch.py", "16 requests, 2048 tokens delivered, every byte as stored"),
        ("served.py", "delivered 512 tokens to example"),
    ],
)
def test_examples_run(name: str, line: str) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert line in done.stdout
    assert time.monotonic() - started < LIMIT_S
