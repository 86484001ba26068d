"""Tokens and namespaces as the library wants them."""

from __future__ import annotations

import array
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ._forebay import ffi, lib
from ._names import NAMESPACE_NUMBERS, number_of

Tokens: TypeAlias = "Iterable[int] | Buffer"
"""Token ids, one per position, each 0 to 2**32 - 1. Accepted are a sequence of ``int``; an object with the buffer
protocol (array, NumPy array, CPU tensor's NumPy view) of 32-bit or 64-bit integers, native byte order, any shape, read
in C order; or raw bytes, four per token in little-endian order."""

NamespaceParts: TypeAlias = "Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]"
"""Parts of a namespace: (kind, data) pairs or a mapping, in order. Kinds are those of :class:`Namespace`; text is
encoded as UTF-8. Order and kind enter the hash. An empty salt means "unset"."""

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NARROW, _WIDE, _RAW = frozenset("iIlL"), frozenset("lLqQ"), frozenset("bBc")
_MOST = 2**32 - 1


def _refused(index: int, value: object) -> ValueError:
    return ValueError(f"token {index} is {value!r}; accepted: 0 to {_MOST}")


def _from_items(tokens: Iterable[int]) -> tuple[Any, int]:
    items = list(tokens)
    try:
        packed = array.array("I", items)
    except OverflowError:
        index = next(i for i, item in enumerate(items) if not 0 <= item <= _MOST)
        raise _refused(index, items[index]) from None
    return ffi.from_buffer("uint32_t[]", packed), len(packed)


def _from_raw(view: memoryview) -> tuple[Any, int]:
    if view.nbytes % 4:
        raise ValueError(f"{view.nbytes} raw bytes are not whole tokens; accepted: four bytes per token")
    if sys.byteorder == "big":
        packed = array.array("I", view.tobytes())
        packed.byteswap()
        return ffi.from_buffer("uint32_t[]", packed), len(packed)
    return ffi.from_buffer("uint32_t[]", view), view.nbytes // 4


def _from_buffer(kind: str, size: int, view: memoryview) -> tuple[Any, int]:
    """From contiguous items of ``size`` bytes. The pointer keeps nothing alive: the caller keeps ``view``."""
    kind = kind.lstrip("@=" + ("<" if sys.byteorder == "little" else ">"))
    n = view.nbytes // max(1, size)
    if kind in _RAW:
        return _from_raw(view)
    if kind in _NARROW and size == 4:
        data = ffi.from_buffer("int32_t[]", view)
        bad = lib.fbypy_negative(data, n) if kind in "il" else -1
        if bad >= 0:
            raise _refused(bad, data[bad])
        return ffi.cast("uint32_t *", data), n
    if kind in _WIDE and size == 8:
        data = ffi.from_buffer("int64_t[]", view)
        narrow = ffi.new("uint32_t[]", n)
        bad = lib.fbypy_narrow(data, n, narrow)
        if bad >= 0:
            raise _refused(bad, data[bad])
        return narrow, n
    raise TypeError(f"a buffer of format {kind!r} is not tokens; accepted: 32-bit or 64-bit integers, or raw bytes")


def tokens_in(tokens: Tokens) -> tuple[Any, int, Any]:
    """Tokens as a C array.

    Args:
        tokens: see :data:`Tokens`. Buffers of 32-bit integers are used in place, without a copy.

    Returns:
        pointer to ``uint32_t``, number of tokens, and what must stay alive while the pointer is used.

    Raises:
        ValueError: a token is not in 0 to 2**32 - 1, or raw bytes are not a multiple of four.
        TypeError: neither integers nor a buffer of them.
    """
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]
    except TypeError:
        pointer, n = _from_items(tokens)  # type: ignore[arg-type]
        return pointer, n, pointer
    items = view if view.c_contiguous else memoryview(view.tobytes())
    pointer, n = _from_buffer(view.format, view.itemsize, items)
    return pointer, n, (pointer, items)


def namespace_in(parts: NamespaceParts | None) -> tuple[Any, int, Any]:
    """A namespace as a C array of parts.

    Returns:
        pointer to ``fby_ns_part_t`` or NULL, number of parts, and what must stay alive with the pointer.

    Raises:
        ValueError: a kind that is not known.
        TypeError: data that is neither ``str`` nor bytes.
    """
    if parts is None:
        return ffi.NULL, 0, None
    pairs = list(parts.items() if isinstance(parts, Mapping) else parts)
    made, alive = ffi.new("fby_ns_part_t[]", len(pairs)), []
    for part, (kind, data) in zip(made, pairs, strict=True):
        raw = ffi.from_buffer(data.encode("utf-8") if isinstance(data, str) else bytes(data))
        alive.append(raw)
        part.type = number_of(NAMESPACE_NUMBERS, "namespace kind", kind)
        part.data, part.length = raw, len(raw)
    return made, len(pairs), (made, alive)
