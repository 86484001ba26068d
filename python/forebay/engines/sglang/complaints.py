"""The integration's log, below SGLang's."""

from __future__ import annotations

from ..common.complaints import Complaints

_own = Complaints("sglang.forebay")
log, complain, guarded = _own.log, _own.complain, _own.guarded
