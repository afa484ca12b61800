#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every public header compiles alone and without warnings, with the options of strict.cpp.

    alone.py BUILD [HEADER...]

BUILD is a build folder; a HEADER is named as programs include it, and without one, all are checked.
"""

import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
INCLUDE = FOLDER.parents[1] / "include"
sys.path.insert(0, str(FOLDER.parent))
import check  # noqa: E402
import verdicts  # noqa: E402

# What meson.build has beside this file: options and settings under which all headers compile.
TARGETS = ["headers", "headers_without_exceptions", "headers_after_macros"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    check.build(sys.argv[1], *TARGETS)
    database = pathlib.Path(sys.argv[1]) / "compile_commands.json"
    command, directory = check.compile_command(database, FOLDER / "strict.cpp")
    headers = sys.argv[2:] or [str(path.relative_to(INCLUDE)) for path in sorted(INCLUDE.glob("**/*.hpp"))]

    def judge(header):
        done = subprocess.run(
            [*command, "-fsyntax-only", "-fdiagnostics-color=never", "-x", "c++", "-"],
            cwd=directory, input=f"#include <{header}>\n#include <{header}>\n", capture_output=True, text=True,
        )
        return ("failed" if done.returncode or done.stderr else "passed"), done.stderr

    return verdicts.report(headers, judge)


if __name__ == "__main__":
    sys.exit(main())
