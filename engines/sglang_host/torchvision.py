"""Test rig: the names of torchvision, for programs that import it and never call it.

The package of that name is built for CUDA and does not load beside the CPU build of torch. SGLang imports the image
processors of its models when a server starts; a server for text calls nothing in them. Every name of this module and of
any module below it is a class that does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.0.0"
__path__: list[str] = []


class _Names(type):
    """Any attribute of a class is that class: InterpolationMode.BICUBIC."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Unusable(metaclass=_Names):
    """What every name stands for. Making one fails: whoever wants to do more than to import needs the real package."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("torchvision is not installed here; engines/sglang_host has its names only")


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Unusable


class _Below(MetaPathFinder, Loader):
    """Finds every module below this one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = _attribute  # type: ignore[method-assign]


__getattr__ = _attribute
sys.meta_path.append(_Below())
