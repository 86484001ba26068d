"""Ranks on other machines. There are none with Forebay behind it."""

from __future__ import annotations

from typing import Any, NoReturn


class TransferManagerOnRemote:
    """In FlexKV a process on every further machine. One machine is served here; :meth:`create_process` says so."""

    @staticmethod
    def create_process(*arguments: Any, **keywords: Any) -> NoReturn:
        """Refuses.

        Raises:
            ValueError: always.
        """
        del arguments, keywords
        raise ValueError(
            "nnodes is above 1; accepted: 1. Give each machine a server of its own, and let them share a store"
        )
