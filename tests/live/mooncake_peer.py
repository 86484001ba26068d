"""A second Mooncake client, run by the interpreter that has the wheel: removes and stores behind the agent's back.

    mooncake_peer.py HOST:PORT     of the master; then lines "remove KEY", "put KEY"; a number a line in return
"""
import os
import sys

from mooncake.store import MooncakeDistributedStore


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the client logs to stdout
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1])
    print(code, file=answers)
    for line in sys.stdin:
        verb, key = line.split()
        print(store.remove(key, True) if verb == "remove" else store.put(key, b"of a second client"), file=answers)
    os._exit(0)  # close() takes a second


main()
