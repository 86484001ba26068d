"""The import name of FlexKV with Forebay behind it, for SGLang's ``--enable-flexkv`` (docs/flexkv.md).

It has what that integration imports, and no more of FlexKV. The distribution ``flexkv`` has the same import name: pip
knows no conflicts, so an import beside it is refused here.
"""

from __future__ import annotations

from importlib import metadata

__version__ = "0.1.0"

_DISTRIBUTION = "forebay-flexkv"


def _refuse_others() -> None:
    """Refuses to be one of two packages of this name.

    Raises:
        ImportError: another distribution has files under it.
    """
    others = sorted(set(metadata.packages_distributions().get("flexkv", ())) - {_DISTRIBUTION})
    if others:
        raise ImportError(
            f"the import name flexkv belongs to {', '.join(others)} and to {_DISTRIBUTION}, whose files are mixed now; "
            f"accepted: one of them. Uninstall all, then install the one that is wanted"
        )


_refuse_others()
