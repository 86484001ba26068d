"""Copies between the pool and this rank's pages, ordered with the engine's streams. It decides nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import forebay

from .complaints import complain
from .ranks import Attached

Pages = Sequence[Sequence[int]]
"""Per group the device pages of consecutive blocks."""


@dataclass(slots=True)
class Outcome:
    """How this rank's copies of one job ended.

    Attributes:
        code: 0, or how the first of them failed.
        failed: (group, block) of blocks that are not right; with a code and none here, none is.
        bytes: copied.
    """

    code: int = 0
    failed: list[tuple[int, int]] = field(default_factory=list)
    bytes: int = 0


@dataclass(slots=True)
class Running:
    """Copies of one job that may be under way.

    Attributes:
        copies: each with the blocks that it copies.
        code: how starting one failed; 0: all were started.
        event: what they began behind; kept until they end.
    """

    copies: list[tuple[forebay.Copy, forebay.BlockRange]]
    code: int
    event: Any


class Streams:
    """The engine's streams, for copies of device ``cuda``: they begin behind what is queued on them.

    Args:
        forward: the stream of the model's forwards.
    """

    def __init__(self, forward: Any) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]

        self._torch = torch
        self._forward = forward
        self._meeting = torch.cuda.Stream()

    def behind(self) -> Any:
        """An event after all that is queued on the engine's streams now."""
        if self._forward is not None:
            self._meeting.wait_stream(self._forward)
        self._meeting.wait_stream(self._torch.cuda.current_stream())
        event = self._torch.cuda.Event()
        event.record(self._meeting)
        return event


class Copier:
    """One rank's copies. One thread calls it.

    Args:
        streams: of the engine; None: a copy has ended when it was started.
    """

    def __init__(self, streams: Streams | None) -> None:
        self._streams = streams

    def load(self, attached: Attached, ranges: Iterable[forebay.BlockRange], pages: Pages, start: int) -> Outcome:
        """Copies slots into pages, and has ended on return.

        Args:
            attached: the pool.
            ranges: which slots.
            pages: per group those of the blocks from ``start`` on.
            start: block.
        """
        return self.wait(self._start(attached, ranges, pages, start, is_load=True))

    def save(self, attached: Attached, ranges: Iterable[forebay.BlockRange], pages: Pages, start: int) -> Running:
        """Starts copies of pages into slots; as :meth:`load`."""
        return self._start(attached, ranges, pages, start, is_load=False)

    def _start(
        self,
        attached: Attached,
        ranges: Iterable[forebay.BlockRange],
        pages: Pages,
        start: int,
        *,
        is_load: bool,
    ) -> Running:
        running = Running([], 0, None)
        try:
            running.event = self._streams.behind() if self._streams is not None else None
            after = int(running.event.cuda_event) if running.event is not None else 0
            for one in ranges:
                begin = one.first_block - start
                blocks = list(pages[one.group][begin : begin + one.blocks])
                places = list(one.places or ())
                copy = (
                    attached.rank.load(one.group, places, blocks, verify=attached.verify, after=after)
                    if is_load
                    else attached.rank.save(one.group, places, blocks, after=after)
                )
                running.copies.append((copy, one))
        except Exception as error:
            complain("a load" if is_load else "a save", error)
            running.code = -errno.EIO
        return running

    def is_done(self, running: Running) -> bool:
        """Whether all copies have ended; never waits."""
        try:
            return all(copy.poll() is not None for copy, _ in running.copies)
        except forebay.ForebayError as error:
            complain("a copy", error)
            running.code = -errno.EIO
            return True

    def wait(self, running: Running) -> Outcome:
        """Waits for all copies and says how they ended."""
        outcome = Outcome(running.code)
        for copy, one in running.copies:
            try:
                status = copy.wait()
            except forebay.ForebayError as error:
                complain("waiting for a copy", error)
                outcome.code = -errno.EIO
                continue
            outcome.bytes += status.bytes
            if status.error and not status.blocks_failed:
                outcome.code = status.error
            elif status.blocks_failed:
                codes = copy.results
                outcome.failed.extend((one.group, one.first_block + i) for i, code in enumerate(codes) if code)
                outcome.code = outcome.code or next((code for code in codes if code), -errno.EIO)
        return outcome
