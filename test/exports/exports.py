#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a library exports only names that its public headers contain, and that it has the given soname.

    exports.py LIBRARY SONAME HEADERS
"""

import pathlib
import re
import subprocess
import sys

# Mangled names of functions and objects, and of the types of exceptions.
OF_NAMESPACE = re.compile(r"_Z(?:N[KRO]*|T[ISV]N)7verbspp")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def last_name(mangled):
    """The name of a symbol, or of its class template, in a header; "verbspp" for operators."""
    rest = mangled[OF_NAMESPACE.match(mangled).end():]
    name = "verbspp"
    while (digits := re.match(r"\d+", rest)) is not None:
        end = digits.end() + int(digits[0])
        name, rest = rest[digits.end():end], rest[end:]
    return name


def main():
    library, soname, headers = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    mangled = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library)]
    mangled = [name.partition("@")[0] for name in mangled if not name.startswith("VERBSPP_")]
    symbols = list(zip(mangled, output("c++filt", *mangled)))  # for readers; c++filt cannot demangle all of them
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in headers.rglob("*.hpp"))))
    problems = []
    for name, symbol in symbols:
        if not OF_NAMESPACE.match(name):
            problems.append(f"not of namespace verbspp: {symbol}")
        elif last_name(name) not in words:
            problems.append(f"in no public header: {symbol}")
    dynamic = "\n".join(output("readelf", "-d", library))
    if f"Library soname: [{soname}]" not in dynamic:
        problems.append(f"its soname is not {soname}")
    if len(symbols) < 50:
        problems.append(f"exports only {len(symbols)} symbols")
    print("\n".join(problems) or f"{len(symbols)} symbols, all of them from public headers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
