"""Forebay in SGLang's HiCache: ``--hicache-storage-backend dynamic`` (docs/hicache.md).

Its extra config names this module as ``module_path`` and ``ForebayStorage`` as ``class_name``. Importing this module
imports nothing of SGLang; naming :class:`ForebayStorage` does, and refuses a version of SGLang that the backend was not
tested with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sglang.versions import SUPPORTED, UnsupportedVersionError, check_version

if TYPE_CHECKING:
    from .storage import ForebayStorage

__all__ = ["SUPPORTED", "ForebayStorage", "UnsupportedVersionError", "check_version"]


def __getattr__(name: str) -> Any:
    if name == "ForebayStorage":
        import sglang  # type: ignore[import-not-found, unused-ignore]

        check_version(str(sglang.__version__))
        from .storage import ForebayStorage

        return ForebayStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
