"""Slow and hung stores, the same way for whoever reads from them.

A directory is slow or hangs below every file store alike: where a process reads (engines/slow_reads.c, preloaded). A
Mooncake is slow on the network between its node and every client (tc on the loopback of a network namespace), and hangs
when its node is stopped (SIGSTOP). No cache and no client is told.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_reads.c")
CONTROL_BYTES = 4096
LINK_QUEUE = "60ms"  # what a full link delays others on it, HTTP for one
SPEED, HUNG, READ_BYTES, READS, WAITING = 0, 8, 24, 32, 40
"""Where the 64-bit fields of struct control begin (engines/slow_reads.c)."""


class NotHereError(Exception):
    """Something that a comparison needs is not on this machine; the text says what."""


class Disk:
    """A directory whose reads can be slowed and hung, for processes that have :meth:`environment` from their start.

    Args:
        directory: what is below it is slow; it is made. The library and its control file lie beside it.

    Raises:
        NotHereError: there is no C compiler.
    """

    def __init__(self, directory: Path) -> None:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise NotHereError("no C compiler, which slowing a directory needs (Debian package: gcc)")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory.resolve()
        self._library = self.directory.with_suffix(".so")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise NotHereError(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()}")
        self._path = self.directory.with_suffix(".control")
        self._path.write_bytes(bytes(CONTROL_BYTES))
        with self._path.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), CONTROL_BYTES)

    def environment(self) -> dict[str, str]:
        """Variables of the processes that read."""
        return {
            "LD_PRELOAD": str(self._library),
            "SLOW_READS_DIR": str(self.directory),
            "SLOW_READS_CONTROL": str(self._path),
        }

    def _set(self, where: int, value: int) -> None:
        self._control[where : where + 8] = struct.pack("=Q", value)

    def count(self, where: int) -> int:
        """A counter: READ_BYTES or READS, since this object was made, or WAITING, now."""
        value: int = struct.unpack_from("=Q", self._control, where)[0]
        return value

    def slow(self, bytes_per_s: int) -> None:
        """All reads together get no more than that."""
        self._set(SPEED, bytes_per_s)

    def hang(self) -> None:
        """Reads wait from now on."""
        self._set(HUNG, 1)

    def heal(self) -> None:
        """As fast as the directory is; what hung goes on."""
        self._set(SPEED, 0)
        self._set(HUNG, 0)


class Link:
    """A Mooncake of scripts/with-store, in whose network namespace this process runs.

    Args:
        node: process id of its storage node.
    """

    def __init__(self, node: int) -> None:
        self._node = node
        self._is_slow = False

    def slow(self, bytes_per_s: int) -> None:
        """The loopback, which all clients share, carries no more than that. Errors: CalledProcessError."""
        self.heal()
        rate = ["rate", f"{8 * bytes_per_s}bit", "burst", "128kb", "latency", LINK_QUEUE]
        subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *rate], check=True)
        self._is_slow = True

    def hang(self) -> None:
        """The node stands still. Its master goes on: it says what is stored."""
        os.kill(self._node, signal.SIGSTOP)

    def heal(self) -> None:
        """As fast as the loopback is; the node goes on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._node, signal.SIGCONT)
        if self._is_slow:
            subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
            self._is_slow = False


Fault = Disk | Link
