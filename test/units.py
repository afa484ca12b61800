#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins the sources of a test program to a few units, which compile in less time.

    units.py UNIT... -- SOURCE...

Meson's unity builds put sources into one scope, where helpers of the same name collide. Here each
source has its own namespace. Its headers are included before the namespace, so a source must include
them at its start only. A source that adds to another namespace, or replaces `operator new`, gets no namespace.

Paths are relative, so that every clone of the project has the same units.
"""

import os
import pathlib
import re
import sys

INCLUDE = re.compile(r'#include ([<"])([^>"]+)[>"]')
NO_CODE = re.compile(r"\s*(//.*)?$|#pragma once")
BELONGS_OUTSIDE = re.compile(r"^(inline )?namespace \w|^template <>|operator new", re.MULTILINE)


def headers_of(source, text, folder):
    """The includes at the start of a source, written for a file in that folder."""
    for line in text.splitlines():
        if found := INCLUDE.match(line):
            kind, name = found.groups()
            beside = source.parent / name
            yield f'#include "{path(beside, folder)}"' if kind == '"' and beside.exists() else line
        elif not NO_CODE.match(line):
            return


def path(file, folder):
    return os.path.relpath(file.resolve(), folder.resolve())


def unit_of(sources, folder):
    """The text of a unit of these sources in that folder."""
    headers, bodies = {}, []
    for source in sources:
        text = source.read_text()
        headers.update(dict.fromkeys(headers_of(source, text, folder)))
        body = f'#include "{path(source, folder)}"'
        if not BELONGS_OUTSIDE.search(text):
            body = f"namespace in_{source.stem} {{\n{body}\n}}"
        bodies.append(body)
    return "\n".join([*headers, *bodies, ""])


def main():
    arguments = sys.argv[1:]
    end = arguments.index("--")
    units = [pathlib.Path(name) for name in arguments[:end]]
    sources = [pathlib.Path(name) for name in arguments[end + 1 :]]
    for number, unit in enumerate(units):
        first, last = (at * len(sources) // len(units) for at in (number, number + 1))
        text = unit_of(sources[first:last], unit.parent)
        # A unit that is not rewritten need not be recompiled.
        if not unit.exists() or unit.read_text() != text:
            unit.write_text(text)


if __name__ == "__main__":
    main()
