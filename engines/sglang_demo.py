#!/usr/bin/env python3
"""Forebay in SGLang's server, on a machine without a GPU: one prompt, three times.

    python engines/sglang_demo.py          cold; after a restart, restored; restored until a deadline cuts it short
        --json                             {"runs":[{"name","tokens_equal","restored_tokens","ttft_ms","reason"}...]}
        --model NAME                       as engines/models.py names them; smollm2 by default
        --tokens N                         length of the prompt, 1,000 by default

`make sglang-demo` runs it in an environment of its own, with everything it needs. The store is a directory that is
removed at the end; what is read of it comes through a link of 100 MB/s, as of a store on another machine.
Exit 0: the tokens are the same each time, the second run restored some, the third one some less. 1: not so. 69: the
model cannot be had.
"""

from __future__ import annotations

import json
import os
import sys

import demo
from sglang_server import Engine, Server


class SglangDemo(demo.Demo):
    """SGLang's own server by its command line, with Forebay's radix cache."""

    link = "100MB"
    deadline_s = 0.25  # of 0.46 s: some 46 MB

    def server(self, link: str | None) -> Server:
        """A server with the connector."""
        engine = Engine(
            self.model,
            options={"radix_cache_backend": "forebay"},
            variables={"FOREBAY_SGLANG": json.dumps(self.settings(link))},
            threads=len(os.sched_getaffinity(0)),
            preloaded=False,
        )
        return Server(engine, polite=True)


if __name__ == "__main__":
    sys.exit(demo.main(__doc__, "smollm2", SglangDemo))
