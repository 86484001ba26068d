"""What keeps requests apart, from what SGLang says of them; and their tokens as 32-bit ids."""

from __future__ import annotations

import array
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..common.weights import adapter_revision

_TEXT_END = 1 << 31
"""Ids of tokenizers are below it; SGLang puts wide numbers that follow from the content in place of media."""

Parts = list[tuple[str, "str | bytes"]]


def namespace_of(extra_key: str | None, cache_salt: str | None, tenant: str | None = None) -> Parts:
    """Namespace parts of a request. Different ones share nothing; None and ``""`` are two.

    Args:
        extra_key: SGLang's, which has the LoRA adapter in it.
        cache_salt: of the request.
        tenant: of Forebay's own options of the request.
    """
    parts: Parts = []
    if extra_key is not None:
        parts.append(("text", f"extra key\0{extra_key}"))
    if cache_salt is not None:
        parts.append(("salt", cache_salt) if cache_salt else ("text", "empty salt"))
    if tenant is not None:
        parts.append(("tenant", tenant))
    return parts


def adapters_of(arguments: Any) -> dict[str, str]:
    """What the LoRA adapters of ``--lora-paths`` are, by id: a digest of their files.

    Their ids follow from name and path alone, and other weights may lie there when the engine starts again.

    Args:
        arguments: SGLang's ``ServerArgs``.

    Returns:
        those that lie on this machine.
    """
    found = {}
    for one in getattr(arguments, "lora_paths", None) or ():
        revision = adapter_revision(Path(str(getattr(one, "lora_path", None))))
        if revision:
            found[str(one.lora_id)] = revision
    return found


def with_adapter(extra_key: str | None, adapters: Mapping[str, str]) -> str | None:
    """An extra key with what its adapter is; SGLang puts the adapter's id at its end."""
    for number, digest in adapters.items():
        if extra_key is not None and extra_key.endswith(number):
            return f"{extra_key}\0{digest}"
    return extra_key


def _stand_in(token: int, position: int) -> int:
    digest = hashlib.blake2b(f"{token} {position}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") | _TEXT_END


def tokens_of(tokens: Iterable[int], start: int = 0) -> array.array[int]:
    """A request's tokens as 32-bit ids.

    Args:
        tokens: SGLang's, 64-bit; from ``start`` on.
        start: position of the first.

    Returns:
        the same numbers; in place of wide ones ids that no tokenizer has, from the number and its position: they reach
        the hash of the block where a picture begins and of every one behind it.
    """
    items = tokens if isinstance(tokens, (list, array.array)) else list(tokens)
    if not items or (max(items) < _TEXT_END and min(items) >= 0):
        return array.array("I", items)
    return array.array(
        "I", (item if 0 <= item < _TEXT_END else _stand_in(item, start + i) for i, item in enumerate(items))
    )
