#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every public header compiles alone and without warnings, with the options of strict.cpp.

    alone.py BUILD [HEADER...]

BUILD is a build folder. A HEADER is named as programs include it; without one, all headers are checked.
"""

import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
INCLUDE = FOLDER.parents[1] / "include"
sys.path.insert(0, str(FOLDER.parent))
import check  # noqa: E402
import verdicts  # noqa: E402

# The targets in meson.build: other options and settings with which headers must compile.
TARGETS = ["headers", "headers_without_exceptions", "headers_after_macros"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    check.build(sys.argv[1], *TARGETS)
    database = pathlib.Path(sys.argv[1]) / "compile_commands.json"
    command, directory = check.compile_command(database, FOLDER / "strict.cpp")
    headers = sys.argv[2:] or [str(path.relative_to(INCLUDE)) for path in sorted(INCLUDE.glob("**/*.hpp"))]

    # ccache accepts no input from a pipe, and identifies a source by its name within the clone.
    folder = directory / "alone"
    cache = [found] if (found := shutil.which("ccache")) else []

    def judge(header):
        source = folder / f"{header}.cpp"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"#include <{header}>\n#include <{header}>\n")
        done = subprocess.run(
            [*cache, *command, "-fdiagnostics-color=never", "-c", source, "-o", source.with_suffix(".o")],
            cwd=directory, capture_output=True, text=True,
        )
        return ("failed" if done.returncode or done.stderr else "passed"), done.stderr

    return verdicts.report(headers, judge)


if __name__ == "__main__":
    sys.exit(main())
