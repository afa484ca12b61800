#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder of the sources includes only itself and the floors below it, and that there is no
circle of includes among units (a header, and the source with the same name).

    floors.py PROJECT
"""

import pathlib
import re
import sys

# The floors, from the lowest to the highest; docs/inside.md describes each one.
FLOORS = [
    "base",
    "device",
    "memory",
    "wire",
    "machine",
    "faults",
    "completion",
    "queue_pair",
    "verbs",
    "connections",
    "rsockets",
    "files",
    "shim",
]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def problems(includes):
    for name, included in includes.items():
        floor = name.split("/")[0]
        if floor not in FLOORS:
            yield f"{name}: is on no floor; there are {', '.join(FLOORS)}"
            continue
        for other in included:
            above = other.split("/")[0]
            if other not in includes:
                yield f"{name}: includes {other}, which is not a path from src"
            elif above in FLOORS and FLOORS.index(above) > FLOORS.index(floor):
                yield f"{name}: {floor} includes {other}, which is on a floor above it"
    units = {}
    for name, included in includes.items():
        unit = name.rpartition(".")[0]
        units.setdefault(unit, set()).update(other.rpartition(".")[0] for other in included)
        units[unit].discard(unit)
    yield from circles(units)


def circles(units):
    done, path = set(), []

    def visit(name):
        if name in path:
            yield "in a circle: " + " -> ".join([*path[path.index(name) :], name])
        if name in done or name in path:
            return
        path.append(name)
        for other in sorted(units.get(name, [])):
            yield from visit(other)
        done.add(path.pop())

    for name in units:
        yield from visit(name)


def main():
    sources = pathlib.Path(sys.argv[1]) / "src"
    includes = {
        str(path.relative_to(sources)): INCLUDE.findall(path.read_text())
        for path in sorted(sources.rglob("*.[ch]pp"))
    }
    if len(includes) < 2 * len(FLOORS):
        sys.exit(f"{sources} does not look like the sources")
    found = list(problems(includes))
    print("\n".join(found) or f"{len(includes)} files: none includes a higher floor, and no includes form a circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
