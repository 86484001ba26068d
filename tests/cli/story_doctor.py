#!/usr/bin/env python3
"""The doctor: a right machine, wrong configurations, and stores that are missing, exposed, slow or in use."""
import fcntl
import json
import os
import shutil
import subprocess
import sys
import unittest

from servers import SERVER, free_port, pages, redis
from story import FOREBAY, Story, main

MODEL = """\
model: {id: m, revision: r, kv_dtype: bf16, block_tokens: 16, layer_set: all, layout: x, weights_epoch: 0, tp_size: 1,
  cp_size: 1, pp_size: 1, groups: 'kv:8KiB:all'}
"""


class Doctor(Story):
    def doctor(self, *arguments, environment=None):
        """Exit code, and per check its findings as (result, found, change)."""
        done = self.run_forebay("doctor", *arguments, "--json", environment=environment)
        self.assertEqual(done.stderr, "")
        answer = json.loads(done.stdout)
        self.assertEqual(answer["ok"], done.returncode == 0)
        results = [check["result"] for check in answer["checks"]]
        self.assertEqual((answer["failed"], answer["warned"]), (results.count("fail"), results.count("warn")))
        findings = {}
        for check in answer["checks"]:
            self.assertEqual(check["change"] is None and check["result"] == "fail", False, check)
            findings.setdefault(check["check"], []).append((check["result"], check["found"], check["change"]))
        return done.returncode, findings

    def executable(self, name, text):
        path = self.file(name, text)
        os.chmod(path, 0o755)
        return path

    # ---- Machine, configuration, programs

    def test_a_machine_without_a_store(self):
        code, found = self.doctor()
        self.assertEqual(code, 0)
        self.assertEqual([name for name in found if name in ("memory", "locked memory", "huge pages", "cores", "open files")],
                         ["memory", "locked memory", "huge pages", "cores", "open files"])
        self.assertNotIn("driver", found)
        text = self.succeeds("doctor").splitlines()
        self.assertEqual(text[0], "machine")
        self.assertRegex(text[-1], r"^\d+ ok, \d+ to look at, 0 wrong$")

    def test_few_open_files(self):
        command = ["sh", "-c", 'ulimit -n 512; exec "$0" doctor --json', FOREBAY]
        answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout)
        found = [check for check in answer["checks"] if check["check"] == "open files"]
        self.assertEqual([(check["result"], check["found"]) for check in found],
                         [("warn", "512 descriptors: a store of many segments, or many connections, needs more")])

    def test_a_wrong_configuration(self):
        config = self.file("f.yaml", MODEL + "prefetch: {policy: eager}\nstore: {options: {dir: nowhere/at/all}}\n")
        code, found = self.doctor("--config", config)
        self.assertEqual(code, 1)
        self.assertEqual(found["file"][0][:2],
                         ("fail", f'{config}:3: prefetch.policy: "eager" is not known; accepted: one of wait_complete, timeout, '
                                  "best_effort, break_even"))
        self.assertNotIn("driver", found)

    def test_a_right_configuration(self):
        config = self.file("f.yaml", MODEL + f"pool: {{bytes: 16MiB}}\nstore: {{options: {{dir: {self.path}/d}}}}\n")
        code, found = self.doctor("--config", config)
        self.assertEqual((code, found["file"]), (0, [("ok", f"{config} is right", None)]))
        self.assertEqual(found["directory"], [("ok", f"{self.path}/d is not there yet and will be made", None)])
        self.assertRegex(found["memory"][0][1], r"; the pool takes 16MiB$")

    def test_a_pool_that_does_not_fit(self):
        config = self.file("f.yaml", MODEL + "pool: {bytes: 512TiB}\nstore: {driver: mem}\n")
        code, found = self.doctor("--config", config)
        self.assertEqual((code, found["memory"][0][0]), (1, "fail"))
        self.assertRegex(found["memory"][0][1], r"^pool: \d+ bytes are asked for, the .* has \d+$")

    def test_programs_are_looked_for_where_the_runtime_looks(self):
        empty = {"FOREBAY_LIBEXEC": str(self.path)}
        code, found = self.doctor("--store", "mem@agent", environment=empty)
        self.assertEqual((code, found["agent"][0][0]), (1, "fail"))
        self.assertIn("forebay-agent", found["agent"][0][1])
        self.executable("forebay-agent", "#!/bin/sh\n")
        code, found = self.doctor("--store", "mem@agent", environment=empty)
        self.assertEqual((code, found["agent"]), (0, [("ok", f"{self.path}/forebay-agent", None)]))
        _, found = self.doctor("--store", "mem")
        self.assertNotIn("agent", found)

    def test_wrong_usage(self):
        hint = "\nTry `forebay doctor --help`.\n"
        self.fails(2, "forebay doctor: --config and --store both name a store; accepted: one of them" + hint,
                   "doctor", "--config", "f", "--store", "mem")
        self.fails(2, "forebay doctor: --metrics belongs to a store mooncake; accepted: with --store or --config of one" + hint,
                   "doctor", "--store", "mem", "--metrics", "127.0.0.1:1")
        done = self.run_forebay("doctor", "--store", "redis:password=hush,ed")
        self.assertEqual((done.returncode, "hush" in done.stderr, "ed\"" in done.stderr), (2, False, False))

    # ---- file

    def test_a_directory_that_can_be_used(self):
        self.run_forebay("demo", "--tokens", "256", "--store", f"file:{self.path}/d")
        code, found = self.doctor("--store", f"file:{self.path}/d")
        self.assertEqual((code, found["directory"]), (0, [("ok", f"{self.path}/d can be written", None)]))
        self.assertRegex(found["space"][0][1], rf"^{self.path}/d: \d+ MiB free, \d+ MiB in use$")
        self.assertEqual(len(found["engine"]), 1)

    def test_directories_that_cannot(self):
        self.file("plain", "")
        for text, expected in ((f"file:{self.path}/plain", f"{self.path}/plain is no directory"),
                               (f"file:{self.path}/no/where", f"{self.path}/no/where is not there and cannot be made: No such file or "
                                                              "directory"),
                               ("file:", "none is named")):
            code, found = self.doctor("--store", text)
            self.assertEqual((code, found["directory"][0][:2]), (1, ("fail", expected)))

    def test_a_directory_that_is_in_use(self):
        self.run_forebay("demo", "--tokens", "256", "--store", f"file:{self.path}/d")
        with open(self.path / "d" / "forebay.lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            code, found = self.doctor("--store", f"file:{self.path}/d")
        self.assertEqual((code, [result for result, *_ in found["directory"]]), (0, ["ok", "warn"]))
        self.assertIn("is in use by process", found["directory"][1][1])

    def test_options_that_a_file_store_does_not_know(self):
        os.mkdir(self.path / "d")
        code, found = self.doctor("--store", f"file:{self.path}/d,capcity=1GiB")
        self.assertEqual((code, found["directory"][1][0]), (1, "fail"))
        self.assertIn("capcity", found["directory"][1][1])
        self.assertEqual(os.listdir(self.path / "d"), [])

    def test_more_capacity_than_there_is(self):
        os.mkdir(self.path / "d")
        code, found = self.doctor("--store", f"file:{self.path}/d,capacity=100000TiB")
        self.assertEqual((code, found["space"][0][0]), (0, "warn"))
        self.assertIn("it will evict before it is full", found["space"][0][1])

    # ---- redis

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_a_redis_that_is_set_up_well(self):
        with redis(self.path, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--requirepass", "hush") as port:
            code, found = self.doctor("--store", f"redis:host=127.0.0.1,port={port},password=hush")
        self.assertEqual((code, {name: [one[0] for one in found[name]] for name in found if name in REDIS_CHECKS}),
                         (0, {name: ["ok"] for name in REDIS_CHECKS}))
        self.assertEqual(found["connection"][0][1], f"127.0.0.1:{port} answers, the login is right")
        self.assertRegex(found["server"][0][1], r"^(Redis|Valkey) \d+\.\d+\.\d+, master$")
        self.assertEqual(found["memory limit"][0][1], "64MiB, allkeys-lru")
        self.assertEqual(found["access"][0][1], "loopback only; a login is needed")

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_a_redis_with_every_bad_setting(self):
        # A '-' makes an address that this machine has not be left out: the server listens on loopback all the same.
        settings = ("--bind", "127.0.0.1 -192.0.2.1", "--protected-mode", "no", "--maxmemory", "64mb", "--appendonly", "yes",
                    "--appendfsync", "always", "--save", "60 1000")
        with redis(self.path, *settings) as port:
            code, found = self.doctor("--store", f"redis:host=127.0.0.1,port={port}")
            text = self.run_forebay("doctor", "--store", f"redis:host=127.0.0.1,port={port}").stdout
        self.assertEqual(code, 1)
        self.assertEqual(found["memory limit"][0][:2], ("warn", "64MiB, noeviction: puts fail when it is full"))
        self.assertEqual([one[:2] for one in found["persistence"]],
                         [("warn", "appendonly is on, appendfsync always: every put is synced to disk before it is answered"),
                          ("warn", 'save is "60 1000": it forks, copies what changes meanwhile, and writes everything to disk')])
        self.assertEqual(found["access"][0][:2],
                         ("fail", 'listens on "127.0.0.1 -192.0.2.1" without a password and without protected mode: whoever '
                                  "reaches it can read and change everything"))
        self.assertIn("-> requirepass or ACL users, and bind to a private network", text)

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_a_redis_that_protects_itself_and_evicts_what_expires(self):
        settings = ("--bind", "127.0.0.1 -192.0.2.1", "--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru")
        with redis(self.path, *settings) as port:
            code, found = self.doctor("--store", f"redis:port={port}")
            _, expiring = self.doctor("--store", f"redis:port={port},ttl_s=60")
        self.assertEqual((code, found["access"][0][0], found["memory limit"][0][0]), (0, "warn", "warn"))
        self.assertIn("only its protected mode keeps others out", found["access"][0][1])
        self.assertIn("only keys that expire are evicted and ours do not", found["memory limit"][0][1])
        self.assertEqual(expiring["memory limit"], [("ok", "64MiB, volatile-lru", None)])

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_logins_that_fail_and_passwords_that_stay_hidden(self):
        with redis(self.path, "--requirepass", "hush") as port:
            code, found = self.doctor("--store", f"redis:port={port}")
            self.assertEqual((code, found["connection"][0][:2]), (1, ("fail", f"127.0.0.1:{port} wants a login")))
            for option in ("password=wrongword", "username=nobody,password=wrongword", "tls=on,password=wrongword"):
                done = self.run_forebay("doctor", "--store", f"redis:port={port},{option}")
                self.assertEqual((done.returncode, "wrongword" in done.stdout + done.stderr), (1, False))

    @unittest.skipIf(SERVER is None or shutil.which("openssl") is None, "redis-server or openssl is not there")
    def test_tls_with_and_without_verifying(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out",
                        "cert.pem"], cwd=self.path, check=True, stderr=subprocess.DEVNULL, timeout=60)
        port = free_port()
        with redis(self.path, "--port", "0", "--tls-port", str(port), "--tls-cert-file", f"{self.path}/cert.pem", "--tls-key-file",
                   f"{self.path}/key.pem", "--tls-auth-clients", "no"):
            _, trusted = self.doctor("--store", f"redis:port={port},tls=on,tls_ca={self.path}/cert.pem")
            _, unverified = self.doctor("--store", f"redis:port={port},tls=on,tls_verify=off")
            code, stranger = self.doctor("--store", f"redis:port={port},tls=on")
        self.assertEqual((trusted["connection"][0][0], trusted["TLS"]), ("ok", [("ok", "on", None)]))
        self.assertEqual((unverified["connection"][0][0], unverified["TLS"][0][0]), ("ok", "warn"))
        self.assertEqual((code, stranger["connection"][0][0]), (1, "fail"))

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_a_user_that_may_not_look(self):
        with redis(self.path, "--user", "reader", "on", ">hush", "~fby:*", "+get", "+set") as port:
            code, found = self.doctor("--store", f"redis:port={port},username=reader,password=hush")
        self.assertEqual((code, found["connection"][0][0]), (0, "ok"))
        for name in ("server", "memory limit", "persistence", "access"):
            self.assertEqual(found[name][0][0], "warn")
            self.assertIn("this check", found[name][0][2])

    def test_a_redis_that_is_not_there(self):
        port = free_port()
        code, found = self.doctor("--store", f"redis:port={port}")
        self.assertEqual((code, found["connection"][0][0]), (1, "fail"))
        self.assertIn("Connection refused", found["connection"][0][1])
        self.assertNotIn("server", found)

    # ---- mooncake

    def mooncake(self, *options, metrics=None):
        return self.doctor("--store", ",".join([f"mooncake:master=127.0.0.1:{free_port()}", *options]),
                           *(["--metrics", metrics] if metrics else []))

    def test_no_interpreter_and_no_master(self):
        code, found = self.mooncake("python=/no/such/python")
        self.assertEqual((code, found["interpreter"][0][:2]), (1, ("fail", "/no/such/python cannot be run")))
        self.assertEqual(found["master"][0][0], "fail")
        self.assertRegex(found["master"][0][1], r"^127\.0\.0\.1:\d+ does not answer: Connection refused$")
        self.assertEqual(found["storage nodes"][0][0], "warn")

    def test_interpreters_and_wheels(self):
        bare = self.executable("bare", f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
        _, found = self.mooncake(f"python={bare}")
        self.assertEqual([one[0] for one in found["interpreter"]], ["ok", "fail"])
        self.assertIn("Mooncake's wheel is not installed in it: ModuleNotFoundError", found["interpreter"][1][1])
        for answer, expected in (("3.12.1\\n0.3.13.post1\\n\\n", ("ok", "the wheel 0.3.13.post1 loads")),
                                 ("3.12.1\\n0.3.12\\n\\n", ("warn", "the wheel loads; its version is 0.3.12, tested was "
                                                                      "0.3.13.post1")),
                                 ("3.12.1\\n0.3.13.post1\\nImportError: libibverbs.so.1\\n",
                                  ("fail", "the wheel 0.3.13.post1 is installed and does not load: ImportError: libibverbs.so.1"))):
            fake = self.executable("fake", f"#!/bin/sh\nprintf '{answer}'\n")
            _, found = self.mooncake(f"python={fake}")
            self.assertEqual([one[:2] for one in found["interpreter"]], [("ok", f"{fake}, Python 3.12.1"), expected])
        dying = self.executable("dying", "#!/bin/sh\nexit 3\n")
        _, found = self.mooncake(f"python={dying}")
        self.assertEqual(found["interpreter"][0][:2], ("fail", f"{dying} ended with status 3 before it said what it has"))

    def test_the_interpreter_gets_the_environment_of_the_options(self):
        fake = self.executable("fake", "#!/bin/sh\nprintf '%s\\n0.3.13.post1\\n\\n' \"$MC_X\"\n")
        _, found = self.mooncake(f"python={fake}", "env.MC_X=from=the:options")
        self.assertEqual(found["interpreter"][0][1], f"{fake}, Python from=the:options")

    def test_what_the_master_says(self):
        ready = '{"status":"ok","service_ready":true}'
        with pages({"/health": ready, "/get_all_segments": "127.0.0.1:12593\n127.0.0.1:12594\n"}) as metrics:
            _, found = self.mooncake("python=/no", metrics=metrics)
        self.assertEqual(found["master's health"], [("ok", "ready", None)])
        self.assertEqual(found["storage nodes"], [("ok", "2", None)])
        with pages({"/health": ready.replace("true", "false"), "/get_all_segments": "\n"}) as metrics:
            _, found = self.mooncake("python=/no", metrics=metrics)
        self.assertEqual((found["master's health"][0][0], found["storage nodes"][0][0]), ("fail", "fail"))
        with pages({}) as metrics:
            _, found = self.mooncake("python=/no", metrics=metrics)
        self.assertEqual(found["storage nodes"][0][:2], ("fail", f"http://{metrics}/get_all_segments: status 404"))

    def test_settings_that_cost_speed(self):
        code, found = self.mooncake("env.MC_TCP_ENABLE_CONNECTION_POOL=0", "env.MC_TCP_SLICE_SIZE=65536", "lease_ms=60000")
        self.assertEqual((code, [one[0] for one in found["transfer"]]), (1, ["warn", "warn"]))
        self.assertEqual(found["lease"][0][0], "ok")
        config = self.file("f.yaml", MODEL + "store: {driver: mooncake, batch: 2048, options: {lease_ms: 1000}}\n")
        _, found = self.doctor("--config", config)
        self.assertEqual((found["batch"][0][0], found["lease"][0][0]), ("warn", "warn"))
        self.assertEqual(found["object size"][0][:2], ("warn", "blocks of group kv have 8192 bytes"))
        self.assertEqual(found["transfer"][0][0], "ok")

    def test_options_that_mooncake_does_not_know(self):
        code, found = self.mooncake("mster=x")
        self.assertEqual((code, found["driver"][0][0]), (1, "fail"))
        self.assertIn("mster", found["driver"][0][1])


REDIS_CHECKS = ("connection", "server", "memory limit", "persistence", "access", "TLS")

if __name__ == "__main__":
    main()
