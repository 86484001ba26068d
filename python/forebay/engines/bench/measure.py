"""What is measured: the cost of being asked, of saving, and the time to the first token. Arms take turns in one run."""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .process import EngineError, EngineProcess

WAITING = 256
STUCK_BLOCKS = 8
ANSWER_TOKENS = 8
FIRST_ID = 3  # below are special tokens
REST_S = 0.3
"""Between arms: computing threads of the engine that has just run look for work about as long before they sleep."""

POOL, KV_BYTES, BUILTIN_BYTES = "512MiB", 512 << 20, 512 << 20
BUILTIN = {
    "OffloadingConnector": {"cpu_bytes_to_use": BUILTIN_BYTES},
    "SimpleCPUOffloadConnector": {"cpu_bytes_to_use": BUILTIN_BYTES},
}
"""vLLM's own connectors that offload to CPU memory, with their extra configuration."""

# A store that never answers a read, and nothing of ours that ends the wait.
_PATIENT = {
    "prefetch.max_sessions": WAITING,
    "prefetch.io_timeout_s": 3600,
    "prefetch.no_progress_timeout_s": 3600,
    "log.level": "off",
}


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes:
        model: directory.
        vocab: tokens of the model.
        tokens: length of the prompt whose first token is timed.
        load: prompts of the throughput arms, tokens of each, and tokens that are made of each.
        threads: computing threads of an engine, bound to no core; None: vLLM's choice.
    """

    model: Path
    vocab: int
    tokens: int
    load: tuple[int, int, int]
    block_tokens: int
    rounds: int
    seed: int
    dtype: str
    threads: int | None

    def arguments(self) -> dict[str, Any]:
        """EngineArgs."""
        longest = max(self.tokens + ANSWER_TOKENS, self.load[1] + self.load[2], (STUCK_BLOCKS + 2) * self.block_tokens)
        return {
            "model": str(self.model),
            "skip_tokenizer_init": True,
            "dtype": self.dtype,
            "enforce_eager": True,
            "seed": 0,
            "block_size": self.block_tokens,
            "max_model_len": longest + self.block_tokens,
            "max_num_batched_tokens": max(2048, longest + self.block_tokens),
            "max_num_seqs": max(8, self.load[0]),
            "kv_cache_memory_bytes": KV_BYTES,
            "disable_log_stats": True,
        }

    def environment(self) -> dict[str, str]:
        """Variables of an engine's process."""
        if self.threads is None:
            return {}
        return {"OMP_NUM_THREADS": str(self.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}

    def prompt(self, rng: random.Random, tokens: int) -> list[int]:
        """Token ids that no other prompt begins with."""
        return [rng.randrange(FIRST_ID, self.vocab) for _ in range(tokens)]

    @property
    def restorable(self) -> int:
        """Tokens of the timed prompt that can be restored: whole blocks before the last token."""
        return (self.tokens - 1) // self.block_tokens * self.block_tokens


def forebay_transfer(**extra: Any) -> dict[str, Any]:
    """kv_transfer_config with Forebay's connector."""
    return {
        "kv_connector": "ForebayConnector",
        "kv_connector_module_path": "forebay.engines.vllm",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": extra,
    }


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


@dataclass
class Samples:
    """What was measured, per round; seconds, but for calls and passes in microseconds.

    Attributes:
        version: of vLLM.
        speed: seconds of the load, by arm: "plain", "unsaved", "saved".
        ttft: seconds to the first token, by arm: "recompute", "restored", "resident", "builtin".
        builtin: name of vLLM's own connector that ran, or None.
        refusals: why the others did not, by name.
        asked: answers that were compared with those of the engine without a connector.
        differ: those of them with other tokens.
    """

    version: str = ""
    calls: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    speed: dict[str, list[float]] = field(default_factory=dict)
    ttft: dict[str, list[float]] = field(default_factory=dict)
    builtin: str | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    differ: int = 0


class Bench:
    """One run. Everything that it starts and writes is gone when :meth:`run` returns."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._journal = Path()
        self.samples = Samples()

    def run(self) -> Samples:
        """Measures everything.

        Raises:
            EngineError: an engine could not start or failed.
        """
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
            directory = Path(name)
            self._match(directory)
            with contextlib.ExitStack() as stack:
                self._compare(directory, stack)
        _progress("")
        return self.samples

    def _start(self, directory: Path, name: str, transfer: Mapping[str, Any] | None) -> EngineProcess:
        """An engine. Errors: EngineError; its process has ended then."""
        _progress(f"starting the engine: {name}")
        process = EngineProcess(directory / f"{name}.log", self._plan.environment())
        try:
            started = process.call("start", arguments=self._plan.arguments(), transfer=transfer)
        except BaseException:
            process.close()
            raise
        self.samples.version = started["version"]
        return process

    # ---- Being asked ----

    def _match(self, directory: Path) -> None:
        """Requests that wait for a store which is stuck: their prefix is there, and never comes."""
        plan = self._plan
        store = f"fault:file:dir={directory / 'stuck'},script=get:*:hang"
        settings = forebay_transfer(
            store=store, policy="timeout", timeout_budget_s=3600, pool_bytes=POOL, idle_wait_ms=0, config=_PATIENT
        )
        prefix = plan.prompt(self._rng, STUCK_BLOCKS * plan.block_tokens)
        with self._start(directory, "stuck", settings) as engine:
            engine.call("serve", prompts=[[*prefix, FIRST_ID]], tokens=1, params=None)
            _progress("asking for requests that wait")
            prompts = [prefix + plan.prompt(self._rng, 2) for _ in range(WAITING)]
            found = engine.call("match", prompts=prompts, rounds=plan.rounds)
        self.samples.calls, self.samples.passes = found["calls"], found["passes"]

    # ---- Arms in turn ----

    def _compare(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self._journal = directory / "journal"
        settings = forebay_transfer(
            store=f"file:dir={directory / 'store'}",
            policy="wait_complete",
            pool_bytes=POOL,
            journal=str(self._journal),
            config={"log.level": "warn"},
        )
        prompt = self._plan.prompt(self._rng, self._plan.tokens)

        def start(name: str, transfer: Mapping[str, Any] | None) -> EngineProcess:
            engine = stack.enter_context(self._start(directory, name, transfer))
            self._ask(engine, prompt, "nothing")  # computed, and kept by those who keep it
            return engine

        plain, forebay = start("plain", None), start("forebay", settings)
        builtin = self._start_builtin(directory, prompt, stack)
        for number in range(self._plan.rounds + 1):  # the first one warms up
            _progress(f"round {number} of {self._plan.rounds}")
            self._serve_in_turn(plain, forebay, counts=number > 0)
            self._restore_in_turn(plain, forebay, builtin, prompt, counts=number > 0)

    def _start_builtin(self, directory: Path, prompt: list[int], stack: contextlib.ExitStack) -> EngineProcess | None:
        """The first of vLLM's own connectors that starts and restores here."""
        for name, extra in BUILTIN.items():
            transfer = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
            try:
                process = self._start(directory, name, transfer)
            except EngineError as error:
                self.samples.refusals[name] = str(error)
                continue
            try:
                self._ask(process, prompt, "nothing")
                restored = self._ask(process, prompt, "engine")["restored"]
                if restored == 0:
                    raise EngineError("it restored nothing of a prompt that it had seen")
            except EngineError as error:
                self.samples.refusals[name] = str(error)
                process.close()
                continue
            self.samples.builtin = name
            return stack.enter_context(process)
        return None

    def _in_turn(self, arms: Mapping[str, Callable[[], float]], into: dict[str, list[float]], counts: bool) -> None:
        """Runs arms in a new order, with a rest before each."""
        order = list(arms)
        self._rng.shuffle(order)
        for name in order:
            time.sleep(REST_S)
            value = arms[name]()
            if counts:
                into.setdefault(name, []).append(value)

    def _serve_in_turn(self, plain: EngineProcess, forebay: EngineProcess, *, counts: bool) -> None:
        """The load in each way. Saved prompts are new each time: what is stored is not stored again."""
        many, length, made = self._plan.load

        def serve(engine: EngineProcess, prompts: Sequence[Sequence[int]], params: Any) -> Callable[[], float]:
            return lambda: float(engine.call("serve", prompts=prompts, tokens=made, params=params)["seconds"])

        prompts = [self._plan.prompt(self._rng, length) for _ in range(many)]
        others = [self._plan.prompt(self._rng, length) for _ in range(many)]
        arms = {
            "plain": serve(plain, prompts, None),
            "unsaved": serve(forebay, others, {"save": False}),
            "saved": serve(forebay, prompts, None),
        }
        self._in_turn(arms, self.samples.speed, counts)

    def _restore_in_turn(
        self,
        plain: EngineProcess,
        forebay: EngineProcess,
        builtin: EngineProcess | None,
        prompt: list[int],
        *,
        counts: bool,
    ) -> None:
        """The same prompt in each way: computed; from the store; from CPU memory, Forebay's or vLLM's own."""
        wanted: list[list[int]] = []

        def timed(engine: EngineProcess, reset: str, restored: int | None) -> Callable[[], float]:
            def run() -> float:
                answer = self._ask(engine, prompt, reset)
                if restored is not None:
                    self._check(answer, restored, reset)
                wanted.append(answer["tokens"])
                return float(answer["ttft_s"])

            return run

        arms = {
            "recompute": timed(plain, "engine", None),
            "restored": timed(forebay, "everything", self._plan.restorable),
            "resident": timed(forebay, "engine", self._plan.restorable),
        }
        self._ask(forebay, prompt, "engine")  # into memory, where the load has pushed it out of
        if builtin is not None:
            arms["builtin"] = timed(builtin, "engine", None)
        self._in_turn(arms, self.samples.ttft, counts)
        right = self._ask(plain, prompt, "engine")["tokens"]
        self.samples.asked += len(wanted)
        self.samples.differ += sum(tokens != right for tokens in wanted)

    def _check(self, answer: Mapping[str, Any], wanted: int, reset: str) -> None:
        """A time means nothing unless what it is named for was restored. Errors: EngineError."""
        if answer["restored"] != wanted:
            row = self._journal.read_text().splitlines()[-1]
            raise EngineError(
                f"{answer['restored']} of {wanted} tokens were restored after a reset of {reset}; the journal: {row}"
            )

    def _ask(self, engine: EngineProcess, prompt: Sequence[int], reset: str) -> dict[str, Any]:
        return engine.call("ask", prompt=prompt, tokens=ANSWER_TOKENS, params=None, reset=reset)
