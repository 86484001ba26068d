"""The versions of SGLang that the integration works with. Its cache interface is not frozen: others are refused."""

from __future__ import annotations

from ..common.versions import UnsupportedVersionError, refuse_others

__all__ = ["SUPPORTED", "UnsupportedVersionError", "check_version"]

SUPPORTED: tuple[str, ...] = ("0.5.23",)
"""Releases that the integration is tested with."""


def check_version(version: str) -> None:
    """Refuses a version of SGLang that is not supported.

    Raises:
        UnsupportedVersionError: it is not.
    """
    refuse_others("SGLang", version, SUPPORTED, "forebay.engines.sglang")
