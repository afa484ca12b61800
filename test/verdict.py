#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that compile something and judge the outcome, made incremental by ninja.

A check is a custom_target: it always succeeds and writes its verdict into a file,
with a depfile, so that it runs again only when something it read has changed. The
Meson test is this program, which prints the verdict and turns it into the exit code.

    verdict.py FILE             print a verdict; 0 passed, 1 failed, 77 skipped
    verdict.py --flags ...      extract the compile command of a source for the checks
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

EXIT_CODES = {"passed": 0, "failed": 1, "skipped": 77}


def write_verdict(output, depfile, word, text, dependencies=()):
    """Writes the verdict; one that failed depends on a missing file, so it is tried anew."""
    assert word in EXIT_CODES
    pathlib.Path(output).write_text(f"{word}\n{text.rstrip()}\n")
    again = [f"{output}.failed"] if word == "failed" else []
    escaped = [str(path).replace(" ", "\\ ") for path in [*dependencies, *again]]
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(escaped)}\n")


def read_depfile(path):
    """The dependencies in a depfile of a compiler; none where the compiler wrote no file."""
    if not path.exists():
        return []
    return shlex.split(path.read_text().replace("\\\n", " ").partition(":")[2])


def compile_command(database, source):
    """The command that compiles a source, without the source and what it writes."""
    wanted = pathlib.Path(source).resolve()
    for entry in json.loads(pathlib.Path(database).read_text()):
        directory = pathlib.Path(entry["directory"])
        if (directory / entry["file"]).resolve() != wanted:
            continue
        arguments = iter(shlex.split(entry["command"]))
        command = []
        for argument in arguments:
            if argument in ("-o", "-MF", "-MQ", "-MT", "-c"):
                next(arguments)
            elif argument not in ("-MD", "-MMD"):
                command.append(argument)
        return {"directory": str(directory), "command": command}
    sys.exit(f"{database} has no entry for {wanted}")


def extract_flags(options):
    """Writes the command as JSON, and leaves the file alone where nothing has changed."""
    flags = compile_command(options.database, options.source)
    macros = subprocess.run(
        [*flags["command"], "-dM", "-E", "-x", "c++", "/dev/null"],
        cwd=flags["directory"], check=True, capture_output=True, text=True,
    ).stdout
    flags["family"] = "clang" if "__clang__" in macros else "gcc"
    text = json.dumps(flags, indent=1)
    output = pathlib.Path(options.flags)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)
    pathlib.Path(options.depfile).write_text(f"{options.flags}: {options.database}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verdict", nargs="?", type=pathlib.Path)
    parser.add_argument("--flags", help="where the compile command goes")
    parser.add_argument("--source", help="the source whose command is taken")
    parser.add_argument("--database", help="compile_commands.json")
    parser.add_argument("--depfile")
    options = parser.parse_args()
    if options.flags:
        return extract_flags(options)
    word, _, text = options.verdict.read_text().partition("\n")
    print(text, end="")
    return EXIT_CODES[word]


if __name__ == "__main__":
    sys.exit(main())
