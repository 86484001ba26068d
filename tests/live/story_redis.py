#!/usr/bin/env python3
"""What a cache does when a real Redis fails under it: killed, restarted, stopped, full, evicting, slow, half-answering.

    story_redis.py LIVE_PROBE thread|agent [WORD...]     only cases whose names contain a word
"""
import os
import signal
import sys

import live
from live import COLD, WARM, check, ends, equal
from proxy import Proxy
from resp import Redis

SLOW = 16_000_000  # bytes per second: the cold prompt takes a second, so that something can happen meanwhile
PROGRAM, HOST = (os.path.abspath(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 2 else ("", "")
# A thread gets its call back from the client's own limit; an agent is killed, so its client may wait for ever.
CLIENT_MS = {"thread": int(3000 * live.SLOWNESS), "agent": 600000}


class World(live.World):
    def __init__(self, port, through_proxy=True, **settings):
        self.redis, self.proxy = Redis(port), Proxy("127.0.0.1", port)
        port = self.proxy.port if through_proxy else port
        store = f"redis@{HOST}:host=127.0.0.1,port={port},timeout_ms={CLIENT_MS[HOST]},connect_timeout_ms=500"
        super().__init__(PROGRAM, store, **settings)

    def untouched(self, change):
        super().untouched(change, Redis(self.proxy.port).answers)

    def __exit__(self, *problem):
        try:
            super().__exit__(*problem)
        finally:
            self.proxy.close()


class Story:
    def __init__(self):
        self.server = live.Server(os.environ["FOREBAY_WITH_STORE_PID"], os.environ["FOREBAY_WITH_STORE_COMMAND"])
        options = dict(option.split("=") for option in os.environ["FOREBAY_STORE"].partition(":")[2].split(","))
        self.port = int(options["port"])

    def world(self, **settings):
        redis = Redis(self.port)
        if not redis.answers():  # the case before this one failed
            self.restart()
        redis("FLUSHALL")
        redis("CONFIG", "SET", "maxmemory", "512mb")
        return World(self.port, **settings)

    def restart(self):
        self.server.restart()
        live.await_true(Redis(self.port).answers, "the server to be back")

    # ---- The server goes away ----

    def case_delivers(self):
        with self.world() as w:
            w.main.delivers("cold", COLD)
            w.unaffected()

    def case_killed_while_reading(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(8)
            self.server.kill()
            ends(session.answer(), "store_error", (8, COLD - 1))
            w.unaffected()
            w.proxy.passes()
            self.restart()
            w.refills()

    def case_killed_and_restarted_on_the_same_port(self):
        with self.world(through_proxy=False) as w:
            self.server.kill()
            ends(w.main.session("cold", COLD).answer(), "query_error", 0)
            w.unaffected()
            self.restart()
            w.refills()

    def case_gone_until_the_breaker_opens(self):
        """Then sessions are answered at once, without a question to the store, until a probe finds it back."""
        backoff = {"store.breaker_backoff_s": 3, "store.breaker_backoff_max_s": 3}
        with self.world(**backoff) as w:
            self.server.kill()
            for _ in range(10):
                ends(w.main.session("cold", COLD).answer(), ("query_error", "complete"), 0)
                health = w.main.health()
                if health["breaker"] == 1:
                    break
            asked = w.proxy.accepted()
            check(health["breaker"] == 1 and health["breaker_retry_ns"] > 0, "the breaker is not open:", health)
            equal(w.main.session("cold", COLD).answer()["verified_blocks"], 0, "blocks behind an open breaker")
            equal(w.proxy.accepted(), asked, "connections, also behind an open breaker")
            w.unaffected()
            self.restart()
            w.refills()

    def case_connections_killed_while_reading(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(8)
            before = w.proxy.accepted()
            check(w.redis("CLIENT", "KILL", "TYPE", "normal") > 0, "no connection was killed")
            ends(session.answer(), "complete", COLD)
            check(w.proxy.accepted() > before, "no new connection was made")
            w.unaffected()

    # ---- The server hangs ----

    def case_stopped_while_reading(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(8)
            with self.server.stopped():
                ends(session.answer(), "io_timeout", (8, COLD - 1))
                w.unaffected()
                w.untouched(self.server.go_on)
            check(HOST == "thread" or w.main.stats()["agent_kills"] > 0, "no agent was killed")
            w.proxy.passes()
            w.recovers()

    def case_stopped_before_the_query(self):
        with self.world() as w:
            with self.server.stopped():
                ends(w.main.session("cold", COLD).answer(), "query_error", 0)
                w.unaffected()
            w.recovers()

    def case_stopped_while_writing(self):
        with self.world() as w:
            with self.server.stopped():
                put = w.main.put(prompt="new", blocks=16)
                equal(w.main.resident("new", 16), 16, "blocks of the put")
                w.unaffected()
                done = w.probe.ask("stored", put=put["put"], limit=w.main.longest_s)
                equal((done["stored"], done["failed"]), (0, 16), "objects stored and failed")
                w.untouched(self.server.go_on)
            w.recovers()

    def case_silent_after_accept(self):
        with self.world() as w:
            w.proxy.silent()
            ends(w.main.session("cold", COLD).answer(), "query_error", 0)
            w.unaffected()
            w.proxy.passes()
            w.recovers()

    # ---- Objects in halves ----

    def case_stalled_in_an_object(self):
        with self.world() as w:
            w.proxy.stalls(after=5_000_000, times=1000)
            session = w.main.session("cold", COLD)
            w.proxy.await_fault()
            w.unaffected()
            late = live.await_such(w.main.health, lambda h: not h["healthy"], "bad health")
            check(late["oldest_operation_ns"] > 0 and late["message"], "health does not say what is wrong:", late)
            ends(session.answer(), "io_timeout", (8, COLD - 1))
            w.untouched(w.proxy.passes)
            w.recovers()

    def case_stalled_once_beside_others(self):
        """One connection hangs; a session that needs other blocks does not notice."""
        with self.world() as w:
            w.main.fill("beside", 16)
            w.main.empty()
            w.proxy.stalls(after=100_000, times=1)
            session = w.main.session("cold", COLD)
            w.proxy.await_fault()
            w.main.delivers("beside", 16)
            ends(session.answer(), "io_timeout", (0, COLD - 1))
            w.untouched(w.proxy.passes)
            w.recovers()

    def case_dropped_once_in_an_object(self):
        with self.world() as w:
            w.proxy.drops(after=5_000_000, times=1)
            session = w.main.session("cold", COLD)
            w.proxy.await_fault()
            ends(session.answer(), "complete", COLD)
            check(w.main.stats()["retries"] > 0, "nothing was tried again")

    def case_dropped_again_and_again(self):
        with self.world() as w:
            w.proxy.drops(after=5_000_000, times=1000)
            session = w.main.session("cold", COLD)
            w.proxy.await_fault()
            ends(session.answer(), "store_error", (8, COLD - 1))
            w.unaffected()
            w.proxy.passes()
            w.recovers()

    def case_delayed(self):
        with self.world() as w:
            w.proxy.delays(0.02)
            w.main.delivers("cold", COLD)

    def case_slow_but_moving(self):
        settings = {"prefetch.floor_bandwidth": "64KiB", "prefetch.io_timeout_s": 30, "prefetch.chunk_max_blocks": 4}
        with self.world(**settings) as w:
            w.proxy.limits(600_000)
            answer = w.main.session("cold", 8).answer(limit_s=50)
            ends(answer, "complete", 8)
            check(answer["life_s"] > live.LIMITS["prefetch.no_progress_timeout_s"], "it was not slow at all")

    def case_bytes_changed_in_the_store(self):
        """One bit of a payload, and a whole object under another's key: neither is ever delivered."""
        with self.world() as w:
            keys = ["fby:" + key for key in w.main.keys(prompt="cold", blocks=COLD)["keys"]]
            good = w.redis("GET", keys[20])
            w.redis("SET", keys[20], good[:70_000] + bytes([good[70_000] ^ 1]) + good[70_001:])
            ends(w.main.session("cold", COLD).answer(), "partial_read", 20)
            w.main.empty()
            w.redis("SET", keys[10], good)
            ends(w.main.session("cold", COLD).answer(), "partial_read", 10)
            check(w.main.stats()["fail_checksum"] > 1, "fail_checksum was not counted")
            w.redis("DEL", keys[10], keys[20])
            w.refills()

    # ---- A stop while the store hangs ----

    def case_detached_from_a_stall(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD, policy="best_effort", mode="detach")
            session.await_progress(8)
            w.proxy.stalls(after=0, times=1000)
            w.proxy.await_fault()
            session.demand()
            check(session.poll()["answered"], "it was not answered by the demand")
            answer = session.answer()
            ends(answer, "demand", (8, COLD - 1))
            w.untouched(w.proxy.passes)
            w.recovers()

    def case_reset_during_a_stall(self):
        with self.world() as w:
            w.proxy.stalls(after=5_000_000, times=1000)
            session = w.main.session("cold", COLD)
            w.proxy.await_fault()
            w.main.evict(limit=0)
            equal(w.main.resident("warm", WARM), 0, "resident after the reset")
            equal(w.probe.reply("poll", session=session.handle)["status"], "STALE", "poll of a handle from before")
            w.untouched(w.proxy.passes)
            w.recovers()

    def case_closed_during_a_stall(self):
        with self.world() as w:
            w.proxy.stalls(after=5_000_000, times=1000)
            w.main.session("cold", COLD)
            w.proxy.await_fault()
            w.close(w.main)

    # ---- Memory of the server ----

    def case_full(self):
        with self.world() as w:
            w.redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
            w.redis("CONFIG", "SET", "maxmemory", w.redis.info("used_memory") + 4_000_000)
            put = w.main.put(prompt="new", blocks=COLD)
            done = w.probe.ask("stored", put=put["put"], limit=20)
            equal(done["stored"] + done["failed"], COLD, "objects stored or failed")
            check(done["failed"] > 0, "the server was not full")
            equal(w.main.stats()["writes_failed"], done["failed"], "writes_failed")
            equal(w.main.resident("new", COLD), COLD, "blocks of the put")
            w.redis("CONFIG", "SET", "maxmemory", "512mb")
            w.main.empty()
            ends(w.main.session("new", COLD).answer(), "complete", (0, done["stored"]))
            w.main.empty()
            w.main.fill("new", COLD)
            w.main.empty()
            w.main.delivers("new", COLD)

    def case_deleted_between_query_and_read(self):
        with self.world(**{"prefetch.chunk_max_blocks": 4, "prefetch.max_inflight_chunks": 1}) as w:
            key = w.main.keys(prompt="cold", blocks=COLD)["keys"][40]
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(4)
            equal(w.redis("DEL", "fby:" + key), 1, "objects deleted")
            ends(session.answer(), "partial_read", 40)
            equal(w.main.stats()["fail_missing"] > 0, True, "fail_missing counted")
            w.unaffected()
            w.main.empty()
            w.proxy.passes()
            w.main.fill("cold", COLD)
            w.recovers()

    def case_evicted_between_query_and_read(self):
        with self.world(**{"prefetch.chunk_max_blocks": 4, "prefetch.max_inflight_chunks": 1}) as w:
            w.redis("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(4)
            w.redis("CONFIG", "SET", "maxmemory", w.redis.info("used_memory") // 2)
            live.await_true(lambda: w.redis.info("evicted_keys"), "an eviction")
            ends(session.answer(), "partial_read", (4, COLD - 1))
            w.unaffected()
            w.redis("CONFIG", "SET", "maxmemory", "512mb")
            w.proxy.passes()
            w.refills()

    # ---- The agent goes away ----

    def case_agents_killed_while_reading(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            session = w.main.session("cold", COLD)
            session.await_progress(8)
            agents = w.probe.descendants()
            check(agents, "there is no agent")
            for pid in agents:
                os.kill(pid, signal.SIGKILL)
            ends(session.answer(), "complete", COLD)
            w.unaffected()
            w.proxy.passes()
            w.recovers()
            check(not set(agents) & set(w.probe.descendants()), "a killed agent is still there")

    def case_engine_of_the_agents_killed_while_reading(self):
        with self.world() as w:
            w.proxy.limits(SLOW)
            w.main.session("cold", COLD).await_progress(8)
            w.kill_engine()

    def cases(self):
        names = [name for name in type(self).__dict__ if name.startswith("case_")]
        return [(f"redis {HOST}: {name[5:].replace('_', ' ')}", getattr(self, name)) for name in names
                if HOST == "agent" or "agents" not in name]


def main():
    if HOST not in CLIENT_MS:
        sys.exit(__doc__)
    live.under_store("redis")
    story = Story()
    try:
        return live.run(story.cases(), sys.argv[3:])
    finally:
        story.server.end()


sys.exit(main())
