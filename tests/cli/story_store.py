#!/usr/bin/env python3
"""A store from outside: listed, verified, found faulty after a flipped bit, tidied. Reading changes nothing."""
import json
import os
import pathlib
import subprocess
import sys

MAKE_STORE = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else ""

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

    def test_wrong_ways_to_name_a_store(self):
        hint = "\nTry `forebay store ls --help`.\n"
        self.fails(2, "forebay store ls: no store is named; accepted: DIRECTORY, --driver with --option, or --config FILE" + hint,
                   "store", "ls")
        self.fails(2, "forebay store ls: --config stands beside another way to name the store; accepted: --config, or DIRECTORY, "
                      "or --driver with --option" + hint, "store", "ls", "d", "--config", "f")
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
