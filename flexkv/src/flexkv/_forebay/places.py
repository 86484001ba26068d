"""Where sockets of one server lie, so that its ranks find each other and nobody else does."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_MOST_PATH = 107  # bytes of a Unix socket's path


def own_directory() -> Path:
    """A directory that only this user enters.

    Raises:
        PermissionError: somebody else made it.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")  # named, but not there, in many a container
    base = Path(given if given and Path(given).is_dir() else tempfile.gettempdir())
    path = base / f"forebay-flexkv-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a directory of this user alone; accepted: mode 0700")
    return path


def register_path(given: str, name: str) -> str:
    """The socket at which ranks register.

    Args:
        given: ``FLEXKV_SERVER_RECV_PORT``: a path, with or without ``ipc://``; or "".
        name: of the server, where nothing is given.

    Raises:
        ValueError: an address of a network, or a path that is too long.
    """
    if "://" in given and not given.startswith("ipc://"):
        raise ValueError(f"FLEXKV_SERVER_RECV_PORT is {given!r}; accepted: a path, or ipc://PATH")
    path = f"{given.removeprefix('ipc://')}_gpu_register" if given else str(own_directory() / name)
    if len(os.fsencode(path)) > _MOST_PATH:
        raise ValueError(f"the socket's path {path} is longer than {_MOST_PATH} bytes; set FLEXKV_SERVER_RECV_PORT")
    return path


def socket_path(port: str, dp_client_id: int) -> str:
    """The leader's socket of one replica."""
    return port if dp_client_id == 0 else f"{port}-{dp_client_id}"
