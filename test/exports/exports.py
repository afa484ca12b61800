#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a library exports what headers name, and nothing else, and by which name it is loaded.

    exports.py LIBRARY SONAME HEADERS
"""

import pathlib
import re
import subprocess
import sys

NAMESPACE = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable) for )?verbspp::(.*)")


def last_name(symbol):
    """The name that a header has of it: without what it is in, and without its parameters."""
    name = re.sub(r"\[abi:\w+\]", "", symbol).partition("(")[0]
    while "<" in name and not name.startswith("operator"):
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            break
        name = shorter
    return name.split("::")[-1].lstrip("~")


def main():
    library, soname, headers = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    listed = subprocess.run(
        ["nm", "-D", "-C", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    symbols = [line.split(" ", 2)[2] for line in listed if line.split(" ", 2)[1] != "A"]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in headers.rglob("*.hpp"))))
    problems = []
    for symbol in symbols:
        symbol = symbol.partition("@")[0]
        match = NAMESPACE.fullmatch(symbol)
        if not match:
            problems.append(f"not of namespace verbspp: {symbol}")
        elif not last_name(match[1]).startswith("operator") and last_name(match[1]) not in words:
            problems.append(f"in no public header: {symbol}")
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    if f"Library soname: [{soname}]" not in dynamic:
        problems.append(f"its soname is not {soname}")
    if len(symbols) < 50:
        problems.append(f"exports only {len(symbols)} symbols")
    print("\n".join(problems) or f"{len(symbols)} symbols, all of them of the public headers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
