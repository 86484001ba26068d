"""scripts/with-store from outside: what the command sees, what becomes of its status, and that nothing stays behind."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WITH_STORE = ROOT / "scripts/with-store"
LIMIT_S = 60
SHOW = ["sh", "-c", "echo $FOREBAY_WITH_STORE_DIR; exec sleep 300"]


def run(*arguments, limit=LIMIT_S):
    return subprocess.run([WITH_STORE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)


def processes_of(directory):
    """Ids of the processes that know the store's directory: its servers work in it, the command has it in its environment."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            knows = os.readlink(process / "cwd") == directory or directory.encode() in (process / "environ").read_bytes()
        except OSError:
            continue
        if knows:
            found.append(int(process.name))
    return found


def until(condition, what):
    limit = time.monotonic() + 30
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within 30 s: {what}")
        time.sleep(0.02)


class Status(unittest.TestCase):
    def test_is_that_of_the_command(self):
        self.assertEqual(run("redis", "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(run("redis", "--", "true").returncode, 0)

    def test_is_128_and_the_number_of_the_signal_that_ended_the_command(self):
        self.assertEqual(run("redis", "--", "sh", "-c", "kill -9 $$").returncode, 128 + 9)

    def test_of_a_command_that_is_not_there_is_127(self):
        done = run("redis", "--", "/nonexistent/program")
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                         (127, "with-store: /nonexistent/program: No such file or directory"))

    def test_of_a_command_that_cannot_run_is_126(self):
        self.assertEqual(run("redis", "--", "/etc/passwd").returncode, 126)

    def test_is_1_when_the_store_does_not_start_and_its_log_is_shown(self):
        done = run("redis", "--set", "maxmemory=nonsense", "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("redis ended with 1", done.stderr)
        self.assertIn("argument must be a memory value", done.stderr)


class Arguments(unittest.TestCase):
    def refuses(self, message, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(message, done.stderr)

    def test_that_are_wrong_are_named(self):
        self.refuses("invalid choice: 'ceph'", "ceph", "--", "true")
        self.refuses("no command: -- COMMAND comes last", "redis")
        self.refuses("'12 parsecs' is no size; 512MiB, 2GiB and 300MB are", "redis", "--size", "12 parsecs", "--", "true")
        self.refuses("'maxmemory' is not NAME=VALUE", "redis", "--set", "maxmemory", "--", "true")
        self.refuses("unrecognized arguments: --siz", "redis", "--siz", "1MiB", "--", "true")

    def test_size_and_settings_reach_the_server(self):
        ask = "redis-cli -p ${FOREBAY_STORE##*port=} CONFIG GET maxmemory; redis-cli -p ${FOREBAY_STORE##*port=} CONFIG GET maxmemory-policy"
        done = run("redis", "--size", "3MiB", "--set", "maxmemory-policy=noeviction", "--", "sh", "-c", ask)
        self.assertEqual(done.stdout.split(), ["maxmemory", "3145728", "maxmemory-policy", "noeviction"])


class Redis(unittest.TestCase):
    def test_answers_at_the_address_that_the_command_was_told(self):
        done = run("redis", "--", "sh", "-c",
                   "echo $FOREBAY_STORE; echo $FOREBAY_WITH_STORE_REDIS; redis-cli -p ${FOREBAY_STORE##*port=} PING")
        store, nested, pong = done.stdout.split()
        self.assertRegex(store, r"^redis:host=127\.0\.0\.1,port=\d+$")
        self.assertEqual((nested, pong), (store, "PONG"))

    def test_can_be_killed_and_started_again_by_the_command(self):
        script = """
            ask() { redis-cli -p ${FOREBAY_STORE##*port=} PING 2>/dev/null; }
            kill -9 $FOREBAY_WITH_STORE_PID
            while kill -0 $FOREBAY_WITH_STORE_PID 2>/dev/null; do sleep 0.02; done
            ask && exit 1
            sh -c "exec $FOREBAY_WITH_STORE_COMMAND" & child=$!
            until [ "$(ask)" = PONG ]; do sleep 0.02; done
            kill -9 $child; wait $child; echo killed with $?"""
        self.assertEqual(run("redis", "--", "sh", "-c", script).stdout, "killed with 137\n")

    def test_nests(self):
        script = "redis-cli -p ${OUTER##*port=} PING; redis-cli -p ${FOREBAY_STORE##*port=} PING; [ $OUTER != $FOREBAY_STORE ]"
        inner = f"OUTER=$FOREBAY_STORE exec {WITH_STORE} redis -- sh -c '{script}'"
        done = run("redis", "--", "sh", "-c", inner)
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["PONG", "PONG"]))


class Ends(unittest.TestCase):
    """Whoever is killed, nothing stays: no process, no directory."""

    def begin(self, *options):
        process = subprocess.Popen([WITH_STORE, "redis", *options, "--", *SHOW], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        directory = process.stdout.readline().strip()
        self.assertTrue(directory.startswith("/"), directory)
        until(lambda: len(processes_of(directory)) >= 2, "server and command are there")
        return process, directory

    def is_gone(self, directory):
        until(lambda: not processes_of(directory), "every process ended")
        until(lambda: not os.path.exists(directory), "the directory is removed")

    def test_with_the_command(self):
        done = run("redis", "--", "sh", "-c", "echo $FOREBAY_WITH_STORE_DIR")
        directory = done.stdout.strip()
        self.assertEqual((processes_of(directory), os.path.exists(directory)), ([], False))

    def test_when_terminated(self):
        process, directory = self.begin()
        process.terminate()
        self.assertEqual(process.wait(LIMIT_S), 128 + signal.SIGTERM)
        self.is_gone(directory)

    def test_when_killed(self):
        process, directory = self.begin()
        process.kill()
        process.wait(LIMIT_S)
        self.is_gone(directory)

    def test_when_its_working_half_is_killed(self):
        for options in [], ["--no-namespace"]:
            with self.subTest(options=options):
                process, directory = self.begin(*options)
                (half,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                os.kill(int(half), signal.SIGKILL)
                self.assertEqual(process.wait(LIMIT_S), 128 + signal.SIGKILL)
                until(lambda: not os.path.exists(directory), "the directory is removed")
                until(lambda: not processes_of(directory), "every process ended")

    def test_without_a_namespace(self):
        process, directory = self.begin("--no-namespace")
        process.kill()
        process.wait(LIMIT_S)
        self.is_gone(directory)


class Namespaces(unittest.TestCase):
    def test_are_done_without_where_the_system_refuses_them(self):
        refuse = "echo 0 >/proc/sys/user/max_net_namespaces"
        if subprocess.run(["unshare", "-Ur", "sh", "-c", refuse], capture_output=True).returncode != 0:
            self.skipTest("no user namespace, in which network namespaces could be forbidden")
        command = f"{refuse} && exec {WITH_STORE} redis -- sh -c 'echo $FOREBAY_WITH_STORE_ISOLATED'"
        done = subprocess.run(["unshare", "-Ur", "sh", "-c", command], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"))
        self.assertIn("with-store: no network namespace can be made (unshare: No space left on device)", done.stderr)


class Mooncake(unittest.TestCase):
    LOOK = r"""
import os, urllib.request
from mooncake.store import MooncakeDistributedStore
master = os.environ["FOREBAY_STORE"].split("master=")[1].split(",")[0]
client = MooncakeDistributedStore()
assert client.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", master) == 0
assert client.put("story", b"x" * 100000) == 0
assert client.get("story") == b"x" * 100000
page = urllib.request.urlopen("http://" + os.environ["FOREBAY_WITH_STORE_METRICS"] + "/get_all_segments").read().decode()
for name in "FOREBAY_STORE", "FOREBAY_WITH_STORE_ISOLATED":
    print(os.environ[name], flush=True)
print(page.split(":")[0].strip(), flush=True)
os._exit(0)
"""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([ROOT / "scripts/install-mooncake"], capture_output=True, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(f"Mooncake's wheel cannot be installed: {done.stderr.strip()}")
        cls.python = done.stdout.strip()

    def test_takes_bytes_and_gives_them_back(self):
        done = run("mooncake", "--size", "64MiB", "--", self.python, "-c", self.LOOK)
        self.assertEqual(done.returncode, 0, done.stderr)
        store, isolated, node = done.stdout.split()
        self.assertRegex(store, rf"^mooncake:master=127\.0\.0\.1:\d+,python={re.escape(self.python)},lease_ms=5000$")
        self.assertEqual(node, "127.0.0.1")
        self.assertIn(isolated, ("0", "1"))

    def test_listens_on_nothing_that_is_reachable_from_outside(self):
        script = "echo $FOREBAY_WITH_STORE_ISOLATED $FOREBAY_WITH_STORE_METRICS; cat; exit 0"
        process = subprocess.Popen([WITH_STORE, "mooncake", "--size", "64MiB", "--", "sh", "-c", script],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        isolated, address = process.stdout.readline().split()
        host, port = address.split(":")
        with socket.socket() as outside:
            refused = outside.connect_ex((host, int(port))) != 0
        process.communicate("", timeout=LIMIT_S)
        self.assertEqual((process.returncode, refused), (0, isolated == "1"))


def main():
    program = unittest.main(verbosity=2, exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)


if __name__ == "__main__":
    main()
