"""A Redis client of a few lines, to look at a server and change it behind the driver's back."""
import socket


class Redis:
    def __init__(self, port):
        self.address = ("127.0.0.1", port)

    def __call__(self, *words):
        """One command on a connection of its own. Errors are raised as RuntimeError."""
        with socket.create_connection(self.address, timeout=5) as connection:
            parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            with connection.makefile("rb") as reader:
                return self._value(reader)

    def _value(self, reader):
        line = reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(text.decode())
        if kind == b":":
            return int(text)
        if kind == b"$":
            return None if text == b"-1" else reader.read(int(text) + 2)[:-2]
        if kind == b"*":
            return [self._value(reader) for _ in range(int(text))]
        return text.decode()

    def answers(self):
        try:
            return self("PING") == "PONG"
        except (OSError, RuntimeError):
            return False

    def info(self, name):
        for line in self("INFO").decode().splitlines():
            if line.startswith(name + ":"):
                return int(line.partition(":")[2])
        raise KeyError(name)
