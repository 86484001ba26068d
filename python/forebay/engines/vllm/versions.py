"""The versions of vLLM that the connector works with. Its connector interface is not frozen: others are refused."""

from __future__ import annotations

SUPPORTED: tuple[str, ...] = ("0.32.0",)
"""Releases that the connector is tested with; suffixes of builds (``+cpu``) do not count."""


class UnsupportedVersionError(ImportError):
    """This vLLM is not one that the connector works with; the message lists those that are."""


def check_version(version: str) -> None:
    """Refuses a version of vLLM that is not supported.

    Raises:
        UnsupportedVersionError: it is not.
    """
    if version.partition("+")[0] not in SUPPORTED:
        raise UnsupportedVersionError(
            f"vLLM {version} is not supported by forebay.engines.vllm; accepted: {', '.join(SUPPORTED)}"
        )
