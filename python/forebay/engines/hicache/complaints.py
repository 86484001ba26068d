"""The backend's log, below SGLang's."""

from __future__ import annotations

from ..common.complaints import Complaints

_own = Complaints("sglang.forebay.hicache")
log, complain = _own.log, _own.complain
