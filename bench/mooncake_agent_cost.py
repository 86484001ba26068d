#!/usr/bin/env python3
"""What the wheel's agent costs per key in Python: everything in it but the client's call.

    bench/mooncake_agent_cost.py [--rounds N] [--json]

A client that answers at once stands in for Mooncake's. Machine, rounds and medians are printed; the goal is 2 us per block.
"""
import argparse
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL_US, BYTES, DEPTH = 2.0, 262208, 1024
sys.dont_write_bytecode = True


def load_agent():
    loader = importlib.machinery.SourceFileLoader("agent", str(ROOT / "agents/forebay-agent-mooncake"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("agent", loader))
    loader.exec_module(module)
    return module


class Instant:
    """Answers every key with success."""

    def __init__(self, count):
        self.bytes, self.ones, self.zeros = [BYTES] * count, [1] * count, [0] * count

    def batch_get_into(self, keys, addresses, sizes):
        return self.bytes

    def batch_put_from(self, keys, addresses, sizes, settings):
        return self.zeros

    def batch_is_exist(self, keys):
        return self.ones


def measure(agent, op, count, rounds):
    text = "\n".join(f"{i:032x}-g0" for i in range(count)).encode()
    keys = ctypes.create_string_buffer(text, len(text) + 1)
    addresses = (ctypes.c_uint64 * DEPTH)(*((1 << 46) + i * BYTES for i in range(count)))
    sizes, results = (ctypes.c_uint64 * DEPTH)(*[BYTES] * count), (ctypes.c_int64 * DEPTH)()
    flat = agent.Flat(op=op, count=count, keys_bytes=len(text), keys=ctypes.addressof(keys), results=ctypes.addressof(results),
                      addresses=ctypes.addressof(addresses), sizes=ctypes.addressof(sizes))
    lane = agent.Lane(agent.Calls(Instant(count), None, "", range(1 << 47)), "model/", DEPTH)
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        lane.serve(flat)
        times.append((time.perf_counter_ns() - began) / 1000 / count)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    agent = load_agent()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    figures = [{"name": f"{name} of {count}", "value": round(measure(agent, op, count, arguments.rounds), 3), "unit": "us/key",
                "goal": GOAL_US} for name, op in (("get", agent.GET), ("put", agent.PUT), ("exists", agent.EXISTS))
               for count in (8, 32, 128, 1024)]
    for figure in figures:
        figure["met"] = figure["value"] <= GOAL_US
    if arguments.json:
        print(json.dumps({"bench": "mooncake_agent_cost", "machine": machine, "rounds": arguments.rounds, "figures": figures}))
        return
    print(f"{machine}; medians of {arguments.rounds} rounds; goal {GOAL_US} us per key")
    for figure in figures:
        print(f"  {figure['name']:<16} {figure['value']:7.3f} us per key{'' if figure['met'] else '   missed'}")


if __name__ == "__main__":
    main()
