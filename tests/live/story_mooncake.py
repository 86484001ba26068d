#!/usr/bin/env python3
"""What a cache does when a real Mooncake fails under it: master and storage node killed, restarted, stopped; agents
killed; a slow network; a full store; objects that go between query and read.

    story_mooncake.py LIVE_PROBE [WORD...]     only cases whose names contain a word

Mooncake's nodes tell each other where they listen, so that nothing can stand in between: the network is slowed by
traffic control inside the network namespace of with-store.
"""
import contextlib
import os
import signal
import subprocess
import sys
import urllib.request

import live
from live import COLD, WARM, check, ends, equal

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
SLOW_MBIT = 128  # the cold prompt takes a second
LEASE_MS, CLIENT_TTL_S = 3000, 3
ONE_BY_ONE = {"prefetch.chunk_max_blocks": 4, "prefetch.max_inflight_chunks": 1}


def environment(name):
    return os.environ["FOREBAY_WITH_STORE_" + name]


def page(path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{environment('METRICS')}{path}", timeout=5) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def slow_network(mbit=SLOW_MBIT):
    """Everything on loopback, the master's answers included, shares this rate."""
    if environment("ISOLATED") != "1":
        raise live.Skip("no network namespace of its own: loopback must not be slowed")
    set_rate = ["tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb",
                "limit", "64mb"]
    try:
        done = subprocess.run(set_rate, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise live.Skip("there is no tc (Debian package: iproute2)") from None
    if done.returncode != 0:
        raise live.Skip(f"traffic control is refused: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


class Peer:
    """A second client of the same store."""

    def __init__(self, master):
        self.process = subprocess.Popen([os.environ["MOONCAKE_PYTHON"], os.path.join(os.path.dirname(__file__) or ".",
                                        "mooncake_peer.py"), master], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1)
        equal(self.process.stdout.readline().strip(), "0", "set-up of the second client")

    def __call__(self, verb, key):
        self.process.stdin.write(f"{verb} {key}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_problem):
        self.process.kill()
        self.process.wait()


class Story:
    def __init__(self):
        self.store = os.environ["FOREBAY_STORE"]
        options = dict(option.split("=", 1) for option in self.store.partition(":")[2].split(","))
        self.master_address = options["master"]
        self.master = live.Server(environment("MASTER_PID"), environment("MASTER_COMMAND"))
        self.node = live.Server(environment("NODE_PID"), environment("NODE_COMMAND"))
        self.worlds = self.stored = 0

    def world(self, **settings):
        """With keys of its own: Mooncake keeps the first value of a key."""
        if not self.segments():  # the case before this one failed
            self.restart_master()
        self.worlds += 1
        return live.World(PROGRAM, f"{self.store},prefix=w{self.worlds}/", **settings)

    def key(self, world, prompt, blocks, block):
        return f"w{self.worlds}/" + world.main.keys(prompt=prompt, blocks=blocks)["keys"][block]

    @staticmethod
    def segments():
        """What the master believes storage nodes offer; nothing while it is away."""
        try:
            return set(page("/get_all_segments").split())
        except OSError:
            return set()

    def node_serves(self):
        """A second client brings something to the node."""
        self.stored += 1
        with Peer(self.master_address) as peer:
            return peer("put", f"peer/{self.stored}") == 0

    def restart_master(self):
        self.master.restart()
        live.await_true(self.segments, "the node to come back to the master", 30)

    def restart_node(self):
        before = self.segments()
        self.node.restart()
        live.await_true(lambda: self.segments() - before, "the new node at the master", 30)

    def end(self):
        self.node.end()
        self.master.end()

    # ---- All is well ----

    def case_delivers(self):
        with self.world() as w:
            w.main.delivers("cold", COLD)
            w.unaffected()

    def case_slow_network(self):
        with self.world() as w:
            with slow_network():
                answer = w.main.session("cold", COLD).answer(limit_s=30)
                ends(answer, "complete", COLD)
            check(answer["life_s"] > 0.5, f"the network was not slow: {answer['life_s']} s")

    # ---- The master ----

    def case_master_killed_while_reading(self):
        with self.world() as w:
            with slow_network():
                session = w.main.session("cold", COLD)
                session.await_progress(8)
                self.master.kill()
                ends(session.answer(), ("query_error", "store_error", "io_timeout"), (8, COLD - 1))
            w.unaffected()
            self.restart_master()
            w.refills(40)

    def case_master_killed_while_idle(self):
        with self.world() as w:
            self.master.kill()
            ends(w.main.session("cold", COLD).answer(), "query_error", 0)
            w.unaffected()
            self.restart_master()
            w.refills(40)

    def case_master_restarted_and_empty(self):
        """It forgets all: sessions miss, what is resident stays, puts store again."""
        with self.world() as w:
            self.restart_master()
            live.await_true(lambda: w.main.session("cold", COLD).answer()["reason"] == "complete", "queries again", 30)
            w.main.empty()
            ends(w.main.session("cold", COLD).answer(), "complete", 0)
            w.refills(40)

    def case_master_stopped(self):
        with self.world() as w:
            with self.master.stopped():
                ends(w.main.session("cold", COLD).answer(), "query_error", 0)
                w.unaffected()
                w.untouched(self.master.go_on, self.segments)
            w.recovers()

    # ---- The storage node ----
    # One that stood still for longer than its time to live is forgotten with all it holds: the prompt is put again.

    def case_node_killed_while_reading(self):
        with self.world() as w:
            with slow_network():
                session = w.main.session("cold", COLD)
                session.await_progress(8)
                self.node.kill()
                ends(session.answer(), ("store_error", "io_timeout"), (8, COLD - 1))
            w.unaffected()
            self.restart_node()
            w.refills(50)

    def case_node_stopped_while_reading(self):
        with self.world() as w:
            with slow_network():
                session = w.main.session("cold", COLD)
                session.await_progress(8)
                self.node.stop()
            try:
                ends(session.answer(), "io_timeout", (8, COLD - 1))
                w.unaffected()
                w.untouched(self.node.go_on, self.node_serves)
            finally:
                self.node.go_on()
            w.refills()

    def case_node_stopped_before_the_read(self):
        """Queries go on while reads hang, and are answered."""
        with self.world() as w:
            w.main.fill("beside", 16)
            w.main.empty()
            with self.node.stopped():
                hung = w.main.session("cold", COLD)
                live.await_true(lambda: hung.poll()["inflight_chunks"], "a read")
                beside = w.main.session("beside", 16)
                seen = live.await_such(beside.poll, lambda s: s["found_tokens"], "the answer to a query")
                equal((seen["found_tokens"], seen["answered"], hung.poll()["answered"]), (16 * live.BLOCK_TOKENS, 0, 0),
                      "found beside a read that hangs, and answered")
                ends(hung.answer(), "io_timeout", 0)
                ends(beside.answer(limit_s=2 * w.main.longest_s), ("io_timeout", "store_error", "partial_read"), 0)
                w.untouched(self.node.go_on, self.node_serves)
            w.refills()

    def case_node_stopped_while_writing(self):
        with self.world() as w:
            with self.node.stopped():
                put = w.main.put(prompt="new", blocks=16)
                equal(w.main.resident("new", 16), 16, "blocks of the put")
                w.unaffected()
                done = w.probe.ask("stored", put=put["put"], limit=40)
                equal((done["stored"], done["failed"]), (0, 16), "objects stored and failed")
                w.untouched(self.node.go_on, self.node_serves)
            w.refills()

    def case_writes_that_hang_do_not_delay_reads(self):
        """A second node takes some of the writes and is stopped; the cold prompt lies on the first one."""
        with self.world() as w, self.second_node() as second:
            with second.stopped():
                put = w.main.put(prompt="new", blocks=32)
                w.main.delivers("cold", COLD)
                equal(w.probe.reply("stored", put=put["put"], limit=0)["status"], "ETIMEDOUT", "the writes meanwhile")
                done = w.probe.ask("stored", put=put["put"], limit=40)
                equal(done["stored"] + done["failed"], 32, "objects stored or failed")
                check(done["failed"] > 0, "no write met the node that is stopped")
            w.refills()

    @contextlib.contextmanager
    def second_node(self):
        port = [word for word in self.node.command.split() if word.startswith("--port=")][0]
        node = live.Server(None, self.node.command.replace(port, f"--port={int(port[7:]) % 30000 + 20000}"))
        before = self.segments()
        node.restart()
        try:
            live.await_true(lambda: self.segments() - before, "the second node")
            yield node
        finally:
            node.end()
            live.await_true(lambda: self.segments() == before, "its end to be seen", 30)

    # ---- The agents ----

    def case_agents_killed_while_reading(self):
        with self.world() as w:
            with slow_network():
                session = w.main.session("cold", COLD)
                session.await_progress(8)
                agents = w.probe.descendants()
                check(agents, "there is no agent")
                for pid in agents:
                    os.kill(pid, signal.SIGKILL)
                ends(session.answer(), "complete", COLD)
            w.unaffected()
            w.recovers()
            check(not set(agents) & set(w.probe.descendants()), "a killed agent is still there")

    def case_engine_of_the_agents_killed_while_reading(self):
        with self.world() as w, slow_network():
            w.main.session("cold", COLD).await_progress(8)
            w.kill_engine()

    # ---- Objects ----

    def case_removed_between_query_and_read(self):
        """The node stands still in one read, so that a key that was asked for and not yet read can be removed."""
        with self.world(**ONE_BY_ONE) as w, Peer(self.master_address) as peer:
            with slow_network():
                session = w.main.session("cold", COLD)
                session.await_progress(4)
                with self.node.stopped():
                    seen = session.poll()
                    last = seen["found_tokens"] // live.BLOCK_TOKENS - 1
                    check(last >= seen["cursor_blocks"], f"block {last} is claimed already:", seen)
                    equal(peer("remove", self.key(w, "cold", COLD, last)), 0, "removal")
                ends(session.answer(), "partial_read", last)
            check(w.main.stats()["fail_missing"] > 0, "fail_missing was not counted")
            w.unaffected()
            w.refills()

    def case_lease_ends_between_query_and_read(self):
        """A plan that takes longer than the store's lease is asked for again on the way, and comes whole."""
        with self.world(**ONE_BY_ONE) as w:
            with slow_network(SLOW_MBIT // 7):
                answer = w.main.session("cold", COLD).answer(limit_s=40)
            ends(answer, "complete", COLD)
            check(answer["life_s"] > 2 * LEASE_MS / 1000, f"it took {answer['life_s']} s: no lease ran out")
            check(w.main.stats()["queries"] > 2, "no lease was renewed")

    def case_full(self):
        """More than the node holds: what does not fit is counted, what is resident stays."""
        with self.world() as w:
            stored = failed = rounds = 0
            while failed == 0 and rounds < 24:
                rounds += 1
                w.main.empty()
                put = w.main.put(prompt=f"new{rounds}", blocks=200)
                done = w.probe.ask("stored", put=put["put"], limit=40)
                stored, failed = stored + done["stored"], failed + done["failed"]
                equal(w.main.resident(f"new{rounds}", 200), 200, "blocks of the put")
            check(failed > 0, f"{stored} objects were stored and none refused")
            equal(w.main.stats()["writes_failed"], failed, "writes_failed")
            w.refills(40)

    def cases(self):
        names = [name for name in type(self).__dict__ if name.startswith("case_")]
        return [(f"mooncake: {name[5:].replace('_', ' ')}", getattr(self, name)) for name in names]


def main():
    if not PROGRAM:
        sys.exit(__doc__)
    live.under_store("mooncake", "--size", "512MiB", "--set", f"default_kv_lease_ttl={LEASE_MS}", "--set",
                     f"client_ttl={CLIENT_TTL_S}")
    story = Story()
    try:
        return live.run(story.cases(), sys.argv[2:])
    finally:
        story.end()


sys.exit(main())
