#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that ccache, as scripts/lib.sh configures it, rebuilds a precompiled header when a file in it has
changed, and also the objects compiled with it. The arguments are the options with which the build compiles objects
that use a precompiled header."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77

# Each clone compiles a header twice: in the precompiled header, and in the source that uses it.
COMPILE = """
set -e
top=$1 clone=$2; shift 2
export CCACHE_DIR=$clone/../cache
cd "$top"; . scripts/lib.sh
cd "$clone"; export CCACHE_BASEDIR=$PWD
mkdir out
ccache g++ -std=c++20 -MD -MF out/all.d -o out/all.hpp.gch -c in/all.hpp
ccache g++ -std=c++20 "$@" -Iout -fpch-preprocess -include all.hpp -Winvalid-pch -Werror \\
  -MD -MF out/main.d -o out/main.o -c in/main.cpp
g++ out/main.o -o out/main
"""


def answer(folder, name, header):
    """The return value of a program that was compiled with this header in a clone of this name."""
    clone = folder / name
    (clone / "in").mkdir(parents=True)
    (clone / "in/one.hpp").write_text(header)
    (clone / "in/all.hpp").write_text('#include "one.hpp"\n')
    (clone / "in/main.cpp").write_text('#include "one.hpp"\nint main() { return one{}.value + MORE; }\n')
    subprocess.run(["bash", "-c", COMPILE, "compile", TOP, clone, *sys.argv[1:]], check=True)
    return subprocess.run([clone / "out/main"], check=False).returncode


def main():
    if not shutil.which("ccache"):
        print("ccache is not installed")
        return SKIPPED
    header = "#pragma once\n// {}\n#define MORE {}\nstruct one {{ int value = {}; }};\n"
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for number, (words, more, value) in enumerate(
            [("first", 0, 1), ("other words", 0, 1), ("other words", 0, 2), ("other words", 5, 2)]
        ):
            got = answer(folder, f"clone{number}", header.format(words, more, value))
            assert got == more + value, f"// {words}, {more} and {value}: {got}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
