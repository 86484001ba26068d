"""Configurations: dotted keys with an effective value and its origin."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ._errors import check, text
from ._forebay import ffi, lib

Value: TypeAlias = "str | int | float | bool | list[Any] | Mapping[str, Any] | None"
"""A value as a YAML file would hold it: ``None`` stands for ``unset``; a list (``model.groups``) or a mapping may stand
where a file accepts one. Sizes are ``int`` bytes or text like ``"512MiB"``; durations are seconds."""


class Setting(NamedTuple):
    """One key of a configuration.

    Attributes:
        key: dotted name, ``"prefetch.policy"``.
        value: the effective value as text; a secret is ``"(set)"``.
        origin: ``"file"`` (also what :meth:`Config.set` set), ``"environment"`` or ``"default"``.
    """

    key: str
    value: str
    origin: str


@ffi.def_extern()  # type: ignore[untyped-decorator, unused-ignore]
def fbypy_row(arg: Any, key: Any, value: Any, origin: Any) -> None:
    """Called by ``fby_config_each``, in its caller's thread; ``arg`` is a handle of the list to extend."""
    rows: list[Setting] = ffi.from_handle(arg)
    rows.append(Setting(text(key), text(value), text(origin)))


# Keys whose value is a mapping; any other mapping is a section.
_MAPPINGS = frozenset({"pool.group_bytes"})


def _as_text(key: str, value: Value) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_as_text(key, share)}" for name, share in value.items())
    if isinstance(value, (list, tuple)):
        return json.dumps(value)
    raise TypeError(f"{key} is a {type(value).__name__}; accepted: text, numbers, truth values, None, lists, mappings")


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping) and key not in _MAPPINGS:
            yield from _flat(key, value)
        else:
            yield key, value


class Config:
    """A configuration (``fby_config_t``): defaults plus the environment, then what is loaded and set here.

    Precedence: file and :meth:`set` > environment ``FOREBAY_*`` > default. docs/configuration.md lists the keys with
    units and defaults; the defaults are the library's, this class has none of its own. Not thread-safe. It may be
    dropped once a cache is open.

    Args:
        values: nested mappings or dotted keys, ``{"prefetch": {"policy": "timeout"}}`` or
            ``{"prefetch.policy": "timeout"}``.
        path: a YAML or JSON file, read before ``values``.
        **sections: sections as keywords, after ``values``: ``Config(pool={"bytes": "1GiB"})``.

    Raises:
        ConfigError: a key, a value or an environment variable is wrong; the detail names what is accepted.
        OSError: the file cannot be read.
    """

    __slots__ = ("_pointer",)

    def __init__(
        self, values: Mapping[str, Any] | None = None, *, path: str | os.PathLike[str] | None = None, **sections: Any
    ) -> None:
        out = ffi.new("fby_config_t **")
        check(lib.fby_config_create(out))
        self._pointer = ffi.gc(out[0], lib.fby_config_free)
        if path is not None:
            self.load(path)
        self.update(values or {})
        self.update(sections)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads a YAML or JSON file (``fby_config_load``).

        Raises:
            ConfigError: something in it is wrong; the detail names file, line, key, value and what is accepted.
            OSError: the file cannot be read.
        """
        check(lib.fby_config_load(self._pointer, os.fsencode(path)))

    def parse(self, text: str, name: str = "text") -> None:
        """Reads YAML or JSON from memory (``fby_config_parse``); ``name`` stands in messages.

        Raises:
            ConfigError: as for :meth:`load`.
        """
        raw = text.encode("utf-8")
        check(lib.fby_config_parse(self._pointer, raw, len(raw), name.encode("utf-8")))

    def set(self, key: str, value: Value) -> None:
        """Sets one key as if it stood in the file (``fby_config_set``).

        Raises:
            ConfigError: no such key, or not an accepted value.
            TypeError: a value of a type that no key has.
        """
        check(lib.fby_config_set(self._pointer, key.encode("utf-8"), _as_text(key, value).encode("utf-8")))

    def update(self, values: Mapping[str, Any]) -> None:
        """Sets many keys: nested mappings, dotted keys, or both.

        Raises:
            ConfigError: as for :meth:`set`; what came before the wrong key stays set.
        """
        for key, value in _flat("", values):
            self.set(key, value)

    def get(self, key: str) -> Setting:
        """The effective value of a key, and where it came from (``fby_config_get``).

        Raises:
            KeyError: there is no such key.
        """
        value, origin = ffi.new("const char **"), ffi.new("const char **")
        if lib.fby_config_get(self._pointer, key.encode("utf-8"), value, origin) != 0:
            raise KeyError(key)
        return Setting(key, text(value[0]), text(origin[0]))

    def check(self) -> None:
        """Checks what can be checked without allocating (``fby_config_check``); a cache does so when it opens.

        Raises:
            ConfigError: a model field is missing, or keys contradict each other.
        """
        check(lib.fby_config_check(self._pointer))

    def each(self) -> list[Setting]:
        """Every key in order, with effective value and origin (``fby_config_each``)."""
        rows: list[Setting] = []
        handle = ffi.new_handle(rows)
        lib.fby_config_each(self._pointer, lib.fbypy_row, handle)
        return rows

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.each())
