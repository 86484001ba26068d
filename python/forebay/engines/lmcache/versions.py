"""The versions of LMCache that the adapter works with: what it calls, and in which order, is not frozen there."""

from __future__ import annotations

import importlib.metadata
import sys

SUPPORTED: tuple[str, ...] = ("0.5.6",)
"""Releases that the adapter is tested with; suffixes of builds (``+cpu``) do not count."""


class UnsupportedVersionError(ImportError):
    """This LMCache is not one that the adapter works with; the message lists those that are."""


def installed_version() -> str | None:
    """The version of the LMCache of this process, or of the one that is installed; None: there is none."""
    loaded = getattr(sys.modules.get("lmcache"), "__version__", None)
    if loaded is not None:
        return str(loaded)
    try:
        return importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        return None


def check_version(version: str) -> None:
    """Refuses a version of LMCache that is not supported.

    Raises:
        UnsupportedVersionError: it is not.
    """
    if version.partition("+")[0] not in SUPPORTED:
        raise UnsupportedVersionError(
            f"LMCache {version} is not supported by forebay.engines.lmcache; accepted: {', '.join(SUPPORTED)}"
        )
