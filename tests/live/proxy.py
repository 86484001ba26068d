"""A TCP proxy on loopback between a client and a store that can be slow, stop, stay silent or break off, at any moment.

What it does is set from outside; it holds for connections that exist and for those that come. Faults count the bytes
from the store to the client, so that "after=100000" lies in the middle of an object of 256 KiB.
"""
import socket
import struct
import threading
import time

PIECE = 65536
TICK_S = 0.02  # of a limited rate


class Proxy:
    def __init__(self, host, port):
        self._target = (host, port)
        self._changed = threading.Condition()
        self._connections = set()
        self._accepted = 0
        self._epoch = 0  # of what is set
        self.passes()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._thread(self._accept)

    # ---- What it does ----

    def passes(self):
        """Everything goes through; what was held back goes on."""
        self._set()

    def delays(self, seconds):
        """Each piece from the store comes later by that much."""
        self._set(delay=seconds)

    def limits(self, bytes_per_s):
        """All connections together."""
        self._set(rate=bytes_per_s)

    def stalls(self, after, times=1):
        """After that many bytes the connection that carries the next one stops, and so do `times - 1` later ones."""
        self._set(fault="stall", after=after, times=times)

    def drops(self, after, times=1):
        """The same, but they are reset."""
        self._set(fault="drop", after=after, times=times)

    def silent(self):
        """Connections are accepted and hear nothing."""
        self._set(fault="silent")

    # ---- What can be awaited ----

    def await_fault(self, times=1, limit_s=10):
        """Until so many connections met the fault that was set last."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._met >= times, limit_s):
                raise TimeoutError(f"the proxy's fault was met {self._met} times in {limit_s} s, not {times}")

    def accepted(self):
        """Connections so far."""
        with self._changed:
            return self._accepted

    def close(self):
        self.passes()
        self._listener.close()
        self.cut()

    def cut(self):
        """Resets every connection there is."""
        with self._changed:
            found = list(self._connections)
        for each in found:
            _reset(each)

    # ---- Inside ----

    def _set(self, fault=None, after=0, times=0, rate=0, delay=0.0):
        with self._changed:
            self._fault, self._left, self._times, self._rate, self._delay = fault, after, times, rate, delay
            self._met, self._free_at = 0, 0.0
            self._epoch += 1
            self._changed.notify_all()

    @staticmethod
    def _thread(target, *args):
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._thread(self._serve, client)

    def _serve(self, client):
        with self._changed:
            self._accepted += 1
            if self._fault == "silent":
                self._met += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._fault != "silent")
        try:
            store = socket.create_connection(self._target, timeout=5)
        except OSError:
            _reset(client)
            return
        store.settimeout(None)
        for each in (client, store):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._connections |= {client, store}
        self._thread(self._pump, client, store, self._up)
        self._pump(store, client, self._down)
        with self._changed:
            self._connections -= {client, store}

    @staticmethod
    def _pump(source, sink, forward):
        try:
            while True:
                piece = source.recv(PIECE)
                if not piece:
                    break
                forward(source, sink, piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _reset(source)
            _reset(sink)

    def _up(self, _client, store, piece):
        with self._changed:
            self._changed.wait_for(lambda: self._fault != "silent")
        store.sendall(piece)

    def _down(self, store, client, piece):
        while piece:
            with self._changed:
                size, act = self._next(len(piece))
            if size:
                client.sendall(piece[:size])
                piece = piece[size:]
            if act == "drop":
                _reset(client)
                _reset(store)
                raise ConnectionResetError

    def _next(self, size):
        """How much of what came may go on now, and whether to break off behind it. Waits for what the mode says."""
        epoch = self._epoch
        if self._fault == "silent":
            self._changed.wait_for(lambda: self._epoch != epoch)
            return 0, None
        if self._delay:
            self._changed.wait_for(lambda: self._epoch != epoch, self._delay)
            return size, None
        if self._rate:
            size = min(size, max(int(self._rate * TICK_S), 1))
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            self._changed.wait_for(lambda: self._epoch != epoch, self._free_at - now)
            return size, None
        if self._fault is None or self._times == 0:
            return size, None
        if self._left >= size:
            self._left -= size
            return size, None
        if self._left > 0:
            size, self._left = self._left, 0
            return size, None
        self._times -= 1
        self._met += 1
        self._changed.notify_all()
        if self._fault == "drop":
            return 0, "drop"
        self._changed.wait_for(lambda: self._epoch != epoch)
        return 0, None


def _reset(connection):
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    try:
        connection.close()
    except OSError:
        pass
