#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks sources of one target with clang-tidy, and that each of them compiles alone.

    tidy.py --tool CLANG_TIDY --database FILE SOURCE...

Clang-tidy spends most of its time on the headers, so it reads the sources as one, each included into a
file that lives as long as the check does.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import check  # noqa: E402

CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / ".clang-tidy"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sources", type=pathlib.Path, nargs="+")
    parser.add_argument("--tool", required=True, help="the linter")
    parser.add_argument("--database", type=pathlib.Path, required=True, help="compile_commands.json")
    return parser.parse_args()


def write_joined(folder, sources, command, directory):
    """A file in the folder that includes the sources, and its compile command."""
    joined = folder / "joined.cpp"
    lines = [f'#include "{source}"  // NOLINT(bugprone-suspicious-include)' for source in sources]
    joined.write_text("\n".join(lines) + "\n")
    entry = {"directory": str(directory), "file": str(joined), "arguments": [*command, "-c", str(joined)]}
    (folder / "compile_commands.json").write_text(json.dumps([entry]))
    return joined


def main():
    options = parse_arguments()
    sources = [source.resolve() for source in options.sources]
    commands = [check.compile_command(options.database, source) for source in sources]
    command, directory = commands[0]
    if any(each != commands[0] for each in commands):
        sys.exit("these sources are not compiled with the same options")

    def judge():
        files, said = {CONFIGURATION, *sources}, ""
        for source in sources:
            compiles, output, read = check.compiler_output([*command, "-fsyntax-only", source], directory)
            files.update(read)
            said += "" if compiles else f"{source} does not compile alone:\n{output}"
        # Findings in public headers are reported once, for a file that includes them.
        in_files = "/lib/" if "lib" in sources[0].parts else "/include/verbspp/|/all_headers.cpp"
        with tempfile.TemporaryDirectory() as folder:
            joined = write_joined(pathlib.Path(folder), sources, command, directory)
            done = subprocess.run(
                [options.tool, "--quiet", "-p", folder, f"--config-file={CONFIGURATION}", f"--header-filter={in_files}",
                 "--extra-arg=-Wno-unknown-warning-option", joined],
                capture_output=True, text=True,
            )
        if done.returncode != 0:
            said += done.stdout or done.stderr
        return "failed" if said else "passed", said, files

    check.run([*command, options.tool, *sources], judge)


if __name__ == "__main__":
    main()
