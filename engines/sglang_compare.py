#!/usr/bin/env python3
"""SGLang's HiCache backends and Forebay side by side: the same work on the same server, in one run.

    scripts/with-engine sglang python engines/sglang_compare.py            the table (15 minutes on two cores)
    scripts/with-engine sglang python engines/sglang_compare.py --json     the same as one JSON object
    scripts/with-engine sglang python engines/sglang_compare.py --quick    every part once, on a tiny model

Each arm is a whole server of its own: without a store; HiCache with its file and its mooncake backend; Forebay as the
radix cache, and as HiCache's dynamic backend, on the same kinds of store. docs/sglang-compare.md says what is done to
them, what is measured, and in what the comparison is not even.

Exit 0: measured. 1: an arm could not be measured, or gave other tokens than the server without a store; the table says
which. 2: wrong arguments. 69: nothing can be measured here.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import compare_figures
import compare_parts
import models
import real
from compare_arms import ARMS, POLICIES, Arm, Place, can_slow_links, link_wheel, missing, options, variables
from compare_faults import Disk, Fault, Link, NotHereError
from compare_parts import Work
from compare_samples import Samples
from compare_server import Watched, kv_token_bytes, on_path
from sglang_server import Engine

HERE = Path(__file__).resolve().parent
UNAVAILABLE = 69
MOONCAKE = "FOREBAY_WITH_STORE_MOONCAKE"
STORE_SIZE = "4GiB"
PASS_TOKENS = 512  # that the engine computes at once: what is beyond waits in its queue, where prefetching is for
REPEATED_POLICY = "wait_complete"  # what is measured once for an arm is measured under it


@dataclass(frozen=True)
class Size:
    """How much work. Times are in seconds, lengths in tokens."""

    model: str
    families: int
    prefix: int
    each: int
    gap_s: float
    slow: int
    ahead: int
    repetitions: int
    hang_s: float
    aborts: int
    restore_s: float
    timeout_s: float
    device_tokens: int


FULL = Size("smollm2", 6, 256, 3, 0.05, 4, 80, 3, 8.0, 1000, 0.75, 0.5, 8192)
QUICK = Size("tiny-llama", 3, 128, 2, 0.02, 2, 80, 1, 3.0, 50, 0.5, 0.25, 4096)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="prints one JSON object")
    form.add_argument("--markdown", action="store_true", help="prints the table for a document")
    parser.add_argument("--quick", action="store_true", help="shows that it works; its figures mean nothing")
    parser.add_argument("--arms", default=",".join(name for name in ARMS if name != "dynamic-mooncake"),
                        help="which, between commas (all but dynamic-mooncake)")  # fmt: skip
    parser.add_argument("--policies", default=",".join(POLICIES), help="which, between commas (all)")
    parser.add_argument("--parts", default="queue,slow,hang,aborts", help="which, between commas (all)")
    parser.add_argument("--repetitions", type=int, help=f"of queue and slow ({FULL.repetitions})")
    parser.add_argument("--model", choices=models.NAMES, help=f"({FULL.model})")
    parser.add_argument("--threads", type=int, default=1, help="computing threads of a server (1)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts, orders and intervals (1)")
    given = parser.parse_args()
    for name, known in (("arms", ARMS), ("policies", POLICIES), ("parts", ("queue", "slow", "hang", "aborts"))):
        words = [word for word in getattr(given, name).split(",") if word]
        if not words or set(words) - set(known):
            parser.error(f"--{name} {getattr(given, name)}: accepted are {', '.join(known)}")
        setattr(given, name, [word for word in known if word in words])
    return given


def say(text: str) -> None:
    """Progress, which is not part of the answer."""
    print(text, file=sys.stderr, flush=True)


class Comparison:
    """One run. `scratch` holds everything that it makes."""

    def __init__(self, given: argparse.Namespace, scratch: Path) -> None:
        self.size = QUICK if given.quick else FULL
        self._given, self._scratch = given, scratch
        self.repetitions = given.repetitions or self.size.repetitions
        self.model = models.make(given.model or self.size.model)
        self.samples = Samples()
        self.place = Place(scratch / "stores", os.environ.get(MOONCAKE, ""), 1, self.size.timeout_s, 4)
        self.work = Work(
            self.model, given.seed, self.size.families, self.size.prefix, 16, self.size.each, self.size.gap_s,
            self.size.slow, self.size.ahead, 4, 16, self.size.hang_s, self.size.aborts,
        )  # fmt: skip
        self._token_bytes = kv_token_bytes(self.model)
        self.bytes_per_s = int(self.size.prefix * self._token_bytes / self.size.restore_s)
        self._disk = Disk(self.place.directory)
        self._right: dict[int, list[list[int]]] = {}

    def facts(self) -> dict[str, str]:
        """What was run, for the reader."""
        size, prefix = self.size, self.size.prefix
        return {
            "engine": f"sglang 0.5.23 on CPUs, page size 16, fp32, passes of {PASS_TOKENS} tokens; a server for "
            "each arm, policy and repetition",
            "model": f"{self.model.name}, {self._token_bytes} bytes of KV for a token",
            "queue": f"{size.families * size.each} requests {1000 * size.gap_s:g} ms apart, {size.families} prefixes "
            f"of {prefix} tokens, 16 tokens behind each; policy {REPEATED_POLICY}",
            "slow": f"a store of {self.bytes_per_s / 1e6:.1f} MB/s: {size.restore_s:g} s for a prefix; {size.slow} at "
            f"once, behind {15 * size.ahead} tokens that are computed; policy timeout: {size.timeout_s:g} s",
            "forebay": f"chunks of {self.place.chunk_blocks} pages; HiCache reads 128 pages at a time",
        }

    def _engine(self, arm: Arm, policy: str) -> Engine:
        probe = {"FOREBAY_SGLANG_PROBE": str(self._probe)}
        made = {**options(arm, policy, self.place), "schedule-policy": "fcfs"}
        return Engine(
            self.model, made, {**variables(arm, policy, self.place), **probe}, max_total_tokens=self.size.device_tokens,
            max_requests=128, chunked_prefill=PASS_TOKENS,
            threads=self._given.threads,
        )  # fmt: skip

    @property
    def _probe(self) -> Path:
        return self._scratch / "probe"

    def _fault(self, arm: Arm) -> Fault | None:
        """What slows and hangs the arm's store; None: it cannot be, or there is none."""
        if arm.store == "file":
            return self._disk
        if arm.store == "mooncake" and can_slow_links():
            return Link(int(os.environ["FOREBAY_WITH_STORE_NODE_PID"]))
        return None

    def prepare(self) -> None:
        """Variables and modules of every server, before the first one."""
        on_path(HERE / "sglang_probe")
        if self.place.mooncake:
            link_wheel(self._scratch / "wheel", os.environ["MOONCAKE_PYTHON"])
            on_path(self._scratch / "wheel")
        os.environ.update(self._disk.environment())
        for name, arm in ARMS.items():
            (self.place.directory / name).mkdir(exist_ok=True)
            reason = missing(arm, self.place)
            if reason and name in self._given.arms:
                self.samples.failed[name] = reason
        if self.place.mooncake and not can_slow_links():
            self.samples.notes.append(
                "Mooncake is not slowed and not hung: that needs a network namespace (scripts/with-store) and tc "
                "(Debian package: iproute2)"
            )

    def run(self) -> None:
        """Everything; what cannot be measured is noted."""
        for repetition in range(self.repetitions):
            names = [name for name in self._given.arms if name not in self.samples.failed and name != "none"]
            random.Random(f"{self._given.seed}/{repetition}").shuffle(names)
            for name in [name for name in self._given.arms if name == "none"] + names:
                for policy in self._policies(name, repetition):
                    if name not in self.samples.failed:
                        self._try(ARMS[name], policy, repetition)

    def _policies(self, name: str, repetition: int) -> list[str]:
        """In the order in which servers are started. The first one fills the store, which needs a policy that waits."""
        others = [policy for policy in self._given.policies if policy != REPEATED_POLICY]
        needs_first = name == "none" or repetition == 0 or REPEATED_POLICY in self._given.policies
        return [*([REPEATED_POLICY] if needs_first else []), *(others if name != "none" else [])]

    def _try(self, arm: Arm, policy: str, repetition: int) -> None:
        log = self._scratch / f"{arm.name}.{policy}.{repetition}.log"
        begun = time.monotonic()
        try:
            with Watched(self._engine(arm, policy), self._probe, log, self._token_bytes) as watched:
                self._measure(watched, arm, policy, repetition)
        except Exception as problem:
            text = " ".join(str(problem).split())
            self.samples.failed[arm.name] = f"{policy}: {type(problem).__name__}: {text[-400:]}"
            say(f"{arm.name} {policy}: failed\n{problem}\n{_tail(log)}")
        finally:
            self._disk.heal()
        say(f"{repetition + 1}/{self.repetitions} {arm.name} {policy}: {time.monotonic() - begun:.0f} s")

    def _measure(self, watched: Watched, arm: Arm, policy: str, repetition: int) -> None:
        parts, is_last = self._given.parts, repetition == self.repetitions - 1
        if arm.surface == "none" or policy != REPEATED_POLICY:
            compare_parts.warm(watched, self.work, f"{policy}/{repetition}")
        elif not compare_parts.fill(watched, self.work):
            raise RuntimeError("its store does not give back every prefix that it was given")
        if policy not in self._given.policies:
            return
        if "queue" in parts and policy == REPEATED_POLICY:
            self._queue(watched, arm, repetition)
        fault = self._fault(arm)
        if fault is None:
            return
        if "slow" in parts:
            found = compare_parts.slow(watched, self.work, fault, self.bytes_per_s, f"slow/{policy}/{repetition}")
            self.samples.slow.setdefault((arm.name, policy), []).append(found)
        if "aborts" in parts and is_last and policy == REPEATED_POLICY:
            self.samples.aborts[arm.name] = compare_parts.aborts(watched, self.work, fault)
        if "hang" in parts and is_last:
            self.samples.hang[arm.name, policy] = compare_parts.hang(watched, self.work, fault, f"hang/{policy}")

    def _queue(self, watched: Watched, arm: Arm, repetition: int) -> None:
        found, tokens = compare_parts.queue(watched, self.work, repetition)
        self.samples.queue.setdefault(arm.name, []).append(found)
        right = self._right.setdefault(repetition, tokens)
        self.samples.asked += len(tokens)
        self.samples.wrong += sum(mine != its for mine, its in zip(tokens, right, strict=True))


def _tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _with_store() -> int | None:
    """Runs this command again beside a Mooncake; None: there is none to be had here."""
    command = [str(HERE.parent / "scripts" / "with-store"), "mooncake", "--size", STORE_SIZE, "--"]
    with subprocess.Popen([*command, sys.executable, *sys.argv]) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()  # it prints what it has
            code = process.wait()
    return None if code == UNAVAILABLE else code


def _end_tidily() -> None:
    """The first SIGTERM or SIGINT ends the run, servers and files with it; what was measured is printed."""

    def end(number: int, frame: object) -> None:
        del number, frame
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def main() -> int:
    """The command."""
    given = _arguments()
    _end_tidily()
    if MOONCAKE not in os.environ and any(ARMS[name].store == "mooncake" for name in given.arms):
        code = _with_store()
        if code is not None:
            return code
    with tempfile.TemporaryDirectory(prefix="forebay-compare-") as scratch:
        try:
            run = Comparison(given, Path(scratch))
            run.prepare()
        except (NotHereError, real.UnavailableError) as problem:
            say(f"sglang_compare: {problem}")
            return UNAVAILABLE
        try:
            run.run()
        except KeyboardInterrupt:
            run.samples.failed["the rest"] = "the run was ended"
    made = compare_figures.report(run.samples, run.facts(), run.repetitions, given.seed)
    table = compare_figures.to_markdown if given.markdown else compare_figures.to_table
    sys.stdout.write(compare_figures.to_json(made) if given.json else table(run.samples, made, given.seed))
    return 1 if run.samples.failed or run.samples.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
