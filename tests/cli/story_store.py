#!/usr/bin/env python3
"""A store from outside: listed, verified, found faulty after a flipped bit, tidied. Reading changes nothing."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

MAKE_STORE = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else ""

from servers import SERVER, ask_redis, free_port, redis  # noqa: E402
from story import Story, main  # noqa: E402 (takes its own argument)

PAYLOAD = 8192


class Store(Story):
    def made(self, count):
        directory = str(self.path / "store")
        subprocess.run([MAKE_STORE, directory, str(count)], check=True, timeout=60)
        return directory

    def contents(self, directory):
        return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir()}

    def flip_a_payload_bit(self, directory, byte):
        """Object n is filled with n: its first run of that byte is its payload."""
        for path in pathlib.Path(directory).glob("segment-*"):
            at = path.read_bytes().find(bytes([byte]) * PAYLOAD)
            if at >= 0:
                with open(path, "r+b") as file:
                    file.seek(at + 5)
                    file.write(bytes([byte ^ 1]))
                return
        self.fail("object not found")

    def test_it_is_listed_and_not_changed(self):
        directory = self.made(3)
        before = self.contents(directory)
        listing = json.loads(self.succeeds("store", "ls", directory, "--json"))
        self.assertEqual((listing["count"], listing["bytes"]), (3, 3 * (PAYLOAD + 64)))
        self.assertEqual([row["key"] for row in listing["objects"]], sorted(row["key"] for row in listing["objects"]))
        fingerprint = b"fingerprint-one\0".hex()
        for row in listing["objects"]:
            self.assertEqual({k: v for k, v in row.items() if k != "key"},
                             {"bytes": PAYLOAD + 64, "trailer": "ok", "group": 0, "payload_bytes": PAYLOAD,
                              "fingerprint": fingerprint, "checksum": True})
        text = self.succeeds("store", "ls", "--driver", "file", "--option", f"dir={directory}").splitlines()
        self.assertEqual(len(text), 5)
        self.assertEqual(text[-1], f"3 objects, {3 * (PAYLOAD + 64)}B")
        self.assertEqual(self.contents(directory), before)

    def test_verify_finds_a_flipped_bit_and_gc_drops_it(self):
        directory = self.made(4)
        self.assertEqual(self.succeeds("store", "verify", directory), f"4 objects, {4 * (PAYLOAD + 64)}B: 4 good, 0 faulty\n")
        self.flip_a_payload_bit(directory, 2)
        done = self.run_forebay("store", "verify", directory, "--json")
        verdict = json.loads(done.stdout)
        self.assertEqual((done.returncode, verdict["objects"], verdict["good"], len(verdict["faults"])), (1, 4, 3, 1))
        self.assertEqual(verdict["faults"][0]["fault"], "checksum")
        self.assertEqual(json.loads(self.succeeds("store", "gc", directory, "--json"))["text"].split(",")[0],
                         "1 unreadable objects dropped")
        self.assertEqual(json.loads(self.succeeds("store", "verify", directory, "--json")),
                         {"objects": 3, "bytes": 3 * (PAYLOAD + 64), "good": 3, "faults": []})

    def test_gc_gives_back_what_is_empty(self):
        directory = self.made(0)
        out = json.loads(self.succeeds("store", "gc", directory, "--json"))
        self.assertEqual(out["freed_bytes"], 0)

    def test_a_store_named_by_a_configuration(self):
        directory = self.made(1)
        config = self.file("f.yaml", f"""\
model: {{id: m, revision: r, kv_dtype: bf16, block_tokens: 16, layer_set: all, layout: x, weights_epoch: 0, tp_size: 1,
  cp_size: 1, pp_size: 1, groups: 'kv:8KiB:all'}}
store: {{options: {{dir: {directory}}}}}
""")
        self.assertEqual(json.loads(self.succeeds("store", "ls", "--config", config, "--json"))["count"], 1)

    def test_a_store_named_by_a_text(self):
        directory = self.made(2)
        for text in (f"file:{directory}", f"file@agent:dir={directory}", f"fault:file:{directory},latency_ms=1"):
            self.assertEqual(json.loads(self.succeeds("store", "ls", "--store", text, "--json"))["count"], 2)
        verdict = self.succeeds("store", "verify", "--store", "env", "--json", environment={"FOREBAY_STORE": f"file:{directory}"})
        self.assertEqual(json.loads(verdict)["good"], 2)
        self.assertEqual(json.loads(self.succeeds("store", "gc", "--store", f"file:{directory}", "--json"))["freed_bytes"], 0)
        self.assertEqual(self.succeeds("store", "ls", "--store", "mem").splitlines()[-1], "0 objects, 0B")

    @unittest.skipIf(SERVER is None, "neither redis-server nor valkey-server is there")
    def test_a_redis_is_listed_verified_and_tidied(self):
        with redis(self.path, "--requirepass", "hush") as port:
            store = f"redis:host=127.0.0.1,port={port},password=hush"
            demo = self.succeeds("demo", "--tokens", "512", "--queue", "0", "--store", store, "--json")
            self.assertEqual(json.loads(demo)["store"], f"redis:host=127.0.0.1,port={port},password=(set)")
            ask_redis(port, "SET", "somebody", "else's", password="hush")
            listing = json.loads(self.succeeds("store", "ls", "--store", store, "--json"))
            self.assertEqual((listing["count"], {row["trailer"] for row in listing["objects"]}), (32, {"ok"}))
            keys = sorted(ask_redis(port, "KEYS", "fby:*", password="hush"))
            self.assertEqual([key.decode()[len("fby:"):] for key in keys], [row["key"] for row in listing["objects"]])
            payload = listing["objects"][0]["payload_bytes"]
            ask_redis(port, "SETRANGE", keys[3], 5, b"\0\xff\0\xff", password="hush")
            ask_redis(port, "SETRANGE", keys[7], payload, b"no trailer", password="hush")
            done = self.run_forebay("store", "verify", "--store", "env", "--json", environment={"FOREBAY_STORE": store})
            verdict = json.loads(done.stdout)
            self.assertEqual((done.returncode, done.stderr, verdict["good"]), (1, "", 30))
            self.assertEqual([fault["key"] for fault in verdict["faults"]],
                             [listing["objects"][3]["key"], listing["objects"][7]["key"]])
            self.assertEqual(verdict["faults"][0]["fault"], "checksum")
            tidied = json.loads(self.succeeds("store", "gc", "--store", store, "--json"))
            self.assertEqual(tidied["freed_bytes"], payload + 64)
            self.assertEqual(json.loads(self.succeeds("store", "ls", "--store", store, "--json"))["count"], 31)
            self.assertEqual(ask_redis(port, "GET", "somebody", password="hush"), b"else's")

    def test_a_redis_that_is_not_there(self):
        port = free_port()
        done = self.run_forebay("store", "ls", "--store", f"redis:host=127.0.0.1,port={port},password=hush")
        self.assertEqual((done.returncode, done.stdout, "hush" in done.stderr), (1, "", False))
        self.assertIn(f"127.0.0.1:{port}", done.stderr)

    def test_a_driver_that_cannot_says_so(self):
        self.fails(1, "forebay store gc: store driver mem has nothing that tidies; accepted: a driver that has, as file and redis\n",
                   "store", "gc", "--store", "mem")
        self.fails(1, "forebay store ls: store driver mooncake runs in an agent only and cannot be looked at from here: its client "
                      "can hang, and tells nobody what the store holds. `forebay doctor` with the same --store or --config checks "
                      "the store; `forebay replay` and `forebay demo` check every byte that they read from it\n",
                   "store", "ls", "--store", "mooncake:master=127.0.0.1:50051")
        done = self.run_forebay("store", "ls", "--store", "nosuch:password=hush")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("hush", done.stderr)

    def test_wrong_ways_to_name_a_store(self):
        hint = "\nTry `forebay store ls --help`.\n"
        self.fails(2, "forebay store ls: no store is named; accepted: DIRECTORY, --store TEXT, --driver with --option, or --config "
                      "FILE" + hint, "store", "ls")
        two = ("forebay store ls: more than one way to name the store; accepted: one of DIRECTORY, --store TEXT, --driver with "
               "--option, --config FILE" + hint)
        self.fails(2, two, "store", "ls", "d", "--config", "f")
        self.fails(2, two, "store", "ls", "d", "--store", "mem")
        self.fails(2, two, "store", "ls", "--config", "f", "--store", "env")
        self.fails(2, "forebay store ls: --option has no '='; accepted: --option KEY=VALUE" + hint, "store", "ls", "--option", "dir")
        self.fails(2, "forebay store ls: DIRECTORY belongs to the driver file; accepted: --driver with --option dir=DIRECTORY" +
                   hint, "store", "ls", "--driver", "mem", "d")

    def test_a_directory_that_is_not_there_is_not_made(self):
        done = self.run_forebay("store", "ls", "nowhere")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nowhere", done.stderr)
        self.assertFalse(os.path.exists(self.path / "nowhere"))
        done = self.run_forebay("store", "ls", "--driver", "nosuch")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nosuch", done.stderr)


if __name__ == "__main__":
    main()
