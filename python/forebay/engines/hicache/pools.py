"""Host pools of SGLang, as far as their pages' addresses go. The memory is SGLang's: nothing here keeps an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..common.keyed import Piece, size_of


class PoolError(ValueError):
    """A host pool whose pages cannot be addressed; the message says which and why."""


class HostPool:
    """A host pool of one name.

    Args:
        name: of the pool, as SGLang has it.
        host: SGLang's object; asked for ``page_size`` and ``get_page_buffer_meta``.
        indices: makes ``[0, n)`` as the host pool wants its indices.

    Attributes:
        name: as given.
        host: as given.
        sizes: bytes of a page's pieces, in order; empty: the pool has no bytes (a logical anchor of other pools).
        page_bytes: of one page.

    Raises:
        PoolError: pages have no addresses in this layout.
    """

    def __init__(self, name: str, host: Any, indices: Callable[[int], Any]) -> None:
        self.name, self.host = name, host
        try:
            meta = host.get_page_buffer_meta(indices(int(host.page_size or 1)))
        except (ValueError, NotImplementedError, AssertionError, AttributeError, RuntimeError) as error:
            layout = getattr(host, "layout", "?")
            raise PoolError(
                f"pages of host pool {name} ({type(host).__name__}, layout {layout}) have no addresses: {error}; "
                "accepted: --hicache-mem-layout page_first_direct or page_first"
            ) from error
        self.sizes = tuple(int(size) for size in meta[1]) if meta else ()
        self.page_bytes = sum(self.sizes)
        self._rows = int(host.page_size or 1)

    def _refuse_split(self, indices: Any) -> None:
        """A page that begins inside of another one would be written across both."""
        first = indices[:: self._rows]
        odd = [row for row in (first.tolist() if hasattr(first, "tolist") else first) if row % self._rows]
        if odd:
            raise PoolError(
                f"a page of host pool {self.name} begins at row {odd[0]}; expected multiples of {self._rows}"
            )

    def values(self, indices: Any, pages: int) -> list[list[Piece]]:
        """The pieces of each of ``pages`` pages.

        Args:
            indices: rows of the host pool, whole pages one after the other.
            pages: how many they are.

        Raises:
            PoolError: they are not so many, or of another size.
        """
        if pages == 0:
            return []
        if indices is None:
            raise PoolError(f"host pool {self.name} got {pages} keys and no indices")
        self._refuse_split(indices)
        pointers, sizes = self.host.get_page_buffer_meta(indices)
        each = len(self.sizes)
        if len(pointers) != pages * each:
            raise PoolError(f"host pool {self.name} has {len(pointers)} pieces for {pages} pages; expected {each} each")
        pieces = [(int(pointer), int(size)) for pointer, size in zip(pointers, sizes, strict=True)]
        made = [pieces[i : i + each] for i in range(0, len(pieces), each)]
        if any(size_of(value) != self.page_bytes for value in made):
            raise PoolError(f"pages of host pool {self.name} differ in size; expected {self.page_bytes} bytes")
        return made
