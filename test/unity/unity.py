#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the library and its samples as Meson's unity builds do: many sources as one.

    unity.py PROJECT FOLDER
"""

import pathlib
import subprocess
import sys

# Where one source ends and the next begins should not matter; so all of a target are one.
OPTIONS = ["--unity=on", "--unity-size=1000", "-Doptimization=0", "-Ddebug=false", "-Dwerror=true",
           "-Dtests=disabled", "-Dbench=disabled", "-Dsoftverbs=disabled", "-Dsamples=enabled"]


def main():
    project, folder = map(pathlib.Path, sys.argv[1:])
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, project, *OPTIONS], check=True)
    subprocess.run(["ninja", "-C", folder], check=True)


if __name__ == "__main__":
    sys.exit(main())
