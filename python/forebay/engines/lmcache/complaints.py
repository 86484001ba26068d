"""The adapter's log, below LMCache's and in its form."""

from __future__ import annotations

import sys

from ..common.complaints import Complaints

_NAME = "lmcache.forebay"
_own = Complaints(_NAME)
log, complain = _own.log, _own.complain


def use_engine_log() -> None:
    """Gives the log LMCache's handler and level; its loggers pass nothing on. Nothing without LMCache."""
    logging = sys.modules.get("lmcache.logging")
    if logging is not None:
        logging.init_logger(_NAME)
