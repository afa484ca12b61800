#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks one source with clang-tidy."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import check  # noqa: E402

CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / ".clang-tidy"


def main():
    options = check.parse_arguments(__doc__)
    command, directory = check.compile_command(options.database, options.source)

    def judge():
        _, _, files = check.compiler_output([*command, "-fsyntax-only", options.source.resolve()], directory)
        # What is found in a public header is reported once, for the file that includes them all.
        in_headers = "/lib/" if "lib" in options.source.resolve().parts else "/include/verbspp/"
        done = subprocess.run(
            [options.tool, "--quiet", "-p", options.database.parent, f"--header-filter={in_headers}",
             "--extra-arg=-Wno-unknown-warning-option", options.source],
            capture_output=True, text=True,
        )
        word = "passed" if done.returncode == 0 else "failed"
        return word, done.stdout or done.stderr, [*files, CONFIGURATION]

    check.run(options, [*command, options.tool], judge)


if __name__ == "__main__":
    main()
