#!/bin/sh
# test_install.sh - installs into a directory of its own, then builds and runs the example from there with pkg-config
# alone: as C with gcc and with clang, and as C++.
#
# usage: test_install.sh NINJA BUILD_ROOT EXAMPLE
set -eu

ninja=$1 build=$2 example=$3
work=$build/tests/api/installed
rm -rf "$work"
mkdir -p "$work"
# Through ninja, which knows the meson that configured this build.
DESTDIR=$work/root "$ninja" -C "$build" install >"$work/install.log" 2>&1 || {
    cat "$work/install.log" >&2
    exit 1
}

pc=$(find "$work/root" -name forebay.pc)
[ -n "$pc" ] || { echo "no forebay.pc was installed" >&2; exit 1; }
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$work/root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
library=$(dirname "$(find "$work/root" -name libforebay.so)")

built=0
# try NAME COMPILER FLAGS...
try() {
    name=$1 compiler=$2
    shift 2
    command -v "$compiler" >/dev/null 2>&1 || { echo "$name: $compiler is not here"; return 0; }
    # shellcheck disable=SC2046  # pkg-config gives several words
    "$compiler" "$@" -Wall -Wextra -Werror "$example" $(pkg-config --cflags --libs forebay) -o "$work/embed-$name"
    LD_LIBRARY_PATH=$library "$work/embed-$name" "$work/store-$name"
    built=$((built + 1))
}

clang=$(command -v clang || command -v clang-14 || echo clang)
try c-gcc gcc -std=c17
try c-clang "$clang" -std=c17
try cpp g++ -std=c++17 -x c++ -Wno-missing-field-initializers
[ "$built" -ge 1 ] || { echo "no compiler is here"; exit 77; }

# What the header declares is what the library exports, and nothing else.
nm -D --defined-only "$library/libforebay.so" | awk '{print $3}' | grep '^fby_' | sed 's/@.*//' | sort -u >"$work/exported"
others=$(nm -D --defined-only "$library/libforebay.so" | awk '$2 != "A" {print $3}' | grep -v '^fby_' || true)
[ -z "$others" ] || { echo "exported beyond fby_: $others" >&2; exit 1; }
missing=0
for symbol in $(grep -oE '\bfby_[a-z_]+\(' "$(dirname "$example")/../include/forebay/forebay.h" | tr -d '(' | sort -u); do
    grep -qx "$symbol" "$work/exported" || { echo "not exported: $symbol" >&2; missing=1; }
done
exit "$missing"
