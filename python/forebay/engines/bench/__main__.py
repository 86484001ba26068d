"""The program ``python -m forebay.engines.bench``; ``forebay bench engine`` runs it."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import figures, tiny
from .figures import Figure, Report, of_rounds
from .measure import WAITING, Bench, Plan, Samples
from .process import EngineError

ROUNDS, TOKENS, BLOCK_TOKENS = 9, 2000, 32
GOAL_TOKENS = 2000
LOAD, TINY_LOAD = (4, 512, 64), (4, 256, 16)
_FORMS = {"lines": figures.lines, "json": figures.as_json, "table": figures.table}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m forebay.engines.bench", description=__doc__)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--model", type=Path, help="a directory with a model as vLLM loads it")
    model.add_argument("--tiny", action="store_true", help="a seeded model of two layers: shows that it works")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="after one that warms up (9)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of the prompt whose first token is timed (2000)")
    parser.add_argument("--block-tokens", type=int, default=BLOCK_TOKENS, help="of the engine's blocks (32)")
    parser.add_argument("--dtype", help="as vLLM takes it (the model's own)")
    parser.add_argument("--threads", type=int, help="of an engine, bound to no core (vLLM's choice; 1 if tiny)")
    parser.add_argument("--seed", type=int, default=1, help="of prompts, orders and intervals (1)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", help="prints one JSON object")
    form.add_argument("--lines", dest="form", action="store_const", const="lines", help="lines with tabs")
    parser.set_defaults(form="table")
    return parser.parse_args()


def _vocab(model: Path) -> int:
    """Tokens of a model. Errors: EngineError."""
    try:
        config: dict[str, Any] = json.loads((model / "config.json").read_text())
        return int(config.get("vocab_size") or config["text_config"]["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{model} is no model: config.json: {type(error).__name__}: {error}") from None


def _plan(given: argparse.Namespace, scratch: Path) -> Plan:
    if not 1 <= given.rounds <= 1000 or given.block_tokens < 1 or given.tokens <= given.block_tokens:
        raise EngineError("accepted: --rounds 1 to 1000, --block-tokens from 1 on, --tokens more than a block")
    model = tiny.write(scratch / "tiny") if given.tiny else given.model.resolve()
    return Plan(
        model=model,
        vocab=_vocab(model),
        tokens=given.tokens,
        load=TINY_LOAD if given.tiny else LOAD,
        block_tokens=given.block_tokens,
        rounds=given.rounds,
        seed=given.seed,
        dtype=given.dtype or ("float32" if given.tiny else "auto"),
        threads=given.threads or (1 if given.tiny else None),
    )


def _ratios(over: list[float], under: list[float]) -> list[float]:
    return [above / below for above, below in zip(over, under, strict=True)]


def _make_figures(plan: Plan, samples: Samples, *, is_tiny: bool) -> list[Figure]:
    """All figures. Those about a model's times have goals only with a real one."""
    seed, speed, ttft = plan.seed, samples.speed, samples.ttft
    total = plan.load[0] * (plan.load[1] + plan.load[2])
    saving = (">=", 0.97) if not is_tiny else (None, None)
    restoring = ("<=", 0.3) if not is_tiny and plan.tokens == GOAL_TOKENS else (None, None)
    made = [
        of_rounds("match_call_us", samples.calls, "us", seed, "<=", 5),
        of_rounds(f"scheduler_pass_{WAITING}_us", samples.passes, "us", seed, "<=", 200),
        of_rounds("save_overhead_ratio", _ratios(speed["plain"], speed["saved"]), "", seed, *saving),
        of_rounds("unsaved_ratio", _ratios(speed["plain"], speed["unsaved"]), "", seed),
        of_rounds("plain_tokens_per_s", [total / one for one in speed["plain"]], "1/s", seed),
        of_rounds("saving_tokens_per_s", [total / one for one in speed["saved"]], "1/s", seed),
        of_rounds("restored_ttft_ratio", _ratios(ttft["restored"], ttft["recompute"]), "", seed, *restoring),
        of_rounds("resident_ttft_ratio", _ratios(ttft["resident"], ttft["recompute"]), "", seed),
    ]
    for arm, values in sorted(ttft.items()):
        made.append(of_rounds(f"{arm}_ttft_ms", [1000 * one for one in values], "ms", seed))
    if samples.builtin is None:
        made.append(Figure("vs_builtin_ratio", None, ""))
    else:
        made.append(of_rounds("vs_builtin_ratio", _ratios(ttft["resident"], ttft["builtin"]), "", seed, "<=", 1))
    made.append(Figure("other_tokens", float(samples.differ), "answers"))
    return made


def _notes(plan: Plan, samples: Samples, *, is_tiny: bool) -> list[str]:
    made = []
    if samples.builtin is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in samples.refusals.items())
        made.append(f"vs_builtin_ratio: no CPU offload connector of vLLM {samples.version} runs here: {reasons}")
    else:
        made.append(f"vs_builtin_ratio: against {samples.builtin}, both from CPU memory")
    if is_tiny:
        made.append("a tiny model has nothing to recompute: ratios have no goals")
    elif plan.tokens != GOAL_TOKENS:
        made.append(f"restored_ttft_ratio: the goal is for {GOAL_TOKENS} tokens")
    if samples.differ:
        made.append(f"{samples.differ} of {samples.asked} answers have other tokens than a second cold run")
    return made


def _report(plan: Plan, samples: Samples, *, is_tiny: bool) -> Report:
    many, length, made = plan.load
    facts = {
        "engine": f"vllm {samples.version}",
        "model": "tiny" if is_tiny else plan.model.name,
        "prompt": f"{plan.tokens} tokens, {plan.restorable} of them restored, in blocks of {plan.block_tokens}",
        "load": f"{many} prompts of {length} tokens at once, {made} tokens made of each",
    }
    figures_made = _make_figures(plan, samples, is_tiny=is_tiny)
    return Report(plan.rounds, facts, _notes(plan, samples, is_tiny=is_tiny), figures_made)


def _end_on_signals() -> None:
    """The first signal ends the run, engines and files with it; others do not disturb that."""

    def end(number: int, frame: Any) -> None:  # noqa: ARG001
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def main() -> int:
    """The program. 0: measured; 1: not, the reason is on stderr; 2: wrong arguments."""
    given = _arguments()
    _end_on_signals()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-bench-model-")))
        try:
            plan = _plan(given, scratch)
            samples = Bench(plan).run()
        except EngineError as error:
            print(f"forebay.engines.bench: {error}", file=sys.stderr)
            return 1
    sys.stdout.write(_FORMS[given.form](_report(plan, samples, is_tiny=given.tiny)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
