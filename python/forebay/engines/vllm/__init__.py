"""Forebay in vLLM: ``kv_connector="ForebayConnector"``, ``kv_connector_module_path="forebay.engines.vllm"``.

Importing this module imports nothing of vLLM; naming :class:`ForebayConnector` does, and refuses a version of vLLM that
the connector was not tested with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .versions import SUPPORTED, UnsupportedVersionError, check_version

if TYPE_CHECKING:
    from .connector import ForebayConnector

__all__ = ["SUPPORTED", "ForebayConnector", "UnsupportedVersionError", "check_version"]


def __getattr__(name: str) -> Any:
    if name == "ForebayConnector":
        import vllm  # type: ignore[import-not-found, unused-ignore]

        check_version(str(vllm.__version__))
        from .connector import ForebayConnector

        return ForebayConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
