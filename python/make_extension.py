#!/usr/bin/env python3
"""Writes the C source of the extension module `_forebay` from the public headers, so that the two cannot drift apart.

    make_extension.py --output FILE --glue GLUE_H HEADER... --compiler CC...

Headers come in the order in which they include each other. A header's declarations are what the compiler's preprocessor
leaves of it: comments, tables (X macros) and conditionals are gone, and what remains is plain C that cffi reads. Whole
numbers that are macros are added by name; the C compiler fills in their values. Includes are dropped first: cffi knows
the fixed-width types itself.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess

CALLBACKS = 'extern "Python" void fbypy_row(void *arg, const char *key, const char *value, const char *origin);\n'
# A literal, alone or in parentheses, perhaps negative or shifted; or a limit of stdint.h.
_LITERAL = r"-?\d+[uU]?(?: << \d+)?"
NUMBER = re.compile(
    rf"^#define (FBY_[A-Z0-9_]+) +(?:\({_LITERAL}\)|{_LITERAL}|UINT(?:32|64)_MAX)\s*(?:/\*.*)?$", re.MULTILINE
)
END_OF_DECLARATIONS = "/* ---- Bodies"


def declarations(headers: list[pathlib.Path], compiler: list[str]) -> str:
    """The headers' declarations as plain C.

    Args:
        headers: paths of forebay.h and of those that build on it, in the order in which they include each other.
        compiler: command of the C compiler; it only preprocesses.

    Returns:
        Text for ``FFI.cdef``.

    Raises:
        subprocess.CalledProcessError: the preprocessor failed.
    """
    text = "\n".join(header.read_text(encoding="utf-8") for header in headers)
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
    parser.add_argument("headers", type=pathlib.Path, nargs="+")
    parser.add_argument("--glue", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", nargs=argparse.REMAINDER, required=True)
    arguments = parser.parse_args()
    ffi = cffi.FFI()
    ffi.cdef(declarations(arguments.headers, arguments.compiler) + glue(arguments.glue) + CALLBACKS)
    includes = "".join(f"#include <forebay/{header.name}>\n" for header in arguments.headers)
    ffi.set_source("forebay._forebay", includes + '#include "glue.h"\n', py_limited_api=True)
    ffi.emit_c_code(str(arguments.output))


if __name__ == "__main__":
    main()
