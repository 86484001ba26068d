#!/usr/bin/env python3
"""A trace through sessions: what is delivered is what an infinite cache would, on either clock, also after a kill."""
import json
import os
import pathlib
import random
import signal
import subprocess

from story import FOREBAY, Story, main, traces

CONFIG_KEYS = ["policy", "stop_mode", "chunk", "requests", "found_tokens", "planned_tokens", "loaded_tokens", "delivered_tokens",
               "consumed_tokens", "wasted_bytes", "ttft_ms", "stop_to_answer_us", "graphs", "verify_failures"]
HINT = "\nTry `forebay replay --help`.\n"
KILLS = 5


def lines_of(path):
    return pathlib.Path(path).read_text().splitlines()


def infinite(path, block_tokens, limit=None):
    """Per request: what a cache that keeps every whole block would deliver, less the last-token rule."""
    seen, out, per_id = set(), [], 512 // block_tokens
    for line in lines_of(path)[:limit]:
        request = json.loads(line)
        tokens, ids = request["input_length"], request["hash_ids"]
        blocks = [(ids[b // per_id], b % per_id) for b in range(tokens // block_tokens)]
        hit = 0
        while hit < len(blocks) and blocks[hit] in seen:
            hit += 1
        seen.update(blocks)
        out.append(min(hit, (tokens - 1) // block_tokens) * block_tokens)
    return out


def most(path, block_tokens):
    """Per request: all that the last-token rule leaves."""
    return [(json.loads(line)["input_length"] - 1) // block_tokens * block_tokens for line in lines_of(path)]


class Replay(Story):
    def trace(self, requests=60, seed=3, *more):
        path = str(self.path / f"trace-{requests}-{seed}.jsonl")
        self.succeeds("trace", "gen", "--requests", str(requests), "--seed", str(seed), "--input", "2000", "--max-input", "12000",
                      "--shared-prefix", "1000", "--think", "20", "--output-tokens", "20", *more, "--output", path)
        return path

    def details(self, name="details.jsonl"):
        return [json.loads(line) for line in lines_of(self.path / name)]

    def delivered(self, path, *arguments):
        """Per request, and checks that the sums of the JSON agree."""
        name = str(self.path / "details.jsonl")
        out = json.loads(self.succeeds("replay", path, "--policy", "wait_complete", "--serial", "--json", "--details", name,
                                       *arguments))
        rows = sorted(self.details(), key=lambda row: row["request"])
        self.assertEqual([row["request"] for row in rows], list(range(len(rows))))
        config = out["configs"][0]
        self.assertEqual(config["verify_failures"], 0)
        for key in ("found_tokens", "planned_tokens", "loaded_tokens", "delivered_tokens", "consumed_tokens"):
            self.assertEqual(config[key], sum(row[key] for row in rows), key)
        self.assertEqual(sum(row["unstored_blocks"] for row in rows), 0)
        return [row["delivered_tokens"] for row in rows]

    # ---- virtual

    def test_the_json_has_the_promised_shape(self):
        path = self.trace()
        out = json.loads(self.succeeds("replay", path, "--virtual", "--policy", "timeout,break_even", "--stop-mode", "recall,detach",
                                       "--chunk", "1,4", "--json"))
        self.assertEqual(list(out), ["trace", "configs"])
        self.assertEqual(out["trace"], path)
        self.assertEqual([(c["policy"], c["stop_mode"], c["chunk"]) for c in out["configs"]],
                         [(p, m, c) for p in ("timeout", "break_even") for m in ("recall", "detach") for c in (1, 4)])
        for config in out["configs"]:
            self.assertEqual(list(config), CONFIG_KEYS)
            self.assertEqual(list(config["ttft_ms"]), ["p50", "p95", "p99"])
            self.assertEqual(list(config["stop_to_answer_us"]), ["p50", "p99"])
            self.assertEqual((config["requests"], config["verify_failures"]), (60, 0))

    def test_one_seed_gives_the_same_bytes(self):
        arguments = ("replay", self.trace(200), "--virtual", "--policy", "best_effort", "--stop-mode", "drain,recall,detach", "--slots",
                     "2", "--pool-blocks", "100", "--store-bandwidth", "200MiB", "--jitter", "50", "--json")
        first = self.succeeds(*arguments, "--seed", "1")
        self.assertEqual(self.succeeds(*arguments, "--seed", "1"), first)
        self.assertNotEqual(self.succeeds(*arguments, "--seed", "2"), first)

    def test_serial_delivers_what_an_infinite_cache_would(self):
        path = self.trace(150, 7)
        for block_tokens in (512, 16):
            expected = infinite(path, block_tokens)
            self.assertGreater(sum(expected), 0)
            pool = str(max(most(path, block_tokens)) // block_tokens * 4 + 8)  # far less than the trace: the store has to serve
            self.assertEqual(self.delivered(path, "--virtual", "--block-tokens", str(block_tokens), "--pool-blocks", pool), expected)

    def test_serial_on_a_public_trace(self):
        if not traces():
            self.skipTest("the public traces are not there: set FOREBAY_TRACES")
        path = str(traces() / "mooncake_conversation.jsonl")
        self.assertEqual(self.delivered(path, "--virtual", "--requests", "3000"), infinite(path, 512, 3000))

    def test_a_demand_stops_best_effort_and_recall_answers_sooner(self):
        out = json.loads(self.succeeds("replay", self.trace(200), "--virtual", "--policy", "wait_complete,best_effort", "--stop-mode",
                                       "drain,recall,detach", "--slots", "4", "--decode-ms", "50", "--pool-blocks", "100",
                                       "--store-bandwidth", "300MiB", "--chunk", "2", "--json"))
        complete, _, _, drain, recall, detach = out["configs"]
        self.assertLess(drain["delivered_tokens"], complete["delivered_tokens"])
        self.assertLess(recall["stop_to_answer_us"]["p99"], drain["stop_to_answer_us"]["p99"])
        self.assertLess(detach["stop_to_answer_us"]["p99"], recall["stop_to_answer_us"]["p99"])

    def test_the_table_has_a_row_per_configuration(self):
        text = self.succeeds("replay", self.trace(), "--virtual").splitlines()
        self.assertRegex(text[0], r"^60 requests, [\d.]+ M input tokens, blocks of 512 tokens\.")
        self.assertEqual([line.split()[:3] for line in text[-2:]], [["wait_complete", "drain", "8"], ["best_effort", "drain", "8"]])

    # ---- real

    def test_real_bytes_give_the_same_deliveries_as_virtual_time(self):
        path = self.trace(40, 7)
        expected = infinite(path, 64)
        pool = str(max(most(path, 64)) // 64 * 4 + 8)
        for store in ("mem", f"file:{self.path}/store"):
            self.assertEqual(self.delivered(path, "--block-tokens", "64", "--pool-blocks", pool, "--speed", "1000", "--store", store),
                             expected)

    def test_an_open_replay_checks_every_block(self):
        path = self.trace(100)
        scratch = self.path / "scratch"
        scratch.mkdir()
        out = json.loads(self.succeeds("replay", path, "--policy", "best_effort,timeout", "--stop-mode", "recall,detach", "--speed",
                                       "50", "--slots", "4", "--pool-blocks", "100", "--json", environment={"TMPDIR": str(scratch)}))
        for config in out["configs"]:
            self.assertEqual((config["requests"], config["verify_failures"]), (100, 0))
            self.assertGreater(config["consumed_tokens"], 0)
        self.assertEqual(list(scratch.iterdir()), [])

    def test_wrong_bytes_fail_the_command(self):
        path = self.trace(100)
        done = self.run_forebay("replay", path, "--serial", "--speed", "1000", "--policy", "wait_complete", "--pool-blocks",
                                "100", "--json", "--store", "fault:mem:script=get:*:corrupt(9)",
                                environment={"FOREBAY_STORE_VERIFY": "off"})
        failures = json.loads(done.stdout)["configs"][0]["verify_failures"]
        self.assertGreater(failures, 0)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"forebay replay: {failures} blocks of policy wait_complete, stop mode drain, chunk 8 are not what was "
                             "stored\n"))

    # ---- killed

    def begin(self, *arguments, **environment):
        """A replay whose details come through a pipe, line by line."""
        pipe = str(self.path / "pipe")
        if not os.path.exists(pipe):
            os.mkfifo(pipe)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FOREBAY_")}
        process = subprocess.Popen([FOREBAY, "replay", *arguments, "--details", pipe], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**clean, **environment})
        self.addCleanup(process.kill)
        return process, open(pipe)

    def finish(self, process):
        stdout, stderr = process.communicate(timeout=60)
        return process.returncode, stdout, stderr

    def test_after_a_kill_every_committed_object_is_found_and_no_torn_one(self):
        path = self.trace(80, 11)
        rows = most(path, 64)
        pool = str(max(rows) // 64 * 4 + 8)
        store = self.path / "store"
        arguments = (path, "--policy", "wait_complete", "--serial", "--speed", "2000", "--block-tokens", "64", "--pool-blocks", pool,
                     "--store", f"file:{store}")
        chance = random.Random(20240607)
        committed = 0  # requests whose prompt was in the store
        for _ in range(KILLS):
            process, lines = self.begin(*arguments)
            seen = []
            for line in lines:
                seen.append(line)
                if len(seen) == committed + 1 + chance.randrange(10):
                    process.send_signal(signal.SIGKILL)
                    break
            seen += lines.readlines()  # what was written before the kill
            lines.close()
            self.finish(process)
            done = [json.loads(line) for line in seen if line.endswith("\n")]
            for row in done[:committed]:
                self.assertEqual(row["found_tokens"], rows[row["request"]], row)
            self.assertEqual([row["verify_failures"] for row in done], [0] * len(done))
            committed = max(committed, len(done))
            verdict = json.loads(self.succeeds("store", "verify", str(store), "--json"))
            self.assertEqual(verdict["faults"], [])
        name = str(self.path / "details.jsonl")
        out = json.loads(self.succeeds("replay", *arguments, "--details", name, "--json"))
        self.assertEqual((out["configs"][0]["requests"], out["configs"][0]["verify_failures"]), (80, 0))
        self.assertGreater(committed, KILLS)
        for row in self.details()[:committed]:
            self.assertEqual(row["found_tokens"], rows[row["request"]], row)

    def test_an_interrupt_leaves_no_scratch_directory(self):
        scratch = self.path / "scratch"
        scratch.mkdir()
        process, lines = self.begin(self.trace(), "--serial", TMPDIR=str(scratch))
        lines.readline()
        process.send_signal(signal.SIGTERM)
        lines.read()
        lines.close()
        code, stdout, stderr = self.finish(process)
        self.assertEqual((code, stdout), (1, ""))
        self.assertRegex(stderr, r"^forebay replay: interrupted after \d+ of 60 requests\n$")
        self.assertEqual(list(scratch.iterdir()), [])

    # ---- bad input

    def test_broken_traces_are_refused_by_line(self):
        line = '{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": [%s]}\n'
        for text, message in (
                ("", "t.jsonl: has no requests; accepted: one JSON object per line"),
                (line % (0, 512, "0") + "{oops\n", "t.jsonl:2: is not JSON from column 3 on; accepted: one JSON object per line"),
                (line % (0, 1024, "0, 0"), "t.jsonl:1: hash_ids[1]: 0 stands twice in this request; accepted: each id once"),
                (line % (0, 512, "-1"), "t.jsonl:1: hash_ids[0]: -1 is negative; accepted: a whole number from 0 to 2147483647"),
                (line % (0, 513, "0"), "t.jsonl:1: hash_ids: has 1 ids for input_length 513; accepted: 2, one per 512 tokens"),
                (line % (0, 0, ""), "t.jsonl:1: input_length: 0 is too small; accepted: a whole number from 1 to 16777216")):
            self.file("t.jsonl", text)
            for clock in ((), ("--virtual",)):
                self.assertEqual(self.fails(1, f"forebay replay: {message}\n", "replay", "t.jsonl", *clock), "")
        self.fails(1, "forebay replay: nowhere: cannot be read: No such file or directory; accepted: a file of JSON lines\n", "replay",
                   "nowhere")

    def test_options_are_checked(self):
        path = self.trace()
        for message, arguments in (
                ('--policy: "wait,best_effort" is not known; accepted: some, separated by commas, of wait_complete, timeout, '
                 "best_effort, break_even", ("--policy", "wait,best_effort")),
                ('--stop-mode: "stop" is not known; accepted: some, separated by commas, of drain, recall, detach',
                 ("--stop-mode", "stop")),
                ("--block-tokens: 48 does not divide 512; accepted: 1, 2, 4, 8, 16, 32, 64, 128, 256, 512", ("--block-tokens", "48")),
                ("--token-bytes: 1073741824 makes blocks of more than 1GiB; accepted: up to 2097152", ("--token-bytes", "1GiB")),
                ("--seed belongs to the simulated store; accepted: with --virtual", ("--seed", "1")),
                ("--store-bandwidth belongs to the simulated store; accepted: with --virtual", ("--store-bandwidth", "1GiB")),
                ("--store belongs to the real clock; accepted: without --virtual", ("--virtual", "--store", "mem")),
                ("--speed belongs to the real clock; accepted: without --virtual", ("--virtual", "--speed", "2")),
                ("--speed: 0 is too small; accepted: a number from 0.001 to 1000000", ("--speed", "0")),
                ("--prefill-tokens-per-s: 0.5 is too small; accepted: a number from 1 to 1000000000",
                 ("--prefill-tokens-per-s", "0.5")),
                ('--chunk: "0" is too small; accepted: 1 to 64 whole numbers from 1 to 65536, separated by commas', ("--chunk", "0"))):
            self.assertEqual(self.fails(2, f"forebay replay: {message}{HINT}", "replay", path, *arguments), "")

    def test_a_pool_that_cannot_hold_the_longest_prompt_is_refused(self):
        path = self.file("t.jsonl", '{"timestamp": 0, "input_length": 5120, "output_length": 1, "hash_ids": [%s]}\n' %
                         ", ".join(map(str, range(10))))
        for clock in ((), ("--virtual",)):
            self.fails(2, "forebay replay: --pool-blocks: 39 is too small for the longest prompt, which has 10 blocks; accepted: 40 or "
                          "more (4 times that)" + HINT, "replay", path, "--pool-blocks", "39", *clock)
            self.succeeds("replay", path, "--pool-blocks", "40", *clock, *(() if clock else ("--speed", "1000")))

    def test_prompts_shorter_than_a_block_pass(self):
        path = self.file("t.jsonl", "".join('{"timestamp": %d, "input_length": %d, "output_length": 0, "hash_ids": [%d]}\n' % row
                                            for row in ((0, 1, 0), (0, 511, 1), (5, 512, 2), (9, 512, 2))))
        for clock in (("--speed", "1000"), ("--virtual",)):
            self.assertEqual(self.delivered(path, *clock), [0, 0, 0, 0])  # the last token is always computed

    def test_it_explains_itself_with_examples(self):
        text = self.succeeds("replay", "--help")
        self.assertTrue(text.startswith("Usage: forebay replay TRACE [options]\n"), text)
        self.assertIn("\nExamples:\n  forebay replay ", text)

    def test_details_that_cannot_be_written(self):
        self.fails(1, 'forebay replay: --details: "no/where" cannot be written: No such file or directory\n', "replay", self.trace(),
                   "--virtual", "--details", "no/where")
        done = self.run_forebay("replay", self.trace(), "--virtual", "--details", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--details: the file could not be written", done.stderr)


if __name__ == "__main__":
    main()
