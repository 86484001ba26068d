"""One vLLM engine in this process, stepped by hand and timed. One engine per process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""What an engine is started with; a variable that is set stays."""

STEP_LIMIT_S, RESET_LIMIT_S = 300.0, 60.0
CALLS_TIMED_TOGETHER = 64


@dataclass(frozen=True)
class Timed:
    """What one request gave: seconds to its first token, its tokens, and how many were restored."""

    ttft_s: float
    tokens: list[int]
    restored: int


class Engine:
    """An engine.

    Args:
        arguments: vLLM's EngineArgs by name.
        transfer: its kv_transfer_config, or None.

    Raises:
        Exception: whatever vLLM raises when it cannot start.
    """

    def __init__(self, arguments: Mapping[str, Any], transfer: Mapping[str, Any] | None) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from vllm.config import KVTransferConfig  # type: ignore[import-not-found, unused-ignore]
        from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found, unused-ignore]
        from vllm.v1.engine.llm_engine import LLMEngine  # type: ignore[import-not-found, unused-ignore]

        more = {"kv_transfer_config": KVTransferConfig(**transfer)} if transfer is not None else {}
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments, **more))
        self._core = self._engine.engine_core.engine_core
        self._count = 0
        self._restored: dict[str, int] = {}
        if self._core.scheduler.connector is not None:
            self._watch_allocations()

    def _watch_allocations(self) -> None:
        """Every connector is told here how much of a request it has to load."""
        connector = self._core.scheduler.connector
        told = connector.update_state_after_alloc

        def watch(request: Any, blocks: Any, external: int, *more: Any, **others: Any) -> Any:
            if external > 0:
                self._restored[request.request_id] = external
            return told(request, blocks, external, *more, **others)

        connector.update_state_after_alloc = watch

    def _add(self, prompt: Sequence[int], tokens: int, params: Mapping[str, Any] | None) -> tuple[str, str]:
        """A new request: its name, and the engine's name of it."""
        from vllm import SamplingParams

        self._count += 1
        name = f"r{self._count}"
        extra = {"kv_transfer_params": dict(params)} if params else None
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, extra_args=extra)
        return name, str(self._engine.add_request(name, {"prompt_token_ids": list(prompt)}, sampling))

    def _drain(self, limit: float) -> None:
        """Steps until the scheduler has nothing left: copies of saves are a part of it."""
        while self._core.scheduler.has_requests():
            if time.monotonic() > limit:
                raise TimeoutError(f"the engine is not done after {STEP_LIMIT_S:g} s")
            self._core.step_fn()

    def ask(self, prompt: Sequence[int], tokens: int, params: Mapping[str, Any] | None = None) -> Timed:
        """One request by itself."""
        limit = time.monotonic() + STEP_LIMIT_S
        began, first, made = time.perf_counter(), None, list[int]()
        _, inner = self._add(prompt, tokens, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                made = list(output.outputs[0].token_ids)
                if made and first is None:
                    first = time.perf_counter()
            if time.monotonic() > limit:
                raise TimeoutError(f"a request is not done after {STEP_LIMIT_S:g} s")
        self._drain(limit)
        if first is None:
            raise RuntimeError("a request ended without a token")
        return Timed(first - began, made, self._restored.pop(inner, 0))

    def serve(
        self, prompts: Sequence[Sequence[int]], tokens: int, params: Mapping[str, Any] | None = None
    ) -> tuple[float, list[list[int]]]:
        """All prompts at once: seconds until the engine has nothing left to do, and their tokens."""
        limit = time.monotonic() + STEP_LIMIT_S
        answers: dict[str, list[int]] = {}
        began = time.perf_counter()
        names = [self._add(prompt, tokens, params)[0] for prompt in prompts]
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                answers[output.request_id] = list(output.outputs[0].token_ids)
            if time.monotonic() > limit:
                raise TimeoutError(f"requests are not done after {STEP_LIMIT_S:g} s")
        self._drain(limit)
        return time.perf_counter() - began, [answers[name] for name in names]

    def reset(self, *, connector: bool) -> None:
        """Empties the engine's prefix cache, and with ``connector`` what its connector keeps in memory.

        With Forebay that waits until nothing is on its way to the store.
        """
        limit = time.monotonic() + RESET_LIMIT_S
        while not self._engine.reset_prefix_cache(reset_connector=connector):
            if time.monotonic() > limit:
                raise TimeoutError(f"the caches could not be emptied within {RESET_LIMIT_S:g} s")
            time.sleep(0.05)

    def time_matching(self, prompts: Sequence[Sequence[int]], rounds: int) -> tuple[list[float], list[float]]:
        """Asks the connector as the scheduler does, for requests whose prefetch does not end.

        Returns:
            Microseconds of one call, by means of 64 calls for one request, and of a pass that asks once for each, per
            round.

        Raises:
            RuntimeError: a request was answered: the store was not stuck.
        """
        names = [self._add(prompt, 1, None) for prompt in prompts]
        scheduler = self._core.scheduler
        requests = [scheduler.requests[inner] for _, inner in names]
        ask = scheduler.connector.get_num_new_matched_tokens
        calls, passes = [], []
        for number in range(rounds + 1):  # the first one demands and warms up
            answers = []
            began = time.perf_counter_ns()
            for request in requests:
                answers.append(ask(request, 0))
            passes.append((time.perf_counter_ns() - began) / 1000)
            if any(answer[0] is not None for answer in answers):
                raise RuntimeError(f"round {number}: a request was answered although the store is stuck: {answers}")
            means = []
            for request in requests:
                began = time.perf_counter_ns()
                for _ in range(CALLS_TIMED_TOGETHER):
                    ask(request, 0)
                means.append((time.perf_counter_ns() - began) / (1000 * CALLS_TIMED_TOGETHER))
            calls.append(statistics.median(means))
        self._engine.abort_request([inner for _, inner in names], internal=True)
        return calls[1:], passes[1:]

    def close(self) -> None:
        """Ends the engine."""
        self._engine.engine_core.shutdown()
