"""How a task ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class KVResponseStatus(enum.Enum):
    """What became of a task.

    ``SUCCESS``: all of it was done. ``FAILED``: nothing of it may be used. ``TIMEOUT``: it has not ended, nothing was
    stopped. ``UNREADY``: it was not launched.
    """

    SUCCESS = "success"
    NOT_FOUND = "not_found"
    UNREADY = "unready"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class KVResponse:
    """The answer about one task.

    Attributes:
        status: what became of it.
        task_id: as given.
        return_mask: bool array over the task's tokens: those that are there now (get: restored, put: copied out,
            prefetch: usable); all False unless the status is SUCCESS.
    """

    status: KVResponseStatus
    task_id: int
    return_mask: Any = None
