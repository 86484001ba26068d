"""The leader's end: ranks register with it, and all of them do what it says."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import forebay

from . import wire
from .log import complain, log
from .tensors import Facts

ANSWER_LIMIT_S = 120.0
"""How long a rank that registers may take to map the pool."""

REPEAT_S = 30.0
"""A rank that does not answer is named in the log this often."""

_CREDENTIALS = struct.Struct("iII")

Open = Callable[[Facts], wire.Header]


class Crew:
    """All ranks of one server, this process's own among them.

    Args:
        path: of the socket at which they register.
        ranks: how many there are.
        opened: makes the cache from the first rank's tensors, and says what ranks need to use its pool.

    Raises:
        OSError: the socket cannot be made; ``EADDRINUSE``: another server listens there.
    """

    def __init__(self, path: str, ranks: int, opened: Open) -> None:
        self._path, self._ranks, self._opened = path, ranks, opened
        self._links: dict[int, socket.socket] = {}
        self._facts: Facts | None = None
        self._setup: wire.Header | None = None
        self._error: str | None = None
        self._changed = threading.Condition()
        self._is_closed = False
        self._began = time.monotonic()
        self._listener = self._listen()
        self._thread = threading.Thread(target=self._take_all, name="forebay-flexkv-leader", daemon=True)
        self._thread.start()

    # ---- Start ----

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._remove_stale()
            listener.bind(self._path)
            Path(self._path).chmod(0o600)
            listener.listen(self._ranks + 1)
        except BaseException:
            listener.close()
            raise
        return listener

    def _remove_stale(self) -> None:
        """Removes a socket that nobody listens at any more: its server was killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self._path)
            except ConnectionRefusedError:
                Path(self._path).unlink()

    def _take_all(self) -> None:
        try:
            while len(self._links) < self._ranks and self._error is None:
                link, _ = self._listener.accept()
                self._take(link)
        except OSError:
            pass  # closed
        finally:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._listener.close()
        with contextlib.suppress(OSError):
            Path(self._path).unlink()

    def _refuse(self, link: socket.socket, error: Exception) -> None:
        self._fail(str(error))
        with contextlib.suppress(wire.GoneError):
            wire.send(link, {"error": str(error)})
        link.close()

    def _take(self, link: socket.socket) -> None:
        """One rank registers, or is refused with the reason."""
        link.settimeout(ANSWER_LIMIT_S)
        try:
            _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if user != os.getuid():
                raise PermissionError(f"user {user} is not that of the server")
            hello, _, _ = wire.receive(link)
            number = int(hello["rank"])
            setup = self._setup_for(number, Facts(**hello["facts"]))
            wire.send(link, setup)
            answer, _, _ = wire.receive(link)
            if answer["error"] is not None:
                self._fail(answer["error"])
                link.close()
                return
        except forebay.ForebayError as error:  # some are OSErrors, too: no repetition opens such a cache
            self._refuse(link, error)
            return
        except (wire.GoneError, OSError) as error:
            complain("a registration", error)  # a probe, or a rank that ended: it comes again
            link.close()
            return
        except Exception as error:
            self._refuse(link, error)
            return
        link.settimeout(None)
        with self._changed:
            self._links[number] = link
            self._changed.notify_all()

    def _fail(self, text: str) -> None:
        with self._changed:
            self._error = self._error or text
            self._changed.notify_all()

    def _setup_for(self, number: int, facts: Facts) -> wire.Header:
        if not 0 <= number < self._ranks or number in self._links:
            raise ValueError(f"rank {number} registers; accepted: each of 0 to {self._ranks - 1}, once")
        if self._facts is None or self._setup is None:
            self._setup = self._opened(facts)
            self._facts = facts
        for name, value in facts.row().items():
            if value != self._facts.row()[name]:
                raise ValueError(f"{name} is {value!r} on rank {number} and {self._facts.row()[name]!r} on another")
        return self._setup | {"error": None, "ranks": self._ranks}

    def wait_ready(self, limit_s: float) -> bool:
        """Whether all ranks have registered; waits for them.

        Raises:
            RuntimeError: one cannot; the message says why.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or len(self._links) == self._ranks, limit_s)
            if self._error is not None:
                raise RuntimeError(f"flexkv: {self._error}")
            if len(self._links) < self._ranks:
                return False
        self._thread.join()  # nobody else can come
        return True

    def missing(self) -> list[int]:
        """Ranks that have not come yet."""
        with self._changed:
            return [number for number in range(self._ranks) if number not in self._links]

    def age_s(self) -> float:
        """Seconds since the leader began to listen."""
        return time.monotonic() - self._began

    # ---- Work ----

    def ask(
        self, header: wire.Header, places: wire.Numbers = (), pages: wire.Numbers = (), *, followers: bool = False
    ) -> list[wire.Header]:
        """All ranks do one thing; waits until each has done it. One thread at a time.

        There is no limit in time: a rank that has not answered may still write to the device's pages. A rank whose
        process has ended is found at once.

        Args:
            header: of the message.
            places: first list of numbers.
            pages: second one.
            followers: all but rank 0.

        Returns:
            the answers, by rank.

        Raises:
            GoneError: a rank is gone.
        """
        links = [link for number, link in sorted(self._links.items()) if number > 0 or not followers]
        for link in links:
            wire.send(link, header, places, pages)
        return [self._answer(link, header) for link in links]

    def _answer(self, link: socket.socket, header: wire.Header) -> wire.Header:
        poll = select.poll()  # descriptors of an engine's process may be above what select takes
        poll.register(link, select.POLLIN)
        while not poll.poll(1000 * REPEAT_S):
            log.warning("forebay: a rank has not answered to %s for %.0f s", header["op"], REPEAT_S)
        answer, _, _ = wire.receive(link)
        return answer

    def close(self) -> None:
        """Lets all ranks go. After the last :meth:`ask`."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            links = list(self._links.values())
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(ANSWER_LIMIT_S)
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
