#!/usr/bin/env python3
"""Writes the C source of the extension module `_forebay` from forebay.h, so that the two cannot drift apart.

    make_extension.py FOREBAY_H GLUE_H OUTPUT -- CC...

The header's declarations are what the compiler's preprocessor leaves of it: comments, tables (X macros) and
conditionals are gone, and what remains is plain C that cffi reads. Whole numbers that are macros are added by name; the
C compiler fills in their values. Includes are dropped first: cffi knows the fixed-width types itself.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess

CALLBACKS = 'extern "Python" void fbypy_row(void *arg, const char *key, const char *value, const char *origin);\n'
NUMBER = re.compile(r"^#define (FBY_[A-Z0-9_]+) +(?:\(-?\d+\)|\d+)\s*$", re.MULTILINE)
END_OF_DECLARATIONS = "/* ---- Bodies"


def declarations(header: pathlib.Path, compiler: list[str]) -> str:
    """The header's declarations as plain C.

    Args:
        header: path of forebay.h.
        compiler: command of the C compiler; it only preprocesses.

    Returns:
        Text for ``FFI.cdef``.

    Raises:
        subprocess.CalledProcessError: the preprocessor failed.
    """
    text = header.read_text(encoding="utf-8")
    plain = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
    done = subprocess.run(
        [*compiler, "-E", "-P", "-xc", "-"], input=plain, capture_output=True, text=True, check=True
    ).stdout
    numbers = "".join(f"#define {name} ...\n" for name in NUMBER.findall(text))
    return numbers + done


def glue(header: pathlib.Path) -> str:
    """The declarations of glue.h, comments and directives taken out."""
    text = header.read_text(encoding="utf-8").split(END_OF_DECLARATIONS)[0]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(line.removeprefix("static ") for line in lines) + "\n"


def main() -> None:
    """Reads the command line and writes the source."""
    import cffi

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("header", type=pathlib.Path)
    parser.add_argument("glue", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()
    ffi = cffi.FFI()
    ffi.cdef(declarations(arguments.header, arguments.compiler) + glue(arguments.glue) + CALLBACKS)
    ffi.set_source("forebay._forebay", '#include "glue.h"\n', py_limited_api=True)
    ffi.emit_c_code(str(arguments.output))


if __name__ == "__main__":
    main()
