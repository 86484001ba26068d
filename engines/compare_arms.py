"""What is compared: SGLang's server without a store, with HiCache's own backends, and with Forebay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICIES = ("best_effort", "timeout", "wait_complete")
SMALLEST = 16  # tokens: both kinds ask their store about anything from a page on


@dataclass(frozen=True)
class Arm:
    """One contestant.

    Attributes:
        surface: how the store is reached: "none", "hicache" (SGLang's own backend), "radix" (Forebay as the radix
            cache), "dynamic" (Forebay as HiCache's dynamic backend).
        store: "file", "mooncake" or "".
        stop_mode: what Forebay does with reads that are under way when a policy stops; HiCache has no such choice.
    """

    name: str
    surface: str
    store: str
    stop_mode: str = "drain"

    @property
    def is_forebay(self) -> bool:
        """Whether Forebay is in it."""
        return self.surface in ("radix", "dynamic")


ARMS = {
    arm.name: arm
    for arm in (
        Arm("none", "none", ""),
        Arm("hicache-file", "hicache", "file"),
        Arm("forebay-file", "radix", "file"),
        Arm("detach-file", "radix", "file", "detach"),
        Arm("dynamic-file", "dynamic", "file"),
        Arm("hicache-mooncake", "hicache", "mooncake"),
        Arm("forebay-mooncake", "radix", "mooncake"),
        Arm("dynamic-mooncake", "dynamic", "mooncake"),
    )
}

PAIRS = tuple((arm.name, f"hicache-{arm.store}") for arm in ARMS.values() if arm.is_forebay)
"""Who is compared with whom: the same store."""


@dataclass(frozen=True)
class Place:
    """Where the arms of a run find their stores, and what they have in common.

    Attributes:
        directory: below it each arm has a store of its own.
        mooncake: the store as Forebay's --store takes it, or "" where there is none.
        pool_gib: CPU memory of each cache; HiCache takes whole GiB.
        timeout_s: a request's budget under the policy timeout, from its candidacy on, whatever its length.
        chunk_blocks: of Forebay. HiCache reads in batches of 128 pages and has no setting for it.
    """

    directory: Path
    mooncake: str
    pool_gib: int
    timeout_s: float
    chunk_blocks: int


def master_of(mooncake: str) -> str:
    """HOST:PORT in a store's text. Errors: ValueError."""
    found = re.search(r"master=([^,]+)", mooncake)
    if found is None:
        raise ValueError(f"'{mooncake}' names no master")
    return found[1]


def _hicache_options(backend: str, policy: str, extra: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """HiCache's arguments: the same memory, layout and prefetching for its own backends and for ours."""
    return {
        "enable-hierarchical-cache": True,
        "hicache-size": place.pool_gib,
        "hicache-io-backend": "direct",
        "hicache-mem-layout": "page_first_direct",
        "hicache-write-policy": "write_through",
        "hicache-storage-backend": backend,
        "hicache-storage-prefetch-policy": policy,
        "hicache-storage-backend-extra-config": {
            "prefetch_threshold": SMALLEST,
            "prefetch_timeout_base": place.timeout_s,
            "prefetch_timeout_per_ki_token": 0,
            **extra,
        },
    }


def _store_text(arm: Arm, place: Place) -> str:
    """The store as Forebay takes it. Files are read by blocking calls, as HiCache reads them: those can be slowed."""
    if arm.store == "mooncake":
        return place.mooncake
    return f"file:dir={place.directory / arm.name},io=sync"


def _forebay_settings(arm: Arm, place: Place) -> dict[str, Any]:
    return {
        "store": _store_text(arm, place),
        "pool_bytes": f"{place.pool_gib}GiB",
        "config": {"log.level": "warn"},
    }


def _mooncake_extra(place: Place) -> dict[str, Any]:
    """HiCache's client of the same node: it keeps nothing itself."""
    return {
        "master_server_address": master_of(place.mooncake),
        "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE",
        "protocol": "tcp",
        "device_name": "",
        "global_segment_size": 0,
    }


def options(arm: Arm, policy: str, place: Place) -> dict[str, Any]:
    """The server's arguments that make the arm."""
    if arm.surface == "none":
        return {}
    if arm.surface == "radix":
        return {"radix-cache-backend": "forebay", "hicache-storage-prefetch-policy": policy}
    if arm.surface == "hicache":
        return _hicache_options(arm.store, policy, _mooncake_extra(place) if arm.store == "mooncake" else {}, place)
    extra = {
        "backend_name": "forebay",
        "module_path": "forebay.engines.hicache",
        "class_name": "ForebayStorage",
        "interface_v1": 1,
        **_forebay_settings(arm, place),
    }
    return _hicache_options("dynamic", policy, extra, place)


def variables(arm: Arm, policy: str, place: Place) -> dict[str, str]:
    """The server's environment that makes the arm."""
    made = {
        # Mooncake's own engine wants an interface other than the loopback, and is not needed over TCP.
        "SGLANG_HICACHE_MOONCAKE_REUSE_TE": "0",
        "SGLANG_HOST_IP": "127.0.0.1",
        "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(place.directory / arm.name),
    }
    if arm.surface == "radix":
        own: dict[str, Any] = {"chunk_max_blocks": place.chunk_blocks, "stop_mode": arm.stop_mode}
        if policy == "timeout":
            own["timeout_budget_s"] = place.timeout_s
        made["FOREBAY_SGLANG"] = json.dumps({**_forebay_settings(arm, place), **own})
    return made


def missing(arm: Arm, place: Place) -> str:
    """Why an arm cannot run here, in one line; "": it can."""
    if arm.store == "mooncake" and not place.mooncake:
        return "no Mooncake store runs here (scripts/install-mooncake says why)"
    return ""


def link_wheel(directory: Path, interpreter: str) -> None:
    """Makes the package of Mooncake's wheel, and nothing else of its environment, importable from `directory`.

    Args:
        directory: it is made.
        interpreter: of the environment that has the wheel; the same version of Python as the engine's.

    Raises:
        OSError, CalledProcessError: it has no such package.
    """
    find = "import importlib.util as u; print(u.find_spec('mooncake').submodule_search_locations[0])"
    found = subprocess.run([interpreter, "-c", find], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "mooncake").symlink_to(found)


def can_slow_links() -> bool:
    """Whether this process may slow its loopback: in a network namespace of its own, with tc."""
    return os.environ.get("FOREBAY_WITH_STORE_ISOLATED") == "1" and shutil.which("tc") is not None
