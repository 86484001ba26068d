"""Telling weights apart without reading all of them: a local directory has no revision of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PATTERNS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_TENSOR_BYTES = 256  # of the middle of each tensor: training a tensor changes nearly all of its bytes
_SAMPLES, _SAMPLE_BYTES = 1024, 1024  # of files that do not say where their tensors are
_MOST_HEADER = 100 << 20  # what the format allows


def _even_samples(file: BinaryIO, size: int) -> Iterator[bytes]:
    for i in range(_SAMPLES):
        file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
        yield file.read(_SAMPLE_BYTES)


def _tensor_samples(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The header of a safetensors file, and bytes of each tensor.

    Raises:
        ValueError: it is none.
    """
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, _MOST_HEADER):
        raise ValueError("no safetensors header")
    header = file.read(length)
    yield header
    for name, tensor in sorted(json.loads(header).items()):
        if name == "__metadata__":
            continue
        start, end = tensor["data_offsets"]
        file.seek(8 + length + max(start, (start + end - _TENSOR_BYTES) // 2))
        yield file.read(min(_TENSOR_BYTES, end - start))


def _samples(file: BinaryIO, size: int) -> list[bytes]:
    try:
        return list(_tensor_samples(file, size))
    except (ValueError, KeyError, TypeError, AttributeError):
        return list(_even_samples(file, size))


def weights_revision(place: Path) -> str:
    """A name for the weights in a directory or file, the same wherever they lie.

    Every tensor of a safetensors file is looked at; of other formats samples. Files beside the weights do not count.
    """
    digest = hashlib.sha256()
    found = [place] if place.is_file() else [path for pattern in _PATTERNS for path in place.glob(pattern)]
    for path in sorted(found):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for sample in _samples(file, size):
                digest.update(sample)
    return f"files-{digest.hexdigest()[:16]}"


def adapter_revision(place: Path) -> str:
    """What a LoRA adapter is, the same wherever it lies: its weights and its ``adapter_config.json``.

    Returns:
        empty for what is not on this machine.

    Raises:
        OSError: a file cannot be read.
    """
    if not place.exists():
        return ""
    config = place / "adapter_config.json"
    text = config.read_bytes() if config.is_file() else b""
    return f"{weights_revision(place)} {hashlib.sha256(text).hexdigest()[:16]}"
