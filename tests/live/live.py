"""What the live stories share: a probe to play an engine with, processes to hurt, cases that count, and the checks that
end every case."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK_TOKENS = 16
CASE_LIMIT_S = 60
MARGIN_S = 15.0  # over a configured limit: a machine may be busy, but a hang is longer
UNAVAILABLE = 69  # of with-store

SLOWNESS = float(os.environ.get("FOREBAY_LIVE_SLOWNESS", "1"))  # of this build, under a sanitizer
CASE_LIMIT_S *= SLOWNESS

# Limits that a busy machine keeps and a story can wait for; a breaker and a negative memory that are soon over.
LIMITS = {
    "prefetch.query_timeout_s": 2 * SLOWNESS, "prefetch.io_timeout_s": 6 * SLOWNESS,
    "prefetch.no_progress_timeout_s": 2 * SLOWNESS, "prefetch.drain_limit_s": 8 * SLOWNESS,
    "store.breaker_backoff_s": 0.1, "store.breaker_backoff_max_s": 0.5, "store.negative_ttl_s": 0.2,
}


class Failure(Exception):
    """A case found something wrong; the text says what."""


class Skip(Exception):
    """A case cannot be played here; the text says why."""


def check(truth, *why):
    if not truth:
        raise Failure(" ".join(str(word) for word in why))


def equal(found, expected, what):
    check(found == expected, f"{what}: {found!r}, not {expected!r}")


def await_true(condition, what, limit_s=15):
    """Looks again until the condition holds; its value."""
    limit_s *= SLOWNESS
    limit = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < limit, f"{what}: not within {limit_s} s")
        time.sleep(0.005)


def await_such(read, is_such, what, limit_s=15):
    """Reads again until what was read is such; that."""
    found = []

    def once():
        found[:] = [read()]
        return is_such(found[0])
    await_true(once, what, limit_s)
    return found[0]


# ---- The probe ------------------------------------------------------------------------------------------------------


class Probe:
    """live_probe (probe.h) and what it says."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    @property
    def pid(self):
        return self.process.pid

    def reply(self, verb, **words):
        """What it answers, good or bad."""
        self.process.stdin.write(" ".join([verb, *(f"{name}={value}" for name, value in words.items())]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        check(line, f"the probe ended at {verb} with {self.process.poll()}")
        return json.loads(line)

    def ask(self, verb, **words):
        reply = self.reply(verb, **words)
        check(reply["status"] == "ok", verb, words, reply["status"], reply.get("detail", ""))
        return reply

    def descendants(self):
        """Processes that the probe has made: the agents."""
        found, new = [], [self.pid]
        while new:
            new = [child for parent in new for child in children(parent)]
            found += new
        return found

    def end(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            equal(self.process.wait(15 * SLOWNESS), 0, "exit status of the probe")
        except subprocess.TimeoutExpired:
            raise Failure("the probe did not end by itself") from None


def children(pid):
    found = []
    for tasks in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in tasks.read_text().split()]
    return found


class Cache:
    def __init__(self, probe, name, store, **settings):
        self.probe, self.name, settings = probe, name, {**LIMITS, **settings}
        self.longest_s = settings["prefetch.query_timeout_s"] + settings["prefetch.io_timeout_s"] + MARGIN_S
        probe.ask("open", cache=name, store=store, **settings)

    def __getattr__(self, verb):
        """stats(), health(), keys(prompt=...), ..."""
        return lambda **words: self.probe.ask(verb, cache=self.name, **words)

    def fill(self, prompt, blocks):
        """Puts the prompt; every block is in the store afterwards."""
        put = self.put(prompt=prompt, blocks=blocks)
        equal(put["resident_blocks"], blocks, "resident after the put")
        done = self.probe.ask("stored", put=put["put"], limit=30 * SLOWNESS)
        equal((done["stored"], done["failed"]), (put["staged"], 0), f"objects of {prompt} stored and failed")

    def empty(self):
        equal(self.evict(limit=15 * SLOWNESS)["done"], True, "reset done")

    def session(self, prompt, blocks, **options):
        started = self.probe.ask("start", cache=self.name, prompt=prompt, blocks=blocks, **options)
        return Session(self, prompt, blocks, started["session"])

    def resident(self, prompt, blocks):
        """How many blocks of it are resident; compares their bytes."""
        return self.verified(self.lookup(prompt=prompt, blocks=blocks))

    def verified(self, held):
        """Compares every byte of a hold, ends it, says how long it was."""
        seen = self.probe.ask("verify", hold=held["hold"])
        self.probe.ask("drop", hold=held["hold"])
        equal((seen["blocks"], seen["wrong"]), (held["blocks"], 0), "blocks held and wrong ones among them")
        return seen["blocks"]

    def delivers(self, prompt, blocks):
        """One session that brings all of it."""
        answer = self.session(prompt, blocks).answer()
        equal((answer["outcome"], answer["reason"]), ("complete", "complete"), f"session on {prompt}")
        equal(answer["verified_blocks"], blocks, f"blocks of {prompt} delivered")
        return answer

    def settled(self, limit=15 * SLOWNESS):
        """Nothing in flight, each slot free or resident, free ones untouched, resident ones right."""
        quiet = self.probe.ask("quiet", cache=self.name, limit=limit)
        left = {name: value for name, value in quiet.items() if name.endswith("_gauge") and value}
        check(quiet["quiet"], f"cache {self.name} is not quiet after {limit} s:", left)
        equal(quiet["agents_unproven"], 0, "agents whose end is not proven")
        scan = self.scan()
        equal((scan["free_wrong"], scan["resident_wrong"]), (0, 0), "free and resident slots with wrong bytes")
        equal(scan["free"] + scan["resident"], quiet["pool_blocks_gauge"], "slots free or resident")
        return quiet


class Session:
    def __init__(self, cache, prompt, blocks, handle):
        self.cache, self.prompt, self.blocks, self.handle = cache, prompt, blocks, handle

    def poll(self):
        return self.cache.probe.ask("poll", session=self.handle)

    def demand(self):
        self.cache.probe.ask("demand", session=self.handle)

    def await_progress(self, blocks):
        """Until that many blocks are published and more are on their way."""
        seen = await_such(self.poll, lambda s: s["committed_blocks"] >= blocks or s["answered"],
                          f"{blocks} blocks of {self.prompt}")
        check(not seen["answered"], f"the session on {self.prompt} was over before anything could happen to it:",
              seen["reason"], seen["delivered_blocks"])
        return seen

    def answer(self, limit_s=None):
        """Waits for it, compares every delivered byte, ends the session. Its life must be within the limit."""
        limit_s = limit_s or self.cache.longest_s
        seen = self.cache.probe.ask("wait", session=self.handle, limit=limit_s)
        seen["life_s"] = (seen["answered_ns"] - seen["created_ns"]) / 1e9
        check(seen["life_s"] <= limit_s, f"the session on {self.prompt} took {seen['life_s']} s of {limit_s} s")
        seen["verified_blocks"] = 0
        if seen["outcome"] in ("complete", "partial"):
            seen["verified_blocks"] = self.cache.verified(self.cache.probe.ask("take", session=self.handle))
        equal(seen["verified_blocks"], seen["delivered_blocks"], "verified and delivered blocks")
        return seen


def ends(answer, reasons, blocks=None):
    """Checks why it ended and how much it brought: a number, or a range (least, most)."""
    reasons = (reasons,) if isinstance(reasons, str) else reasons
    check(answer["reason"] in reasons, f"it ended with {answer['reason']} ({answer['error']}), not {reasons};",
          f"{answer['delivered_blocks']} blocks")
    if blocks is not None:
        least, most = blocks if isinstance(blocks, tuple) else (blocks, blocks)
        check(least <= answer["verified_blocks"] <= most, f"{answer['verified_blocks']} blocks, not {least}..{most}")


# ---- A world to break -----------------------------------------------------------------------------------------------

COLD, WARM, ELSEWHERE = 64, 8, 8  # blocks of the prompts


class World:
    """A cache over the store under test, beside one over another store in the same process. The prompt "cold" is in the
    store only, "warm" is resident. At the end nothing may be lost, whatever happened."""

    def __init__(self, program, store, **settings):
        self.probe, self.last = Probe(program), ""
        try:
            self.main = Cache(self.probe, "main", store, **settings)
            self.other = Cache(self.probe, "other", "mem:name=other")
            self.other.fill("elsewhere", ELSEWHERE)
            self.main.fill("cold", COLD)
            self.main.empty()
            self.main.fill("warm", WARM)
            self.caches = [self.main, self.other]
        except BaseException:
            self.probe.process.kill()
            self.probe.process.wait()
            raise

    def unaffected(self):
        """Whatever is going on: what is resident is served, and so is the other cache's store."""
        answer = self.main.session("warm", WARM).answer()
        equal((answer["outcome"], answer["verified_blocks"]), ("complete", WARM), "session on what is resident")
        self.other.empty()
        self.other.delivers("elsewhere", ELSEWHERE)

    def recovers(self, limit_s=20):
        """The cold prompt comes whole again, without anybody's help but time."""
        self.main.empty()
        await_true(lambda: self.comes_whole("cold", COLD), "recovery", limit_s)
        self.is_well()

    def is_well(self):
        await_true(lambda: self.main.health()["healthy"], "good health")
        equal(self.main.health()["breaker"], 0, "the breaker's state")

    def comes_whole(self, prompt, blocks):
        answer = self.main.session(prompt, blocks).answer()
        self.last = f"{answer['verified_blocks']} blocks, {answer['reason']} {answer['error']}, {self.main.health()}"
        return answer["verified_blocks"] == blocks

    def refills(self, limit_s=20):
        """The same when the store has lost everything: it is put again first, until all of it can be read."""
        def once():
            self.main.empty()
            put = self.main.put(prompt="cold", blocks=COLD)
            if self.probe.ask("stored", put=put["put"], limit=limit_s)["failed"]:
                return False
            self.main.empty()
            return self.comes_whole("cold", COLD)
        await_true(once, "writes and reads after the loss", limit_s)
        self.is_well()

    def untouched(self, change, answers):
        """Once all is quiet nobody writes into the pool, also when `change` lets the store go on until it `answers`."""
        self.main.settled()
        before = self.main.digest()["digest"]
        change()
        await_true(answers, "the store's answer")
        equal(self.main.digest()["digest"], before, "the pool's bytes after the store went on")

    def close(self, cache):
        """Ends in time, also with operations that hang, and leaves none of them behind."""
        equal(cache.close(limit=10 * SLOWNESS)["operations_abandoned"], 0, "operations abandoned")
        self.caches.remove(cache)

    def kill_engine(self):
        """Its agents do not outlive it."""
        agents = self.probe.descendants()
        check(agents, "there is no agent")
        self.probe.process.kill()
        self.probe.process.wait()
        await_true(lambda: all(state_of(pid) in ("", "Z") for pid in agents), "the agents' end")
        self.caches = []

    def leave(self):
        """Each slot free or resident, every byte right, nothing left behind at the close."""
        for cache in list(self.caches):
            cache.settled()
            self.close(cache)
        if self.probe.process.poll() is None:
            equal(self.probe.descendants(), [], "processes left after the close")
            self.probe.end()

    def __enter__(self):
        return self

    def __exit__(self, kind, _problem, _trace):
        try:
            if kind is None:
                self.leave()
            elif self.last:
                print(f"# the last session: {self.last}", flush=True)
        finally:
            self.probe.process.kill()
            self.probe.process.wait()


# ---- Processes of a store -------------------------------------------------------------------------------------------


class Server:
    """A process that with-store has started, and that comes back with the same words."""

    def __init__(self, pid, command):
        self.pid, self.command, self.process = pid and int(pid), command, None

    def kill(self):
        """Nothing when it was killed already."""
        if self.pid is None:
            return
        os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        else:
            await_true(lambda: state_of(self.pid) in ("", "Z"), f"process {self.pid} to end")
        self.pid = None

    def restart(self):
        self.kill()
        self.process = subprocess.Popen(["/bin/sh", "-c", "exec " + self.command], stdin=subprocess.DEVNULL)
        self.pid = self.process.pid

    def stop(self):
        os.kill(self.pid, signal.SIGSTOP)
        await_true(lambda: state_of(self.pid) == "T", f"process {self.pid} to stop")

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self):
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def end(self):
        """What with-store does not know of."""
        if self.process is not None:
            self.kill()


def state_of(pid):
    """Letter of /proc/PID/stat; "" when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# ---- Cases ----------------------------------------------------------------------------------------------------------


def under_store(store, *options):
    """Runs this story again with a store beside it, unless there is one. Only returns when there is."""
    if os.environ.get("FOREBAY_LIVE") == store:
        return
    with_store = ROOT / "scripts/with-store"
    command = [sys.executable, str(with_store), store, *options, "--", sys.executable, *sys.argv]
    code = subprocess.run(command, env={**os.environ, "FOREBAY_LIVE": store}).returncode
    if code == UNAVAILABLE:
        print(f"1..0 # SKIP {store} cannot be had here: see above")
        sys.exit(77)
    sys.exit(code)


def _alarm(_signal, _frame):
    raise Failure(f"over {CASE_LIMIT_S:.0f} s")


def run(cases, only=()):
    """Plays the cases: a line "ok N - NAME" or "not ok N - NAME: why" for each. `cases`: (name, function)."""
    chosen = [(name, play) for name, play in cases if not only or any(word in name for word in only)]
    signal.signal(signal.SIGALRM, _alarm)
    failed = skipped = 0
    print(f"1..{len(chosen)}", flush=True)
    for number, (name, play) in enumerate(chosen, 1):
        started = time.monotonic()
        signal.alarm(int(CASE_LIMIT_S))
        try:
            play()
            print(f"ok {number} - {name}\n# {time.monotonic() - started:.1f} s", flush=True)
        except Skip as why:
            skipped += 1
            print(f"ok {number} - {name} # SKIP {why}", flush=True)
        except Exception as problem:  # whatever it is, the next case runs
            failed += 1
            why = str(problem) if isinstance(problem, Failure) else f"{type(problem).__name__}: {problem}"
            print(f"not ok {number} - {name}: {' '.join(why.split())}", flush=True)
        finally:
            signal.alarm(0)
    print(f"# {len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0
