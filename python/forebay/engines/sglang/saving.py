"""Saving, the leader's part: blocks are staged at a checkpoint, committed when all ranks have copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import forebay

from ..common.commits import Commits
from .complaints import complain, log
from .requests import Entry

if TYPE_CHECKING:
    from ..common.model import EngineModel


class Staging(NamedTuple):
    """What the ranks are to copy into slots.

    Attributes:
        number: of the job.
        ranges: slots by group.
    """

    number: int
    ranges: tuple[forebay.BlockRange, ...]


@dataclass(slots=True)
class _Staged:
    """A put whose copies are under way."""

    entry: Entry
    put: forebay.Put
    valid_tokens: int
    size: int
    keep: bool


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Where slots are staged, as (first, count)."""
    runs: list[tuple[int, int]] = []
    for i, place in enumerate(places):
        if place == forebay.NO_PLACE:
            continue
        if runs and sum(runs[-1]) == i:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((i, 1))
    return runs


class Saver:
    """Puts of the process that has the cache. One thread calls it.

    Args:
        cache: that takes the blocks.
        model: its groups.
    """

    def __init__(self, cache: forebay.Cache, model: EngineModel) -> None:
        self._cache = cache
        self._model = model
        self._payloads = [group.payload_bytes(model.ranks) for group in model.groups]
        self._staged: dict[int, _Staged] = {}
        self._next = 1
        self._commits = Commits(lambda error: complain("saving", error))

    def stage(self, entry: Entry, full: int, window_from: list[int], *, keep: bool) -> Staging | None:
        """Stages the blocks that are missing of ``[0, full)``.

        Args:
            entry: with its sequence.
            full: end of the blocks that the device has.
            window_from: per group its first block that the device still has.
            keep: more of the prompt is to come: its pin stays.

        Returns:
            what the ranks copy; None: nothing is missing, or there is no room.

        Raises:
            forebay.ForebayError: the cache does not take it.
        """
        put = self._begin(entry, full)
        if put.staged_from >= put.staged_to:
            self._end(entry, put, keep=keep)
            return None
        end = put.staged_to
        ranges = self._ranges(put, end, window_from)
        if not ranges:
            self._end(entry, put, keep=keep)
            return None
        number, self._next = self._next, self._next + 1
        entry.staging.add(number)
        entry.staged = end
        size = sum(one.blocks * self._payloads[one.group] for one in ranges)
        self._staged[number] = _Staged(entry, put, end * self._model.block_tokens, size, keep)
        return Staging(number, ranges)

    def _begin(self, entry: Entry, full: int) -> forebay.Put:
        assert entry.sequence is not None
        put, entry.put = entry.put, None
        if put is None:
            return self._cache.put(entry.sequence, entry.staged if entry.staging else 0, full)
        try:
            put.next(entry.sequence, 0, full)
        except forebay.ForebayError:
            put.release()
            return self._cache.put(entry.sequence, 0, full)
        return put

    def _ranges(self, put: forebay.Put, end: int, window_from: list[int]) -> tuple[forebay.BlockRange, ...]:
        """Staged slots as runs of blocks; none at all when the device has left a window that the end needs."""
        made: list[forebay.BlockRange] = []
        for index, group in enumerate(self._model.groups):
            start = max(0, end - group.trailing) if group.trailing else put.staged_from
            places = put.places(index, start, end)
            runs = _runs(places)
            if runs and start + runs[0][0] < window_from[index]:
                return ()
            made.extend(
                forebay.BlockRange(index, start + first, count, places[first : first + count], list(range(count)))
                for first, count in runs
            )
        return tuple(made)

    def ended(self, number: int, *, is_right: bool) -> None:
        """All ranks have copied: publishes, or gives back what is not right."""
        staged = self._staged.pop(number, None)
        if staged is None:
            return
        valid = staged.valid_tokens if is_right else 0
        self._commits.run(staged.put, valid, staged.size, lambda result: self._committed(number, staged, result))

    def _committed(self, number: int, staged: _Staged, result: forebay.PutResult | None) -> None:
        staged.entry.staging.discard(number)
        self._end(staged.entry, staged.put, keep=staged.keep and result is not None)

    def _end(self, entry: Entry, put: forebay.Put, *, keep: bool) -> None:
        """The one end of a put's range. Between the parts of a prompt the put stays, and its pin with it."""
        if keep and entry.put is None and entry.save:
            entry.put = put
            return
        try:
            put.release()
        except forebay.ForebayError as error:
            log.debug("forebay: a put could not be released: %s", error)

    def collect(self, *, wait: bool = False) -> None:
        """Takes in what was committed meanwhile; with ``wait`` all that is under way."""
        self._commits.collect(wait=wait)

    def finished(self, entry: Entry) -> None:
        """The request is over; copies under way still count."""
        entry.save = False
        entry.drop_put()

    def close(self) -> None:
        """Gives back what is staged, and ends what is being committed."""
        self._commits.close()
        for staged in self._staged.values():
            self._end(staged.entry, staged.put, keep=False)
        self._staged.clear()

    def __bool__(self) -> bool:
        return bool(self._staged) or bool(self._commits)
