"""Which versions of an engine a connector works with. Engines' interfaces are not frozen: others are refused."""

from __future__ import annotations


class UnsupportedVersionError(ImportError):
    """This version of the engine is not one that the connector works with; the message lists those that are."""


def refuse_others(engine: str, version: str, accepted: tuple[str, ...], module: str) -> None:
    """Refuses a version that is not among the accepted ones; suffixes of builds (``+cpu``) do not count.

    Raises:
        UnsupportedVersionError: it is not.
    """
    if version.partition("+")[0] not in accepted:
        raise UnsupportedVersionError(
            f"{engine} {version} is not supported by {module}; accepted: {', '.join(accepted)}"
        )
