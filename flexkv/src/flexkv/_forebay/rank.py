"""One rank: its connection to the leader, its map of the pool, and the thread that copies."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import forebay
from forebay.engines.common.address import PoolAddress
from forebay.engines.common.attach import attach_pool
from forebay.engines.common.model import EngineGroup, EngineModel

from . import wire
from .log import complain, log
from .tensors import Facts, facts_of, layout_of, slabs_of

if TYPE_CHECKING:
    from flexkv.common.storage import KVCacheLayout

ANSWER_LIMIT_S = 120.0
"""How long a registration waits for the leader, which opens the cache meanwhile."""

_MOST_VERDICTS = 1024


class RefusedError(RuntimeError):
    """The leader does not take this rank, or the rank cannot use the pool."""


def pack_address(address: PoolAddress) -> dict[str, Any]:
    """A pool's address as plain data."""
    return {
        "process": address.process,
        "began_ns": address.began_ns,
        "server": address.server,
        "descriptor": address.descriptor,
        "bytes": address.bytes,
        "groups": [list(group) for group in address.groups],
        "fingerprint": address.fingerprint.hex(),
        "verify": address.verify,
        "model": address.model,
    }


def unpack_address(row: dict[str, Any]) -> PoolAddress:
    """The opposite of :func:`pack_address`."""
    groups = tuple((one[0], one[1], one[2], one[3], one[4]) for one in row["groups"])
    return PoolAddress(**row | {"groups": groups, "fingerprint": bytes.fromhex(row["fingerprint"])})


class Copier:
    """The rank's map of one pool, with all layers at once and, for layer-wise loads, in slabs.

    Args:
        address: of the pool.
        model: the leader's; what of it is this rank's was compared.
        number: of the rank.
        tensors: of the rank.
        facts: of those.
        setup: ``device``, ``threads`` and ``layerwise``, from the leader.
    """

    def __init__(
        self,
        address: PoolAddress,
        model: EngineModel,
        number: int,
        tensors: Sequence[Any],
        facts: Facts,
        setup: dict[str, Any],
    ) -> None:
        self._is_cuda = setup["device"] == "cuda"
        self._kept: list[Any] = []
        self._parts: list[forebay.Rank] = []
        base = 0 if facts.is_shared else number * facts.page_bytes
        slabs = slabs_of(facts.layers) if setup["layerwise"] else []
        try:
            for layers in (range(facts.layers), *slabs):
                rank, kept = attach_pool(
                    address, model, number, device=setup["device"], threads=setup["threads"], name="sglang flexkv"
                )
                self._parts.append(rank)
                self._kept.append(kept)
                layout = layout_of(tensors, facts, layers, whole=len(layers) == facts.layers)
                size = len(layers) * facts.layer_bytes
                rank.register(0, layout, offset=base + layers.start * facts.layer_bytes, size=size)
        except BaseException:
            self.close()
            raise

    def copy(self, header: wire.Header, places: list[int], pages: list[int]) -> wire.Header:
        """One copy, to its end."""
        part = self._parts[1 + header["slab"]] if header["slab"] >= 0 else self._parts[0]
        if header["kind"] == "save":
            copy = part.save(0, places, pages)
        else:
            self._wait_for_device()
            copy = part.load(0, places, pages, verify=header["verify"])
        status = copy.wait()
        return {"failed": status.blocks_failed, "bytes": status.bytes, "settled": status.settled, "error": None}

    def _wait_for_device(self) -> None:
        """A page that was freed may still be written by a forward that was queued before: loads begin behind it."""
        if self._is_cuda:
            import torch  # type: ignore[import-not-found, unused-ignore]

            torch.cuda.synchronize()

    def close(self) -> None:
        """Lets the pool go."""
        for rank in self._parts:
            with contextlib.suppress(forebay.ForebayError):
                rank.detach()
        for kept in self._kept:
            if kept is not None:
                kept.close(0)
        self._parts, self._kept = [], []


def _current_device() -> int:
    import torch  # type: ignore[import-not-found, unused-ignore]

    return int(torch.cuda.current_device())


class RankEnd:
    """A registered rank. Its thread serves the leader's commands until either ends.

    Args:
        link: to the leader.
        number: of the rank.
        tensors: of the rank; kept as long as copies may come.
        facts: of those.
    """

    def __init__(self, link: socket.socket, number: int, tensors: list[Any], facts: Facts) -> None:
        self._link, self._number, self._tensors, self._facts = link, number, tensors, facts
        self._setup: wire.Header = {}
        self._device: int | None = None
        self._copier: Copier | None = None
        self._lock = threading.Lock()
        self._verdicts: OrderedDict[int, bool] = OrderedDict()
        self._thread = threading.Thread(target=self._serve, name=f"forebay-flexkv-rank-{number}", daemon=True)

    def start(self, setup: wire.Header) -> None:
        """Maps the pool, says so, and begins to serve.

        Raises:
            RefusedError: the pool cannot be used.
        """
        self._setup = setup
        try:
            self._device = _current_device() if setup["device"] == "cuda" else None
            self._attach(setup["address"])
        except Exception as error:
            text = f"rank {self._number}: {error}"
            with contextlib.suppress(wire.GoneError):
                wire.send(self._link, {"error": text})
            self._link.close()
            raise RefusedError(text) from error
        wire.send(self._link, {"error": None})
        self._link.settimeout(None)
        self._thread.start()

    def _attach(self, row: dict[str, Any]) -> None:
        if self._copier is not None:
            self._copier.close()
            self._copier = None
        address, setup = unpack_address(row), self._setup
        group = EngineGroup(
            0,
            setup["group"],
            tuple(f"layer {number}" for number in range(self._facts.layers)),
            0,
            self._facts.page_bytes,
            self._facts.is_shared,
        )
        model = EngineModel(setup["fields"], self._facts.page_tokens, (group,), setup["ranks"])
        self._copier = Copier(address, model, self._number, self._tensors, self._facts, setup)

    def _answer(self, header: wire.Header, first: list[int], second: list[int]) -> wire.Header:
        if header["op"] == "verdict":
            with self._lock:
                self._verdicts[header["task"]] = header["ok"]
                while len(self._verdicts) > _MOST_VERDICTS:
                    self._verdicts.popitem(last=False)
            return {"error": None}
        if header["op"] == "attach":
            self._attach(header["address"])
            return {"error": None}
        if self._copier is None:
            return {"error": "the rank is not attached"}
        return self._copier.copy(header, first, second)

    def _serve(self) -> None:
        if self._device is not None:
            import torch  # type: ignore[import-not-found, unused-ignore]

            torch.cuda.set_device(self._device)  # a thread begins with device 0
        with contextlib.suppress(wire.GoneError, OSError):
            while True:
                header, first, second = wire.receive(self._link)
                try:
                    answer = self._answer(header, first, second)
                except Exception as error:
                    complain(f"{header.get('op')} on rank {self._number}", error)
                    answer = {"error": f"rank {self._number}: {error}"}
                wire.send(self._link, answer)
        log.debug("forebay: rank %d has no leader any more", self._number)
        if self._copier is not None:
            self._copier.close()

    def take_verdict(self, task: int) -> bool:
        """What the leader said of a task; False when it said nothing."""
        with self._lock:
            return self._verdicts.pop(task, False)

    def close(self) -> None:
        """Ends the thread: behind the copy that is under way."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._link.close()


def register(path: str, number: int, tensors: list[Any], layout: KVCacheLayout) -> RankEnd:
    """Registers a rank with the leader.

    Args:
        path: of the leader's socket.
        number: of the rank.
        tensors: of the rank.
        layout: how they lie.

    Raises:
        OSError: nobody listens there yet, or the leader has ended.
        RefusedError: the leader or the pool refuses the rank.
        UnsupportedModelError: tensors that cannot be served.
    """
    facts = facts_of(tensors, layout)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(ANSWER_LIMIT_S)
        link.connect(path)
        wire.send(link, {"rank": number, "facts": facts.row()})
        setup, _, _ = wire.receive(link)
    except BaseException:
        link.close()
        raise
    if setup["error"] is not None:
        link.close()
        raise RefusedError(setup["error"])
    end = RankEnd(link, number, tensors, facts)
    end.start(setup)
    return end
