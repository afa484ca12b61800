#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each floor of the library includes only itself and the floors below it, headers and
sources alike, that files do not include each other in a circle, and that the picture shows all floors.

    floors.py PROJECT
"""

import pathlib
import re
import sys

# The floors, from the lowest to the highest; docs/design.md describes the contents of each floor.
FLOORS = ["base", "quirks", "device", "memory", "work", "queue", "qp", "wait", "pool", "hub", "core", "channel",
          "async", "exchange", "group", "cm", "ranks", "calls"]
# Headers that combine several floors belong to none of them.
ROOFS = {"verbspp/asio.hpp", "verbspp/calls.hpp", "verbspp/fwd.hpp", "verbspp/verbspp.hpp", "verbspp/channel.hpp", "verbspp/exchange.hpp",
         "verbspp/cm.hpp", "verbspp/coroutine.hpp", "verbspp/group.hpp",
         "verbspp/ranks.hpp", "verbspp/sender.hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def floor_of(path):
    """The floor of a header as it is included, or of a source; None for headers of other libraries."""
    parts = path.removeprefix("verbspp/").split("/")
    return parts[0] if len(parts) > 1 and parts[0] in FLOORS else None


def files_of(project):
    """All headers by the name by which they are included, and all sources by their path."""
    files = {}
    for top in ["include", "lib"]:
        for path in sorted((project / top).rglob("*.[ch]pp")):
            files[str(path.relative_to(project / top))] = path
    return files


def problems(files):
    includes = {name: INCLUDE.findall(path.read_text()) for name, path in files.items()}
    for name, included in includes.items():
        floor = floor_of(name)
        if floor is None:
            if name not in ROOFS:
                yield f"{name}: is on no floor; the floors are {', '.join(FLOORS)}"
            continue
        for other in included:
            if other in ROOFS:
                yield f"{name}: includes {other}, which is for programs"
            if other.startswith("verbspp/") and other not in files:
                yield f"{name}: includes {other}, which does not exist"
            above = floor_of(other)
            if above and FLOORS.index(above) > FLOORS.index(floor):
                yield f"{name}: {floor} includes {other}, which is on a floor above it"
    yield from circles(includes)


def circles(includes):
    done, path = set(), []

    def visit(name):
        if name in path:
            yield "in a circle: " + " -> ".join([*path[path.index(name):], name])
        if name in done or name in path:
            return
        path.append(name)
        for other in includes.get(name, []):
            yield from visit(other)
        done.add(path.pop())

    for name in includes:
        yield from visit(name)


def missing_in_picture(picture):
    """The problems of the picture of the floors, which is drawn by hand, from the top to the bottom."""
    drawn = re.findall(r'class="title">(\w+)<', picture)
    wanted = [floor for floor in reversed(FLOORS) if floor != "quirks"] + ["libibverbs"]
    if drawn != wanted:
        yield f"the picture shows {', '.join(drawn)}, but the floors are {', '.join(wanted)}"


def main():
    project = pathlib.Path(sys.argv[1])
    files = files_of(project)
    if len(files) < 2 * len(FLOORS):
        sys.exit(f"{project} does not look like the project")
    found = [*problems(files), *missing_in_picture((project / "docs/pictures/floors.svg").read_text())]
    print("\n".join(found) or f"{len(files)} files: none includes a higher floor, and no includes form a circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
