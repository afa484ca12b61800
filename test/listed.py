#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a folder contains a file that its meson.build does not list. Such a file would not be built or tested.

    listed.py FOLDER PATTERN NAME...

A pattern with ** includes subfolders. Names are relative to the folder, with or without suffix.
"""

import pathlib
import sys


def main():
    folder, pattern, *names = sys.argv[1:]
    folder = pathlib.Path(folder)
    there = {path.relative_to(folder) for path in folder.glob(pattern)}
    forgotten = sorted(path for path in there if not {str(path), str(path.with_suffix(""))} & set(names))
    for path in forgotten:
        print(f"{path} is in {folder}, but not in the list in its meson.build")
    if not there:
        print(f"there is no {pattern} in {folder}")
    return 1 if forgotten or not there else 0


if __name__ == "__main__":
    sys.exit(main())
