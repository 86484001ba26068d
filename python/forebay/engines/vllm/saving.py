"""Saving: blocks are staged when a step fills them, copied behind its forward, committed when all ranks did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import forebay

from ..common.commits import Commits
from .complaints import complain, log
from .metadata import Copies, SaveJob
from .requests import Entry

if TYPE_CHECKING:
    from ..common.model import EngineModel

_NULL_BLOCK = 0  # vLLM's: stands where a sliding window left


@dataclass(slots=True)
class _Staged:
    """A put whose copies are under way."""

    entry: Entry
    put: forebay.Put
    valid_tokens: int
    size: int
    keep: bool
    is_void: bool = False


def _pairs(places: Sequence[int], blocks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Places with a slot, and the device block of each."""
    chosen = [i for i, place in enumerate(places) if place != forebay.NO_PLACE]
    return [places[i] for i in chosen], [blocks[i] for i in chosen]


class Saver:
    """The scheduler's side of saving. One thread calls it.

    Args:
        cache: that takes the blocks.
        model: its groups.
    """

    def __init__(self, cache: forebay.Cache, model: EngineModel) -> None:
        self._cache = cache
        self._model = model
        self._staged: dict[int, _Staged] = {}
        self._payloads = [group.payload_bytes(model.ranks) for group in model.groups]
        self._commits = Commits(lambda error: complain("saving", error))

    def checkpoints(self, entry: Entry, full: int) -> tuple[int, ...]:
        """Where a step that ends at block ``full`` makes checkpoints: there.

        With windows also at the end that the last-token rule leaves to the same prompt when it comes again.
        """
        again = (entry.request.num_prompt_tokens - 1) // self._model.block_tokens
        has_windows = any(group.trailing for group in self._model.groups)
        return (again, full) if has_windows and entry.saved < again < full else (full,)

    def stage(self, entry: Entry, full: int, block_ids: Sequence[Sequence[int]], number: int) -> SaveJob | None:
        """Stages the blocks of a request that a step fills.

        Args:
            entry: of the request.
            full: end of the blocks that are whole after the step.
            block_ids: per group the engine's blocks of the request, from its first.
            number: of the job.

        Returns:
            what the workers copy; None when there is nothing to.
        """
        entry.grow()
        put = self._begin(entry, full)
        end = put.staged_to if put.staged_from < put.staged_to else full
        copies, is_whole = self._copies(put, end, block_ids)
        keep = entry.request.num_prompt_tokens // self._model.block_tokens > full
        if not copies or not is_whole:
            # Nothing is missing; or there was no room but for a checkpoint whose window the engine has left by now.
            # What is missing is staged with a later block, up to that block's checkpoint.
            put.release()
            entry.saved = full
            return None
        entry.saved = end
        entry.staging.add(number)
        size = sum(len(one.places) * self._payloads[one.group] for one in copies)
        self._staged[number] = _Staged(entry, put, end * self._model.block_tokens, size, keep)
        return SaveJob(number, entry.request.request_id, copies)

    def _begin(self, entry: Entry, full: int) -> forebay.Put:
        put, entry.put = entry.put, None
        if put is None:
            return self._cache.put(entry.sequence, 0 if not entry.staging else entry.saved, full)
        try:
            put.next(entry.sequence, 0, full)
        except forebay.ForebayError:
            put.release()
            return self._cache.put(entry.sequence, 0, full)
        return put

    def _copies(self, put: forebay.Put, end: int, block_ids: Sequence[Sequence[int]]) -> tuple[list[Copies], bool]:
        """Copies per group, and whether the engine still has every block that is staged."""
        made, is_whole = [], True
        for index, group in enumerate(self._model.groups):
            start = max(0, end - group.trailing) if group.trailing else put.staged_from
            if start >= end:
                continue
            places, blocks = _pairs(put.places(index, start, end), block_ids[group.index][start:end])
            is_whole = is_whole and _NULL_BLOCK not in blocks
            if places:
                made.append(Copies(index, places, blocks))
        return made, is_whole

    def ended(self, number: int, failed: int) -> None:
        """All ranks have copied: publishes, or gives back what is not right."""
        staged = self._staged.pop(number, None)
        if staged is None:
            return
        is_void = staged.is_void or failed > 0
        valid_tokens = 0 if is_void else staged.valid_tokens
        self._commits.run(staged.put, valid_tokens, staged.size, lambda result: self._committed(number, staged, result))

    def _committed(self, number: int, staged: _Staged, result: forebay.PutResult | None) -> None:
        """The one end of a put's range. Between the parts of a prompt the put stays, and its pin with it."""
        entry = staged.entry
        entry.staging.discard(number)
        if result is not None and staged.keep and entry.put is None and entry.save:
            entry.put = staged.put
        else:
            self._release(staged.put)

    def collect(self, *, wait: bool = False) -> None:
        """Takes in what was committed meanwhile; with ``wait`` all that is under way."""
        self._commits.collect(wait=wait)

    def _release(self, put: forebay.Put) -> None:
        try:
            put.release()
        except forebay.ForebayError as error:
            log.debug("forebay: a put could not be released: %s", error)

    def void(self, request_ids: set[str] | None = None) -> None:
        """What is being copied was computed from blocks that did not load: none of it is published."""
        for staged in self._staged.values():
            if request_ids is None or staged.entry.request.request_id in request_ids:
                staged.is_void = True

    def finished(self, entry: Entry) -> None:
        """The request is over; copies under way still count."""
        entry.save = False
        entry.drop_put()

    def close(self) -> None:
        """Gives back what is staged, and ends what is being committed."""
        self._commits.close()
        for staged in self._staged.values():
            self._release(staged.put)
        self._staged.clear()

    def __bool__(self) -> bool:
        return bool(self._staged) or bool(self._commits)


def full_blocks(request: Any, scheduled: int, block_tokens: int) -> int:
    """Blocks of a request that are whole after a step of so many tokens; drafts that may be rejected do not count."""
    return int(min(request.num_computed_tokens + scheduled, request.num_tokens)) // block_tokens
