"""The connector's log, below vLLM's."""

from __future__ import annotations

from ..common.complaints import Complaints

_own = Complaints("vllm.forebay")
log, complain, guarded = _own.log, _own.complain, _own.guarded
