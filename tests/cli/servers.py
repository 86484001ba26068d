"""Servers of the stories: on loopback, on ports of their own, ended by their id."""
import contextlib
import http.server
import shutil
import socket
import subprocess
import threading

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def redis(directory, *settings):
    """A server on loopback; its port. Ready when it says so."""
    port = free_port()
    words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", "", *settings]
    server = subprocess.Popen([SERVER, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        if not any("eady to accept connections" in line for line in server.stdout):
            raise AssertionError(f"{SERVER} {words} did not start")
        yield port
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


@contextlib.contextmanager
def pages(answers):
    """An HTTP server on loopback with these pages; HOST:PORT."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask_redis(port, *words, password=None):
    """One command: text, number, None, or a list of them."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rb") as answers:
        for command in ([("AUTH", password)] if password else []) + [words]:
            parts = [word if isinstance(word, bytes) else str(word).encode() for word in command]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
            answer = _read(answers)
        return answer


def _read(answers):
    line = answers.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise AssertionError(rest.decode())
    if kind == b"*":
        return [_read(answers) for _ in range(int(rest))]
    if kind == b"$":
        return None if rest == b"-1" else answers.read(int(rest) + 2)[:-2]
    return int(rest) if kind == b":" else rest.decode()
