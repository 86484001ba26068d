"""The cache that the scheduler's side works with: its own, or that of a server, whose model must be the engine's."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import forebay

if TYPE_CHECKING:
    from .model import EngineModel
    from .settings import CommonSettings

CALL_LIMIT_S = 1.0
"""A server that does not answer for so long counts as gone: the engine's scheduler waits for its answers."""

_MAY_DIFFER = ("id", "revision", "weights_epoch")  # fields of the model that a configuration may set for itself


def model_section(settings: CommonSettings, model: EngineModel) -> dict[str, Any]:
    """Forebay's ``model`` section: what the engine runs, but for what the configuration says for itself."""
    section = model.section()
    for key in _MAY_DIFFER:
        row = settings.config.get(f"model.{key}")
        if row.origin != "default":
            section[key] = int(row.value) if key == "weights_epoch" else row.value
    return section


def fingerprint(section: Mapping[str, Any]) -> str:
    """The model's fingerprint in hexadecimal, as docs/keys.md specifies it."""
    made = bytearray(b"forebay-fingerprint-1")

    def field(tag: int, value: bytes) -> None:
        made.extend(struct.pack("<BI", tag, len(value)) + value)

    def number(tag: int, value: int, form: str = "<I") -> None:
        field(tag, struct.pack(form, value))

    number(1, 1)
    for tag, key in ((2, "id"), (3, "revision"), (5, "kv_dtype"), (7, "layer_set"), (8, "layout")):
        field(tag, str(section[key]).encode())
    number(4, section["weights_epoch"], "<Q")
    for tag, key in ((6, "block_tokens"), (9, "tp_size"), (10, "cp_size"), (11, "pp_size")):
        number(tag, section[key])
    number(12, len(section["groups"]))
    for group in section["groups"]:
        rule = str(group["rule"])
        field(13, str(group["name"]).encode())
        number(14, group["payload_bytes"])
        number(15, 0 if rule == "all" else int(rule.removeprefix("trailing(").removesuffix(")")))
    return hashlib.sha256(made).hexdigest()[:32]


def open_cache(settings: CommonSettings, model: EngineModel, name: str) -> forebay.Cache:
    """Opens the engine's own cache, or connects to the server's.

    Args:
        settings: of the engine.
        model: that it runs.
        name: of the client, for the server's list.

    Raises:
        ValueError: the server's model is not the engine's; the message has the section that the server needs.
        forebay.ForebayError: the cache cannot be opened, or the server cannot be reached.
    """
    section = model_section(settings, model)
    if settings.server is None:
        settings.config.update({"model": section})
        return forebay.Cache(settings.config)
    cache = forebay.connect(settings.server, call_timeout_s=CALL_LIMIT_S, name=name)
    wanted = section | {"weights_epoch": cache.epoch}  # a server may have raised it
    if cache.model.fingerprint not in (fingerprint(section), fingerprint(wanted)):
        cache.close(0)
        raise ValueError(
            f"the server at {settings.server} has another model (fingerprint {cache.model.fingerprint}); "
            f"accepted: a server with this section in its configuration: model: {json.dumps(section)}"
        )
    return cache
