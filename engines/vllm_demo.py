#!/usr/bin/env python3
"""Forebay in vLLM's API server, on a machine without a GPU: one prompt, three times.

    python engines/vllm_demo.py            cold; after a restart, restored; restored until a deadline cuts it short
        --json                             {"runs":[{"name","tokens_equal","restored_tokens","ttft_ms","reason"}...]}
        --model NAME                       as engines/models.py names them; gemma3-270m by default
        --tokens N                         length of the prompt, 1,000 by default

`make engine-demo` runs it in an environment of its own, with everything it needs. The store is a directory that is
removed at the end; what is read of it comes through a link of 40 MB/s, as of a store on another machine.
Exit 0: the tokens are the same each time, the second run restored some, the third one some less. 1: not so. 69: the
model cannot be had.
"""

from __future__ import annotations

import sys

import demo
import rig
from api_server import ApiServer

PREFILL_STEP = 256  # tokens; a model with a sliding window can resume where a step of its prefill ended


class VllmDemo(demo.Demo):
    """vLLM's API server with the connector."""

    link = "40MB"
    deadline_s = 0.25  # of 0.45 s: some 18 MB

    def server(self, link: str | None) -> ApiServer:
        """A server with the connector."""
        engine = rig.Engine(
            self.model,
            self.settings(link),
            max_model_len=4096,
            max_batched_tokens=PREFILL_STEP,
            kv_bytes=1 << 29,
            dtype="bfloat16" if not self.model.name.startswith("tiny") else "float32",
            threads=None,
        )
        return ApiServer(engine)


if __name__ == "__main__":
    sys.exit(demo.main(__doc__, "gemma3-270m", VllmDemo))
