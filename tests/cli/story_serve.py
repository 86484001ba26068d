#!/usr/bin/env python3
"""A server as its operator meets it: started, watched, stopped, killed, and started again; the doctor beside it."""
import configparser
import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time

from story import FOREBAY, ROOT, Story, main

_NAMED = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else os.environ.get("FOREBAY_CLIENT", "")
CLIENT = os.path.abspath(_NAMED) if _NAMED else ""
LIMIT_S = 30
MODEL = """\
model: {id: m, revision: r, kv_dtype: bf16, block_tokens: 16, layer_set: all, layout: x, weights_epoch: 0, tp_size: 1,
  cp_size: 1, pp_size: 1, groups: 'kv:4KiB:all'}
pool: {bytes: 16MiB}
log: {level: warn}
"""
PROMPT = 128  # tokens of the clients' prompt: 8 blocks
BLOCK_BYTES = 4096
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?25h\x1b[?1049l"
SECTIONS = ["socket", "connected", "process", "model", "health", "sessions", "tokens", "hits", "budgets", "pool", "store",
            "traffic", "clients"]


def within_limit():
    """Goes on for as long as a story may wait."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        yield


class Ended(AssertionError):
    pass


def await_line(stream):
    """The next line; a stream that stays silent for too long is a failure, not a wait for ever."""
    if not select.select([stream], [], [], LIMIT_S)[0]:
        raise AssertionError(f"nothing was said for {LIMIT_S} s")
    line = stream.readline()
    if not line:
        raise Ended("it ended")
    return line.rstrip("\n")


class Server:
    def __init__(self, story, *arguments, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_") and k != "NOTIFY_SOCKET"}
        self.process = subprocess.Popen([FOREBAY, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        cwd=story.path, env={**clean, **more.pop("environment", {})}, **more)
        story.addCleanup(self.kill)
        self.pid = self.process.pid

    def ready(self):
        return await_line(self.process.stdout)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self, number=signal.SIGTERM):
        """Exit code, and what it said meanwhile."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err


class Client:
    def __init__(self, story, path, name="story"):
        self.process = subprocess.Popen([CLIENT, path, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, bufsize=1)
        story.addCleanup(self.close)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def ask(self, word):
        self.tell(word)
        return await_line(self.process.stdout)

    def close(self):
        """An orderly end: the server has taken back everything when it is over."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


class Screen:
    """`forebay top` on a terminal of its own."""

    def __init__(self, story, *arguments, rows=40, columns=120):
        try:
            self.master, self.terminal = pty.openpty()
        except OSError as error:
            story.skipTest(f"no terminal to be had here: {error}")
        self.resize(rows, columns, tell=False)
        self.before = termios.tcgetattr(self.terminal)
        self.seen = b""
        self.process = subprocess.Popen([FOREBAY, "top", *arguments], stdin=self.terminal, stdout=self.terminal,
                                        stderr=subprocess.PIPE)
        story.addCleanup(self.close)

    def resize(self, rows, columns, tell=True):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:  # it is not its controlling terminal: the kernel tells only those
            self.process.send_signal(signal.SIGWINCH)

    def read(self):
        if not select.select([self.master], [], [], LIMIT_S)[0]:
            raise AssertionError(f"the screen did not change for {LIMIT_S} s: {self.seen[-2000:]!r}")
        self.seen += os.read(self.master, 65536)

    def until(self, *texts):
        """Reads until all of these stand in one page; the page's lines."""
        while True:
            pages = self.seen.split(b"\x1b[H")
            for page in pages[1:]:
                if page.endswith(b"\x1b[J") and all(text.encode() in page for text in texts):
                    self.seen = pages[-1] if not pages[-1].endswith(b"\x1b[J") else b""
                    return [line.decode() for line in re.split(rb"\x1b\[K\r+\n", page)][:-1]
            self.read()

    def page_of(self, width):
        """Reads until the widest line of a page is as asked for; the page's lines."""
        for _ in within_limit():
            lines = self.until("q leaves")
            if width(max(map(len, lines))):
                return lines
        raise AssertionError(f"no page of that size: {lines}")

    def key(self, text):
        os.write(self.master, text.encode())

    def end(self):
        """Exit code and stderr; the terminal is as it was."""
        code = self.process.wait(LIMIT_S)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return code, self.process.stderr.read().decode()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.master)
        os.close(self.terminal)


class Served(Story):
    def setUp(self):
        super().setUp()
        self.socket = str(self.path / "s")

    def config(self, more="store: {driver: mem}\n"):
        return self.file("f.yaml", MODEL + more)

    def serve(self, *arguments, more="store: {driver: mem}\n", **rest):
        server = Server(self, self.config(more), "--listen", self.socket, *arguments, **rest)
        self.line = server.ready()
        return server

    def stat(self):
        return json.loads(self.succeeds("stat", self.socket, "--json"))

    def client_named(self, name):
        found = [one for one in self.stat()["clients"] if one["name"] == name]
        return found[0] if found else None


class Serve(Served):
    def test_it_says_that_it_is_ready_and_stops_when_told(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            self.assertRegex(self.line, rf"^forebay \d+\.\d+\.\d+ serves {self.socket} \(process {server.pid}, pool 16MiB, "
                                        r"model [0-9a-f]{32}\)$")
            self.assertEqual(stat.S_IMODE(os.stat(self.socket).st_mode), 0o600)
            self.assertEqual(server.stop(number), (0, "", ""))
            self.assertEqual(sorted(os.listdir(self.path)), ["f.yaml"])

    def test_paths_are_taken_from_where_it_starts_and_options_win(self):
        server = Server(self, self.config("server: {listen: /nowhere/at/all}\nstore: {driver: mem}\n"), "--listen", "sub.socket",
                        "--set", "server.mode=0660", "--set", "pool.bytes=8MiB")
        self.assertIn(f"serves {self.path}/sub.socket (process {server.pid}, pool 8MiB, ", server.ready())
        self.assertEqual(stat.S_IMODE(os.stat(self.path / "sub.socket").st_mode), 0o660)
        self.assertEqual(server.stop()[0], 0)

    def test_whoever_waits_on_a_descriptor_is_told(self):
        reader, writer = os.pipe()
        with open(reader) as ready:
            server = Server(self, self.config(), "--listen", self.socket, "--ready-fd", str(writer), pass_fds=[writer])
            os.close(writer)
            self.assertEqual(ready.read(), "ready\n")
        self.assertEqual(server.stop()[0], 0)

    def test_systemd_is_told(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self.path / "notify"))
            notify.settimeout(LIMIT_S)
            server = self.serve(environment={"NOTIFY_SOCKET": str(self.path / "notify")})
            self.assertIn(b"READY=1", notify.recv(4096))
            server.process.send_signal(signal.SIGTERM)
            self.assertIn(b"STOPPING=1", notify.recv(4096))
            self.assertEqual(server.end()[0], 0)

    def test_the_unit_starts_it(self):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read_string((ROOT / "systemd" / "forebay.service.in").read_text())
        service = unit["Service"]
        program, *words = service["ExecStart"].split()
        self.assertEqual((program, words[0], service["Type"], service["KillMode"]),
                         ("@bindir@/forebay", "serve", "notify", "mixed"))
        self.assertEqual(words[words.index("--listen") + 1], f"/run/{service['RuntimeDirectory']}/socket")
        here = {"/etc/forebay/forebay.yaml": self.config(), "/run/forebay/socket": self.socket}
        server = Server(self, *(here.get(word, word) for word in words[1:]))
        self.assertIn(f" serves {self.socket} ", server.ready())
        self.assertEqual(server.stop()[0], 0)

    def test_it_takes_as_many_descriptors_as_it_may_have(self):
        server = self.serve()
        soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        self.assertEqual(soft, hard)

    def test_a_terminal_that_closes_does_not_end_it(self):
        server = self.serve()
        server.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.stat()["process"]["pid"], server.pid)
        self.assertEqual(server.stop()[0], 0)

    def test_two_servers_do_not_share_a_socket(self):
        first = self.serve()
        code, out, err = Server(self, self.config(), "--listen", self.socket).end()
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, f"forebay serve: server.listen {self.socket}: a server is there: Address already in use\n")
        self.assertEqual(self.stat()["process"]["pid"], first.pid)

    def test_after_sigkill_the_next_one_takes_the_socket_and_the_clients(self):
        first = self.serve()
        client = Client(self, self.socket)
        self.assertEqual(client.ask("put"), "put 8")
        self.assertEqual(client.ask("hold"), f"hold {PROMPT}")
        first.kill()
        self.assertEqual(client.ask("hold"), "hold 0")
        self.assertEqual(client.ask("connected"), "connected 0")
        self.assertTrue(os.path.exists(self.socket))
        second = self.serve()
        self.assertTrue(any(client.ask("hold") == "hold 0" and client.ask("connected") == "connected 1" for _ in within_limit()))
        self.assertEqual(client.ask("put"), "put 8")
        self.assertEqual(client.ask("hold"), f"hold {PROMPT}")
        client.close()
        self.assertEqual(second.stop(), (0, "", ""))
        self.assertEqual(sorted(os.listdir(self.path)), ["f.yaml"])

    def test_a_stop_lets_sessions_end(self):
        server = self.serve(more="store: {driver: 'fault:mem', options: {latency_ms: 100}}\n")
        client = Client(self, self.socket)
        self.assertEqual((client.ask("put"), client.ask("forget"), client.ask("start")), ("put 8", "forget", "start"))
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(client.ask("answer"), f"answer complete {PROMPT}")
        self.assertEqual(server.end(), (0, "", ""))
        self.assertEqual((client.ask("hold"), client.ask("connected")), ("hold 0", "connected 0"))

    def test_a_second_signal_ends_it_at_once(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self.path / "notify"))
            notify.settimeout(LIMIT_S)
            server = self.serve("--set", "server.stop_limit_s=600", environment={"NOTIFY_SOCKET": str(self.path / "notify")},
                                more="store: {driver: 'fault:mem', options: {latency_ms: 20000}}\n")
            client = Client(self, self.socket)
            self.assertEqual(client.ask("start"), "start")
            server.process.send_signal(signal.SIGTERM)
            while b"STOPPING=1" not in notify.recv(4096):
                pass
            self.assertEqual(server.stop(signal.SIGINT), (1, "", "forebay serve: Interrupt again: ends at once\n"))
        client.process.kill()

    def test_wrong_usage(self):
        hint = "\nTry `forebay serve --help`.\n"
        self.fails(2, "forebay serve: server.listen is off; accepted: --listen PATH, or a configuration that sets it" + hint,
                   "serve", self.config())
        self.fails(2, "forebay serve: --set has no '='; accepted: --set KEY=VALUE" + hint, "serve", "--set", "x")
        self.fails(2, "forebay serve: --ready-fd: descriptor 999 is not open" + hint, "serve", "--ready-fd", "999")
        done = self.run_forebay("serve", self.config(), "--listen", f"{self.path}/no/where")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(f"forebay serve: server.listen {self.path}/no/where"), done.stderr)


class Stat(Served):
    def test_what_a_client_holds_is_shown(self):
        server = self.serve()
        client = Client(self, self.socket, name="engine \x1b[31m0")
        self.assertEqual((client.ask("put"), client.ask("hold")), ("put 8", f"hold {PROMPT}"))
        self.assertEqual((client.ask("start"), client.ask("answer")), ("start", f"answer complete {PROMPT}"))
        found = self.stat()
        self.assertEqual(list(found), SECTIONS)
        self.assertEqual((found["socket"], found["connected"], found["process"]["pid"]), (self.socket, True, server.pid))
        self.assertEqual((found["process"]["clients"], found["process"]["stopping"], found["health"]["healthy"]), (2, False, True))
        self.assertEqual((found["model"]["block_tokens"], found["model"]["groups"]), (16, 1))
        self.assertEqual(found["sessions"], {"running": 0, "parked": 0, "started": 1, "leases": 0, "holds": 1, "puts": 0})
        self.assertEqual(found["tokens"], {"found": PROMPT, "delivered": PROMPT, "loaded": 0, "consumed": 0})
        self.assertEqual(found["hits"], {"delivered_ratio": 1, "memory_ratio": 1})
        self.assertEqual((found["pool"]["resident"]["value"], found["pool"]["published"]), (8, 8))
        self.assertEqual(found["budgets"]["hold"]["of"], 8 << 20)
        self.assertGreaterEqual(found["budgets"]["hold"]["value"], 8 * BLOCK_BYTES)
        # The heaviest first; nothing that a terminal would obey.
        self.assertEqual([one["name"] for one in found["clients"]], ["engine ?[31m0", "forebay stat"])
        engine = found["clients"][0]
        self.assertEqual((engine["process"], engine["user"], engine["holds"], engine["sessions"], engine["puts"], engine["refused"],
                          engine["ended"]), (client.process.pid, os.getuid(), 1, 0, 0, 0, False))
        self.assertEqual(engine["pinned_bytes"], found["budgets"]["hold"]["value"])
        client.close()
        self.assertEqual(self.stat()["sessions"]["holds"], 0)
        self.assertEqual(self.stat()["traffic"]["deaths"], 0)

    def test_the_text_fits_and_names_everything(self):
        server = self.serve()
        lines = self.succeeds("stat", self.socket).splitlines()
        self.assertRegex(lines[0], rf"^forebay \d+\.\d+\.\d+  {self.socket}$")
        self.assertRegex(lines[1], rf"^process {server.pid}, up \d+ s, 1 client$")
        self.assertEqual(lines[2], "healthy; breaker closed")
        self.assertEqual([line.split()[0] for line in lines if line[:1] not in ("", " ")][3:],
                         ["sessions", "tokens", "hits", "budgets", "pool", "store", "traffic", "client"])
        self.assertLessEqual(max(map(len, lines)), 114)
        self.assertTrue(lines[-1].endswith("  forebay stat"), lines[-1])

    def test_no_server(self):
        error = f"forebay stat: server {self.socket}: No such file or directory\n"
        self.assertEqual(self.fails(1, error, "stat", self.socket), "")
        self.assertEqual(self.fails(1, error, "stat", self.socket, "--json"), f'{{"socket":"{self.socket}","connected":false}}\n')
        self.fails(2, "forebay stat: an argument is missing; accepted: SOCKET\nTry `forebay stat --help`.\n", "stat")

    def test_a_server_that_is_frozen_is_not_waited_for_for_ever(self):
        server = self.serve()
        server.process.send_signal(signal.SIGSTOP)
        try:
            done = self.run_forebay("stat", self.socket)
        finally:
            server.process.send_signal(signal.SIGCONT)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(f"forebay stat: server {self.socket}"), done.stderr)
        self.assertEqual(server.stop()[0], 0)


class Top(Served):
    def test_once_without_a_terminal(self):
        server = self.serve()
        found = json.loads(self.succeeds("top", self.socket, "--once", "--json"))
        self.assertEqual((list(found), found["process"]["pid"]), (SECTIONS, server.pid))
        self.assertIn(f"\nprocess {server.pid}, up ", self.succeeds("top", "--once", self.socket))
        self.fails(2, "forebay top: stdin and stdout are no terminal; accepted: --once, --json\nTry `forebay top --help`.\n",
                   "top", self.socket)
        self.fails(1, f"forebay top: server {self.path}/none: No such file or directory\n", "top", "--once", f"{self.path}/none")

    def test_json_goes_on_line_by_line(self):
        self.serve()
        command = [FOREBAY, "top", self.socket, "--json", "--interval", "0.01"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
            lines = [json.loads(await_line(top.stdout)) for _ in range(3)]
            top.terminate()
        self.assertEqual([line["connected"] for line in lines], [True, True, True])
        self.assertEqual(top.returncode, -signal.SIGTERM)

    def test_q_leaves_and_the_terminal_is_as_before(self):
        server = self.serve()
        screen = Screen(self, self.socket)
        screen.until(f"process {server.pid}", "forebay top")
        during = termios.tcgetattr(screen.terminal)
        self.assertFalse(during[3] & (termios.ICANON | termios.ECHO))
        screen.key("q")
        self.assertEqual(screen.end(), (0, ""))
        self.assertEqual(termios.tcgetattr(screen.terminal), screen.before)
        self.assertTrue(screen.seen.endswith(BACK), screen.seen[-40:])

    def test_every_signal_gives_the_terminal_back(self):
        self.serve()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT, signal.SIGSEGV):
            screen = Screen(self, self.socket)
            screen.until("forebay top")
            screen.process.send_signal(number)
            self.assertEqual(screen.end()[0], -number)
            self.assertEqual(termios.tcgetattr(screen.terminal), screen.before)
            self.assertTrue(screen.seen.endswith(BACK), screen.seen[-40:])

    def test_it_fits_the_terminal_and_follows_its_size(self):
        self.serve()
        screen = Screen(self, self.socket, rows=30, columns=120)
        wide = screen.until("forebay top")
        self.assertLess(len(wide), 30)
        self.assertIn("refused", next(line for line in wide if line.startswith("traffic")))
        screen.resize(20, 60)
        narrow = screen.page_of(lambda widest: widest <= 60)
        self.assertLess(len(narrow), 20)
        self.assertEqual(len([line for line in narrow if line.startswith("sessions")]), 1)
        screen.resize(2, 5)
        screen.key(" ")
        screen.resize(50, 200)
        screen.page_of(lambda widest: widest > 120)
        screen.key("q")
        self.assertEqual(screen.end(), (0, ""))

    def test_rates_of_what_clients_do(self):
        self.serve()
        client = Client(self, self.socket)
        screen = Screen(self, self.socket, "--interval", "0.05")
        screen.until("forebay top", "story")
        self.assertEqual(client.ask("put"), "put 8")
        screen.until("8 +")  # blocks published, and how fast
        screen.key("q")
        self.assertEqual(screen.end()[0], 0)

    def test_a_server_that_goes_away_is_found_again(self):
        first = self.serve()
        screen = Screen(self, self.socket, "--interval", "0.05")
        screen.until(f"process {first.pid}")
        first.kill()
        lines = screen.until("NO ANSWER", f"process {first.pid}")
        self.assertIn(f"NO ANSWER from {self.socket} for ", lines[1])
        second = self.serve("--set", "model.revision=other")  # not even of the same model
        lines = screen.until(f"process {second.pid}")
        self.assertFalse([line for line in lines if "NO ANSWER" in line])
        screen.key("q")
        self.assertEqual(screen.end(), (0, ""))

    def test_a_terminal_that_is_gone_ends_it(self):
        self.serve()
        screen = Screen(self, self.socket)
        screen.until("forebay top")
        os.close(screen.master)
        os.close(screen.terminal)
        screen.master, screen.terminal = os.open("/dev/null", os.O_RDWR), os.open("/dev/null", os.O_RDWR)
        self.assertEqual(screen.process.wait(LIMIT_S), 0)


class Doctor(Served):
    def doctor(self, more, **how):
        done = self.run_forebay("doctor", "--config", self.config(more + "store: {driver: mem}\n"), "--json", **how)
        self.assertEqual(done.stderr, "")
        findings = {check["check"]: (check["result"], check["found"]) for check in json.loads(done.stdout)["checks"]
                    if check["section"] == "server"}
        return done.returncode, findings

    def listen(self, more=""):
        return f"server: {{listen: {self.socket}{more}}}\n"

    def test_without_a_server_there_is_nothing_to_say(self):
        self.assertEqual(self.doctor(""), (0, {}))

    def test_a_place_that_is_free(self):
        code, found = self.doctor(self.listen())
        self.assertEqual((code, list(found)), (0, ["directory", "socket", "access", "clients", "messages", "memory"]))
        self.assertEqual(found["directory"], ("ok", f"{self.path} can be written"))
        self.assertEqual(found["socket"], ("ok", f"{self.socket} is free"))
        self.assertEqual(found["access"], ("ok", "mode 0600, users: own"))
        self.assertEqual(found["messages"], ("ok", "64 KiB go through a socket"))
        self.assertEqual(found["memory"], ("ok", "memfd with every seal"))

    def test_a_server_that_runs_and_one_that_was_killed(self):
        server = self.serve()
        version = self.succeeds("--version").split()[1]
        client = Client(self, self.socket)
        self.assertEqual(client.ask("connected"), "connected 1")
        found = self.doctor(self.listen())[1]
        self.assertEqual(found["socket"], ("ok", f"process {server.pid} of version {version} answers; clients: 1"))
        client.close()
        server.kill()
        found = self.doctor(self.listen())[1]
        self.assertEqual(found["socket"], ("ok", f"{self.socket} was left behind: the next server replaces it"))

    def test_places_that_cannot_be_used(self):
        self.file("s", "")
        code, found = self.doctor(self.listen())
        self.assertEqual((code, found["socket"]), (1, ("fail", f"{self.socket} is no socket, and is not replaced")))
        self.socket = str(self.path / "no" / "s")
        code, found = self.doctor(self.listen())
        self.assertEqual((code, found["directory"]), (1, ("fail", f"{self.path}/no: No such file or directory")))
        open_to_all = self.path / "open"
        open_to_all.mkdir()
        self.socket = str(open_to_all / "s")
        for mode, expected in ((0o777, "fail"), (0o1777, "warn")):
            open_to_all.chmod(mode)
            self.assertEqual(self.doctor(self.listen())[1]["directory"][0], expected)

    def test_somebody_else_listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(self.socket)
            other.listen(1)
            code, found = self.doctor(self.listen())
        self.assertEqual((code, found["socket"][0]), (1, "fail"))

    def test_modes_and_users(self):
        for more, expected in ((", mode: '0660'", "warn"), (", mode: '0000'", "fail"), (", allow_uids: '4242'", "warn"),
                               (", allow_uids: '4242', mode: '0660'", "ok"), (", allow_uids: any, mode: '0666'", "fail")):
            with self.subTest(more):
                self.assertEqual(self.doctor(self.listen(more))[1]["access"][0], expected)

    def test_more_clients_than_descriptors(self):
        for clients, expected in ((448, ("ok", "1024 descriptors; 448 clients need 1024")),
                                  (449, ("warn", "1024 descriptors; 449 clients may need 1026"))):
            found = self.doctor(self.listen(f", max_clients: {clients}"), under=["prlimit", "--nofile=1024:1024"])[1]
            self.assertEqual(found["clients"], expected)


if __name__ == "__main__":
    if not CLIENT:
        print("usage: story_serve.py PATH-OF-FOREBAY PATH-OF-SERVE-CLIENT")
        sys.exit(2)
    main()
