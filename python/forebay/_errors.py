"""Exceptions: one class per family of the library's codes, each with code, name and detail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ._forebay import ffi, lib

if TYPE_CHECKING:
    from typing import NoReturn

    from ._records import CloseReport


class ForebayError(Exception):
    """Base of everything that a call into the library raises.

    Attributes:
        code: the C return value, negative: ``-errno`` or one of ``FBY_E_*``.
        name: its symbolic name, as ``fby_errname`` gives it: ``"STALE"``, ``"EINVAL"``.
        detail: ``fby_last_error``: the thing, the value and what is accepted; may be empty.
    """

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.name = errname(code)

    def __str__(self) -> str:
        return f"{self.name}: {self.detail or strerror(self.code)}"


class _SystemError(ForebayError, OSError):
    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(code, detail)
        self.errno = -code
        self.strerror = detail or strerror(code)


class ConfigError(ForebayError, ValueError):
    """``FBY_E_CONFIG``: the configuration is wrong; the detail names key, value and what is accepted."""


class ArgumentError(ForebayError, ValueError):
    """``-EINVAL``: an argument is out of range."""


class StaleError(ForebayError):
    """``FBY_E_STALE``: a handle that is not known (any more), or a sequence of an older weights epoch."""


class StateError(ForebayError):
    """``FBY_E_STATE``: the call does not fit the object's state."""


class NotEnabledError(ForebayError):
    """``FBY_E_NOT_ENABLED``: a policy other than wait_complete needs ``prefetch.enabled``."""


class ClosedError(ForebayError):
    """``FBY_E_CLOSED``: the cache is closed or closing."""


class ForkedError(ForebayError):
    """``FBY_E_FORKED``: the cache belongs to the parent process."""


class PoisonedError(ForebayError):
    """``FBY_E_POISONED``: an internal invariant broke; the cache answers nothing any more."""


class FormatError(ForebayError):
    """``FBY_E_FORMAT``: data of a format that this version does not read."""


class CapacityError(ForebayError):
    """``FBY_E_BUDGET``: the call would pass a configured budget."""


class AbandonedError(ForebayError):
    """``FBY_E_ABANDONED``, from close: something did not end in time; what it may touch stays mapped.

    Attributes:
        report: the :class:`CloseReport`.
    """

    report: CloseReport


class StoreError(ForebayError):
    """A code that a store gave (``FBY_E_MISSING`` to ``FBY_E_RECALLED``)."""


class ChecksumError(StoreError):
    """``FBY_E_CHECKSUM``: bytes are not what they were: an object of a store, or a message between ranks."""


class BusyError(ForebayError):
    """``-EBUSY``: a table is full, or the store's directory is in use."""


class OutOfMemoryError(ForebayError, MemoryError):
    """``-ENOMEM``: the detail says what was asked for."""


class WaitTimeoutError(_SystemError, TimeoutError):
    """``-ETIMEDOUT``: the time of a wait passed; nothing was stopped. Also a built-in ``TimeoutError``."""


class MissingFileError(_SystemError, FileNotFoundError):
    """``-ENOENT``: also a built-in ``FileNotFoundError``."""


class AccessError(_SystemError, PermissionError):
    """``-EACCES`` or ``-EPERM``: also a built-in ``PermissionError``."""


class AwayError(_SystemError, ConnectionError):
    """``-ENOTCONN``: the server is away; also a built-in ``ConnectionError``."""


class RefusedError(_SystemError, ConnectionRefusedError):
    """``-ECONNREFUSED``: nobody listens on that socket; also a built-in ``ConnectionRefusedError``."""


class RankLostError(_SystemError, ConnectionResetError):
    """``-ECONNRESET``: a rank of the group is dead; also a built-in ``ConnectionResetError``.

    Attributes:
        rank: which one, where the call says so; else None.
    """

    rank: int | None = None


class LeaderLostError(_SystemError):
    """``-EOWNERDEAD``: the leader of the group is dead."""


class MissingDecisionError(_SystemError):
    """``-ENODATA``: decisions of the log did not come while later ones did: ask the leader for them."""


class SystemCallError(_SystemError):
    """Any other ``-errno``: also a built-in ``OSError``, with ``errno`` set."""


_OWN_CODES = 2000  # codes below its negative are the library's own, above it -errno

_FAMILIES: dict[int, type[ForebayError]] = {
    lib.FBY_E_CONFIG: ConfigError,
    lib.FBY_E_STALE: StaleError,
    lib.FBY_E_STATE: StateError,
    lib.FBY_E_NOT_ENABLED: NotEnabledError,
    lib.FBY_E_CLOSED: ClosedError,
    lib.FBY_E_FORKED: ForkedError,
    lib.FBY_E_POISONED: PoisonedError,
    lib.FBY_E_FORMAT: FormatError,
    lib.FBY_E_BUDGET: CapacityError,
    lib.FBY_E_ABANDONED: AbandonedError,
    -errno.EINVAL: ArgumentError,
    -errno.EBUSY: BusyError,
    -errno.ENOMEM: OutOfMemoryError,
    -errno.ETIMEDOUT: WaitTimeoutError,
    -errno.ENOENT: MissingFileError,
    lib.FBY_E_CHECKSUM: ChecksumError,
    -errno.ENOTCONN: AwayError,
    -errno.ECONNREFUSED: RefusedError,
    -errno.ECONNRESET: RankLostError,
    -errno.EOWNERDEAD: LeaderLostError,
    -errno.ENODATA: MissingDecisionError,
    -errno.EACCES: AccessError,
    -errno.EPERM: AccessError,
}


def text(pointer: object) -> str:
    """A C string as ``str``; NULL gives an empty one."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer != ffi.NULL else ""


def strerror(code: int) -> str:
    """Text of a return value, for people (``fby_strerror``)."""
    return text(lib.fby_strerror(code))


def errname(code: int) -> str:
    """Short symbolic name of a return value (``fby_errname``): ``"MISSING"``, ``"EINVAL"``."""
    return text(lib.fby_errname(code))


def error(code: int) -> ForebayError:
    """The exception for a code, with the detail of the thread's last failing call."""
    family = _FAMILIES.get(code)
    if family is None:
        is_store = lib.FBY_E_RECALLED <= code <= lib.FBY_E_MISSING
        is_errno = -_OWN_CODES < code < 0
        family = StoreError if is_store else SystemCallError if is_errno else ForebayError
    return family(code, text(lib.fby_last_error()))


def raise_error(code: int) -> NoReturn:
    """Raises the exception for a code. Must run in the thread of the failing call, right after it."""
    raise error(code)


def check(code: int) -> int:
    """Passes a return value on, or raises what it means."""
    if code < 0:
        raise error(code)
    return code
