"""A store named by one text, as everywhere in Forebay (docs/stores.md, "Naming a store")."""

from __future__ import annotations

import os
from typing import NamedTuple

_HOSTS = ("auto", "inline", "thread", "agent")


class StoreName(NamedTuple):
    """``store.driver``, ``store.host`` (or None) and ``store.options``."""

    driver: str
    host: str | None
    options: dict[str, str]


def _split(text: str) -> list[str]:
    """At commas that are neither inside parentheses nor behind a backslash."""
    parts, depth, escaped = [""], 0, False
    for letter in text:
        if escaped:
            parts[-1] += letter
            escaped = False
            continue
        if letter == "\\":
            escaped = True
            continue
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _host(name: str) -> tuple[str, str | None]:
    driver, at, host = name.rpartition("@")
    if at and host in _HOSTS:
        return driver, host
    if at and "/" not in name:
        raise ValueError(f"store host is {host!r}; accepted: {', '.join(_HOSTS)}")
    return name, None


def parse_store(text: str) -> StoreName:
    """Takes a name apart: ``mem``, ``file:DIRECTORY``, ``DRIVER@HOST:key=value,…``, ``fault:DRIVER:…``, ``env``.

    Raises:
        ValueError: it is not of that form.
    """
    if text == "env":
        text = os.environ.get("FOREBAY_STORE", "")
    name, _, rest = text.partition(":")
    driver, host = _host(name)
    if driver == "fault":
        inner, _, rest = rest.partition(":")
        inner, host = _host(inner)
        driver = f"fault:{inner}"
    if not driver or driver == "fault:":
        raise ValueError(f"store is {text!r}; accepted: mem, file:DIRECTORY, DRIVER:key=value,key=value, env")
    if driver == "file" and rest and "=" not in rest:
        return StoreName(driver, host, {"dir": rest})
    options: dict[str, str] = {}
    for part in _split(rest):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"store option is {part!r}; accepted: key=value")
        options[key] = value
    return StoreName(driver, host, options)
