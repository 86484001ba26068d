"""The integration's log, below SGLang's."""

from __future__ import annotations

from forebay.engines.common.complaints import Complaints

_own = Complaints("sglang.flexkv.forebay")
log, complain, guarded = _own.log, _own.complain, _own.guarded
