"""The versions of vLLM that the connector works with. Its connector interface is not frozen: others are refused."""

from __future__ import annotations

from ..common.versions import UnsupportedVersionError, refuse_others

__all__ = ["SUPPORTED", "UnsupportedVersionError", "check_version"]

SUPPORTED: tuple[str, ...] = ("0.32.0",)
"""Releases that the connector is tested with."""


def check_version(version: str) -> None:
    """Refuses a version of vLLM that is not supported.

    Raises:
        UnsupportedVersionError: it is not.
    """
    refuse_others("vLLM", version, SUPPORTED, "forebay.engines.vllm")
