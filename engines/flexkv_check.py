#!/usr/bin/env python3
"""Checks SGLang's own --enable-flexkv with Forebay behind the name flexkv, on real servers with the tiny llama.

    scripts/with-engine sglang python engines/flexkv_check.py [PATTERN]     one line for each check; some two minutes

PATTERN: only checks whose name has it. Exit 0: all is well. 1: a check failed.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "flexkv" / "src"
os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])

import models  # noqa: E402
import reference  # noqa: E402
from api_server import NotStartedError, free_port  # noqa: E402
from sglang_server import Answer, Engine, Server  # noqa: E402

PAGE, TOKENS, MANY, LIMIT_S = 16, reference.TOKENS, 3000, 30.0
HANGS_S = "0.5"  # limits of a store that hangs
LAYERWISE = {"variables": {"FLEXKV_ENABLE_LAYERWISE_TRANSFER": "1"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "one rank": {},
    "overlap, chunked prefill": {"overlap": True, "chunked_prefill": 64},
    "two ranks": {"tensor_parallel": 2},
    "two ranks, overlap": {"tensor_parallel": 2, "overlap": True},
    "layer by layer": LAYERWISE,
    "pages of 1": {"page_tokens": 1},
    "FlexKV's own variables": {"own": False},
    "chunks of 32 pages, a long timeout": {
        "settings": {"policy": "timeout", "chunk_max_blocks": 32, "timeout_budget_s": 60}
    },
}


class CheckError(Exception):
    """A check failed."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise CheckError(what)


def _until(holds: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        _require(time.monotonic() < limit, f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.02)


class Place:
    """A store's directory, the journal, and the page of metrics: what servers of one check share."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="forebay-flexkv-check-")
        self.path = Path(self._scratch.name)
        self.metrics_port = free_port()

    def engine(self, model: Path, *, own: bool = True, settings: Any = None, store: str = "", **how: Any) -> Engine:
        """A server with Forebay behind flexkv.

        Args:
            model: that it runs.
            own: settings are Forebay's; else FlexKV's variables say the same.
            settings: of Forebay, beside the usual ones.
            store: name of the store; by default the directory.
            how: of the engine.
        """
        listen = {"metrics.listen": f"127.0.0.1:{self.metrics_port}", "log.level": "warn"}
        extra = dict(settings or {})
        config = listen | extra.pop("config", {})
        given: dict[str, Any] = {"journal": str(self.path / "journal"), "config": config} | extra
        variables = {"XDG_RUNTIME_DIR": str(self.path)} | how.pop("variables", {})
        if own:
            directory = f"dir={self.path}/store,capacity=256MiB"
            given = {"store": store.format(directory) or f"file:{directory}", "pool_bytes": "64MiB"} | given
        else:
            variables |= {
                "FLEXKV_CPU_CACHE_GB": "0.0625",
                "FLEXKV_SSD_CACHE_GB": "0.25",
                "FLEXKV_SSD_CACHE_DIR": f"{self.path}/store",
            }
        variables["FOREBAY_SGLANG"] = json.dumps(given)
        return Engine(model, options={"enable_flexkv": True} | how.pop("options", {}), variables=variables, **how)

    def journal(self) -> dict[str, dict[str, Any]]:
        """Its lines by request."""
        path = self.path / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return {row["request"]: row for row in map(json.loads, lines)}

    def metric(self, name: str) -> int:
        """A counter of Forebay's."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=LIMIT_S) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return int(float(line.split()[1]))
        raise CheckError(f"there is no metric {name}")


def _whole(prompts: Sequence[Sequence[int]], page: int) -> list[int]:
    return [(len(prompt) - 1) // page * page for prompt in prompts]


def _from(answers: Sequence[Answer], place: str) -> list[int]:
    return [answer.cached.get(place, 0) for answer in answers]


class Checks:
    """All of them."""

    def __init__(self) -> None:
        self.model = models.make("tiny-llama")
        self.prompts = reference.prompts(self.model)
        self.right = reference.transformers_tokens(self.model, self.prompts)

    def _ask(self, server: Server, what: str, **how: Any) -> list[Answer]:
        answers = server.ask(self.prompts, TOKENS, **how)
        _require([answer.tokens for answer in answers] == self.right, f"tokens, {what}")
        return answers

    def restored(self, **how: Any) -> None:
        """Cold, from the device, from CPU memory, after a restart: the same tokens, and figures that agree."""
        place, page = Place(), how.get("page_tokens", PAGE)
        wanted, is_layerwise = _whole(self.prompts, page), "variables" in how
        with Server(place.engine(self.model, **dict(how))) as server:
            _require(sum(_from(self._ask(server, "cold"), "storage")) == 0, "nothing is there")
            _require(_from(self._ask(server, "device"), "device") == wanted, "all from the device")
            server.flush()
            # Layer by layer, SGLang counts what comes from CPU memory as the device's.
            found = _from(self._ask(server, "CPU memory"), "device" if is_layerwise else "host")
            _require(found == wanted, f"from CPU memory {found} in place of {wanted}")
            self._no_complaint(server)
        before = set(place.journal())
        with Server(place.engine(self.model, **dict(how))) as server:
            answers = self._ask(server, "restarted")
            found = _from(answers, "storage")
            _require(found == wanted, f"restarted: {found} in place of {wanted}")
            self._agree(place, before, found)
            self._no_complaint(server)

    def _no_complaint(self, server: Server) -> None:
        lines = [line for line in server.log_tail(10_000).splitlines() if "forebay: " in line]
        bad = [line for line in lines if "failed" in line or "is off" in line or "accepted" in line]
        _require(not bad, f"the log: {bad}")

    def _agree(self, place: Place, before: set[str], found: Sequence[int]) -> None:
        """The engine's figures are the journal's, and those of Forebay's counters."""
        _until(lambda: len(place.journal()) >= len(before) + sum(count > 0 for count in found), "the journal")
        rows = [row for name, row in place.journal().items() if name not in before]
        for key in ("matched", "loaded", "delivered"):
            total = sum(row[key] for row in rows)
            _require(total == sum(found), f"{key} of the journal: {total} in place of {sum(found)}")
        for name in ("forebay_tokens_loaded_total", "forebay_tokens_delivered_total"):
            total = place.metric(name)
            _require(total == sum(found), f"{name} is {total} in place of {sum(found)}")

    def evicted(self) -> None:
        """What a small device cache lost comes back from CPU memory; several requests at once share a prefix."""
        place = Place()
        with Server(place.engine(self.model, max_total_tokens=1024, max_requests=2)) as server:
            self._ask(server, "cold")
            for turn in range(3):
                answers = self._ask(server, f"turn {turn}")
                _require(sum(_from(answers, "host")) > 0, f"nothing came from CPU memory in turn {turn}")
            shared = self.prompts[-1][:320]
            ways = [[*shared, *self.prompts[i][:20]] for i in range(4)]
            first = [answer.tokens for answer in server.ask(ways, TOKENS)]
            server.flush()
            _require([answer.tokens for answer in server.ask(ways, TOKENS)] == first, "shared prefixes")
            self._no_complaint(server)

    def apart(self) -> None:
        """Requests with another salt or key share nothing, on the device or behind it; their own comes back."""
        place, prompt = Place(), self.prompts[-1]
        keys: list[dict[str, Any]] = [
            {},
            {"salt": "a"},
            {"salt": "b"},
            {"extra_key": "x"},
            {"extra_key": "x", "salt": "a"},
        ]
        whole = _whole([prompt], PAGE)[0]
        with Server(place.engine(self.model)) as server:
            for key in keys:
                answer = server.wait(server.submit(prompt, TOKENS, **key))
                _require(answer.tokens == self.right[-1] and not answer.cached, f"{key} found {answer.cached}")
            server.flush()
            for key in keys:
                answer = server.wait(server.submit(prompt, TOKENS, **key))
                _require(answer.tokens == self.right[-1], f"tokens of {key}")
                _require(answer.cached.get("host") == whole, f"{key} found {answer.cached}")
            answer = server.wait(server.submit(prompt, TOKENS, salt="c"))
            _require(answer.tokens == self.right[-1] and not answer.cached, f"another salt found {answer.cached}")

    def stuck(self, policy: str) -> None:
        """A store that hangs costs its limits, no tokens and no request."""
        place = Place()
        with Server(place.engine(self.model)) as server:
            self._ask(server, "cold")
        limits = {
            "prefetch.io_timeout_s": HANGS_S,
            "prefetch.no_progress_timeout_s": HANGS_S,
            "prefetch.drain_limit_s": "0",
        }
        hangs = {"policy": policy, "config": limits}
        with Server(place.engine(self.model, settings=hangs, store="fault:file:script=get:*:hang,{}")) as server:
            answers = self._ask(server, "stuck")
            _require(sum(_from(answers, "storage")) == 0, "what hangs was not restored")
            self._ask(server, "afterwards")

    def aborted(self) -> None:
        """A request is aborted while its prefetch is under way, a connection is closed: nothing stays."""
        place = Place()
        with Server(place.engine(self.model)) as server:
            self._ask(server, "cold")
        slow = "fault:file:latency_ms=400,{}"
        patient = {"policy": "wait_complete"}
        with Server(place.engine(self.model, settings=patient, store=slow)) as server:
            names = [server.submit(self.prompts[-1], MANY) for _ in range(2)]
            time.sleep(0.1)  # they may also have been answered: whenever they end, nothing is left
            server.abort(names[0])
            server.cut(names[1])
            _until(lambda: server.load()["num_running_reqs"] + server.load()["num_waiting_reqs"] == 0, "nothing runs")
            for gauge in ("forebay_sessions", "forebay_holds", "forebay_leases"):
                self._gone(place, gauge)
            self._ask(server, "afterwards")

    def _gone(self, place: Place, gauge: str) -> None:
        def total() -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{place.metrics_port}/metrics", timeout=LIMIT_S) as page:
                rows = page.read().decode().splitlines()
            return sum(int(float(row.rpartition(" ")[2])) for row in rows if row.split("{")[0].split(" ")[0] == gauge)

        _until(lambda: total() == 0, f"{gauge} is 0")

    def cleared(self) -> None:
        """Clearing by SGLang's API forgets CPU memory; the store still has it."""
        place = Place()
        with Server(place.engine(self.model)) as server:
            self._ask(server, "cold")
            server.flush()
            server.clear_storage()
            found = _from(self._ask(server, "cleared"), "storage")
            _require(found == _whole(self.prompts, PAGE), f"cleared: {found}")

    def shared(self) -> None:
        """What the radix backend has stored is restored here, and the other way round."""
        for first, second in (("radix", "flexkv"), ("flexkv", "radix")):
            place = Place()
            ways: dict[str, dict[str, Any]] = {
                "flexkv": {},
                "radix": {"enable_flexkv": False, "radix_cache_backend": "forebay"},
            }
            with Server(place.engine(self.model, options=ways[first])) as server:
                self._ask(server, f"cold, {first}")
                _until(functools.partial(self._is_written, place), "the store's writes")
            with Server(place.engine(self.model, options=ways[second])) as server:
                found = _from(self._ask(server, f"restored, {second}"), "storage")
                _require(found == _whole(self.prompts, PAGE), f"{second} found {found} of what {first} stored")

    def _is_written(self, place: Place) -> bool:
        pages = sum(_whole(self.prompts, PAGE)) // PAGE
        return place.metric('forebay_store_writes_total{result="stored"}') >= pages

    def refused(self) -> None:
        """A server that cannot be served ends at start, and says why."""
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"settings": {"speed": 1}}, "FOREBAY_SGLANG has unknown keys"),
            ({"settings": {"pool_bytes": "1KiB"}}, "pool.bytes"),
            ({"store": "file:dir=/proc/nothing,capacity=1MiB"}, "/proc/nothing"),
            ({"tensor_parallel": 2, **LAYERWISE}, "accepted: tp_size 1"),
        ]
        for how, why in wrong:
            place = Place()
            try:
                Server(place.engine(self.model, **dict(how))).end()
            except NotStartedError as problem:
                _require(why in str(problem), f"{why!r} is not said: {problem}")
            else:
                raise CheckError(f"it started with {how}")


def main() -> int:
    """The command."""
    checks = Checks()
    rows: list[tuple[str, Callable[[], None]]] = [
        (f"restored: {name}", functools.partial(checks.restored, **how)) for name, how in VARIANTS.items()
    ]
    rows += [
        (f"stuck: {policy}", functools.partial(checks.stuck, policy)) for policy in ("wait_complete", "best_effort")
    ]
    others = (checks.evicted, checks.apart, checks.aborted, checks.cleared, checks.shared, checks.refused)
    rows += [(f"{check.__name__}: {check.__doc__}", check) for check in others]
    rows = [row for row in rows if all(word in row[0] for word in sys.argv[1:2])]
    failed = 0
    for name, check in rows:
        started = time.monotonic()
        try:
            check()
            word = "ok"
        except Exception:
            traceback.print_exc()
            word, failed = "FAILED", failed + 1
        print(f"{word:6} {time.monotonic() - started:5.1f} s  {name}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
