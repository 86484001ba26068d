"""Engines to play with: vLLM in this process, stepped by hand, with or without the connector.

An engine is described by :class:`Engine` and run by :class:`InProcess`. With tensor parallelism its workers are
processes of their own, its scheduler stays here. One engine per process: callers fork for the next one
(engines/exact_run.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

CONNECTOR, CONNECTOR_MODULE = "ForebayConnector", "forebay.engines.vllm"
KV_BYTES = 96 << 20  # of the engine's own KV cache, for the tiny models
STEP_LIMIT_S, RESET_LIMIT_S = 120.0, 30.0

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",  # threads that spin for each other stand still on a busy machine
    "PYTHONHASHSEED": "0",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""What every engine here is started with; a variable that is set stays."""


def prepare() -> None:
    """Sets the environment. Before vLLM is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@dataclass(frozen=True)
class Engine:
    """What is started.

    Attributes:
        connector: the extra configuration of ForebayConnector, or None for an engine without it.
        threads: of each rank's computing, bound to no core; None: vLLM's choice, one bound to each core. One is best
            for tiny models: more wait for each other, above all on a busy machine.
        adapters: requests may name the adapters of engines/tiny_adapters.py.
        hears: the model takes sounds.
        events: the engine announces blocks.
    """

    model: Path
    connector: Mapping[str, Any] | None = None
    load_failure_policy: str = "recompute"
    block_tokens: int = 32
    max_model_len: int = 1024
    max_batched_tokens: int | None = None
    max_sequences: int = 8
    tensor_parallel: int = 1
    blocks: int | None = None
    kv_bytes: int = KV_BYTES
    dtype: str = "float32"
    prefix_cache: bool = True
    hybrid: bool = True
    threads: int | None = 1
    adapters: bool = False
    hears: bool = False
    events: bool = False

    def environment(self) -> dict[str, str]:
        """Variables that the engine reads when it starts."""
        if self.threads is not None:
            return {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(self.threads)}
        cores = "|".join(str(rank) for rank in range(self.tensor_parallel))
        return {"VLLM_CPU_OMP_THREADS_BIND": cores} if self.tensor_parallel > 1 else {}

    def transfer_config(self) -> dict[str, Any] | None:
        """kv_transfer_config as the engine takes it."""
        if self.connector is None:
            return None
        return {
            "kv_connector": CONNECTOR,
            "kv_connector_module_path": CONNECTOR_MODULE,
            "kv_role": "kv_both",
            "kv_load_failure_policy": self.load_failure_policy,
            "kv_connector_extra_config": dict(self.connector),
        }

    def arguments(self) -> dict[str, Any]:
        """EngineArgs by name."""
        given: dict[str, Any] = {
            "model": str(self.model),
            "skip_tokenizer_init": not self.hears,
            "dtype": self.dtype,
            "enforce_eager": True,
            "seed": 0,
            "block_size": self.block_tokens,
            "max_model_len": self.max_model_len,
            "max_num_batched_tokens": self.max_batched_tokens or max(self.max_model_len, 2048),
            "max_num_seqs": self.max_sequences,
            "tensor_parallel_size": self.tensor_parallel,
            "kv_cache_memory_bytes": self.kv_bytes,
            "enable_prefix_caching": self.prefix_cache,
            "disable_hybrid_kv_cache_manager": not self.hybrid,
            "disable_log_stats": True,
        }
        if self.blocks is not None:
            given["num_gpu_blocks_override"] = self.blocks
        if self.adapters:
            given.update(enable_lora=True, max_lora_rank=8, max_loras=2)
        if self.tensor_parallel > 1:
            given["distributed_executor_backend"] = "mp"
        return given


@dataclass
class Answer:
    """What came of one request. `ttft_s` is None when no token came."""

    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    ttft_s: float | None = None
    text: str = ""


Hook = Callable[["InProcess"], None]


class InProcess:
    """An engine in this process. A context manager; leaving it ends the engine."""

    def __init__(self, engine: Engine) -> None:
        prepare()
        os.environ.update(engine.environment())
        from vllm.config import KVEventsConfig, KVTransferConfig
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        transfer = engine.transfer_config()
        arguments = engine.arguments()
        if transfer is not None:
            arguments["kv_transfer_config"] = KVTransferConfig(**transfer)
        if engine.events:
            arguments["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
        self.engine = engine
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._answers: dict[str, Answer] = {}
        self._started: dict[str, float] = {}
        self._inner: dict[str, str] = {}
        self._count = 0

    def __enter__(self) -> InProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception) if kind else contextlib.nullcontext():
            self._engine.engine_core.shutdown()

    @property
    def scheduler(self) -> Any:
        """The scheduler of vLLM."""
        return self._engine.engine_core.engine_core.scheduler

    @property
    def connector(self) -> Any:
        """The scheduler's half of the connector, or None."""
        return self.scheduler.connector

    def submit(
        self, prompt: Sequence[int], tokens: int, params: Mapping[str, Any] | None = None, kind: str = ""
    ) -> str:
        """Adds a request for `tokens` greedy tokens; its name. `params`: kv_transfer_params; `kind`: as in a row."""
        from vllm import SamplingParams

        self._count += 1
        name = f"r{self._count}"
        extra = {"kv_transfer_params": dict(params)} if params is not None else None
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, extra_args=extra)
        question, adapter = (
            self._question(prompt, *kind.split(":")) if kind else ({"prompt_token_ids": list(prompt)}, None)
        )
        self._answers[name] = Answer()
        self._started[name] = time.monotonic()
        self._inner[name] = self._engine.add_request(name, question, sampling, lora_request=adapter)
        return name

    def _question(self, prompt: Sequence[int], what: str, value: str) -> tuple[dict[str, Any], Any]:
        """What the engine is asked, and under which adapter."""
        if what == "salt":
            return {"prompt_token_ids": list(prompt), "cache_salt": value}, None
        if what == "sound":
            import tiny_sound

            heard = [(tiny_sound.sound(int(value)), tiny_sound.RATE)]
            return {"prompt_token_ids": tiny_sound.collapsed(prompt), "multi_modal_data": {"audio": heard}}, None
        import models
        import tiny_adapters
        from vllm.lora.request import LoRARequest

        place = models.make("tiny-adapters") / value
        return {"prompt_token_ids": list(prompt)}, LoRARequest(value, 1 + tiny_adapters.NAMES.index(value), str(place))

    def step(self) -> None:
        """One step of the engine."""
        for output in self._engine.step():
            answer = self._answers[output.request_id]
            answer.tokens = list(output.outputs[0].token_ids)
            if answer.tokens and answer.ttft_s is None:
                answer.ttft_s = time.monotonic() - self._started[output.request_id]
            if output.finished:
                answer.finish_reason = output.outputs[0].finish_reason

    def tokens(self, name: str) -> int:
        """How many tokens a request has so far."""
        return len(self._answers[name].tokens)

    def run(self, hook: Hook | None = None) -> None:
        """Steps until every request is done; `hook` is called before each step. Errors: TimeoutError."""
        limit = time.monotonic() + STEP_LIMIT_S
        while self._engine.has_unfinished_requests():
            if time.monotonic() > limit:
                raise TimeoutError(f"requests are not done after {STEP_LIMIT_S:g} s: {self._unfinished()}")
            if hook is not None:
                hook(self)
            self.step()
        self.drain()

    def _unfinished(self) -> list[str]:
        return [name for name, answer in self._answers.items() if answer.finish_reason is None]

    def drain(self) -> None:
        """Steps until the scheduler has nothing left, saves and frees included. Errors: TimeoutError."""
        core = self._engine.engine_core.engine_core
        limit = time.monotonic() + STEP_LIMIT_S
        while core.scheduler.has_requests():
            if time.monotonic() > limit:
                raise TimeoutError(f"the scheduler is not empty after {STEP_LIMIT_S:g} s")
            core.step_fn()

    def answer(self, name: str) -> Answer:
        """A request's answer so far."""
        return self._answers[name]

    def inner_name(self, name: str) -> str:
        """The engine's name of the request."""
        return self._inner[name]

    def ask(
        self, prompts: Sequence[Sequence[int]], tokens: int, params: Mapping[str, Any] | None = None
    ) -> list[Answer]:
        """All prompts at once; their answers."""
        names = [self.submit(prompt, tokens, params) for prompt in prompts]
        self.run()
        return [self._answers[name] for name in names]

    def abort(self, name: str) -> None:
        """Ends a request early. It keeps the tokens that it has."""
        self._engine.abort_request([self._inner[name]], internal=True)
        self._answers[name].finish_reason = "abort"

    def reset(self, connector: bool = True) -> None:
        """Empties the engine's prefix cache, and with `connector` Forebay's CPU memory. Errors: RuntimeError."""
        self.drain()
        limit = time.monotonic() + RESET_LIMIT_S
        while not self._engine.reset_prefix_cache(reset_connector=connector):
            if time.monotonic() > limit:
                raise RuntimeError(f"the engine's caches could not be reset within {RESET_LIMIT_S:g} s")
            time.sleep(0.05)
