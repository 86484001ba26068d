#!/usr/bin/env python3
"""A native client for `forebay bench compare --native` that needs no store: it makes what a key stands for.

usage: native_program.py good|stale|fails|refuses

`stale` says that it read and does not, `fails` answers every read with an error, `refuses` does not start.
"""
import json
import mmap
import socket
import struct
import sys
import threading
import time

MASK = (1 << 64) - 1


def word_at(seed, i):
    z = seed + (i + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def payload_of(key, size):
    """As src/cli/replay_payload.c fills it, for group 0."""
    low, high = struct.unpack("<QQ", bytes.fromhex(key[:32]))
    seed = word_at(low, 0) ^ word_at(high, 1)
    return struct.pack(f"<{size // 8}Q", *(word_at(seed, i) for i in range(size // 8)))


def serve(connection, lines, hello, memory, first, manner):
    for line in lines:
        begin = time.monotonic_ns()
        for block, key in enumerate(hello["prompts"][int(line)]):
            at, size = first + block * hello["stride"], hello["object_bytes"] - 64
            if manner == "good":
                memory[at:at + size] = payload_of(key, size)
        outcome = "object 7 is gone" if manner == "fails" else "ok"
        connection.sendall(f"{time.monotonic_ns() - begin} {outcome}\n".encode())


def main():
    manner = sys.argv[1]
    sockets = [socket.socket(fileno=4)]
    files = [sockets[0].makefile("r")]
    hello = json.loads(files[0].readline())
    if manner == "refuses":
        sockets[0].sendall(b"error it does not want to\n")
        return
    memory = mmap.mmap(3, hello["memory_bytes"])
    sockets += [socket.socket(fileno=5 + i) for i in range(hello["workers"] - 1)]
    files += [each.makefile("r") for each in sockets[1:]]
    threads = [threading.Thread(target=serve, args=(sockets[i], files[i], hello, memory,
                                                    i * hello["blocks"] * hello["stride"], manner))
               for i in range(hello["workers"])]
    for thread in threads:
        thread.start()
    sockets[0].sendall(b"ready\n")
    for thread in threads:
        thread.join()


main()
