#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that invalid accesses to memory that the device uses are reported with their lines, and nothing else is.

    watched.py PROGRAM SOURCE [WRAPPER...]

PROGRAM is a Catch2 program. Each of its test cases with the tag [.mistake], which are in SOURCE, has
one line with the comment "// caught", or "// caught by AddressSanitizer" if only that tool reports it;
the other test cases have to pass without a report. WRAPPER is the command under which to run PROGRAM; if
it is not installed, the test is skipped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
FRAME = re.compile(r"^ +#[0-3] .*\((/\S+)\+(0x[0-9a-f]+)\)", re.MULTILINE)
REPORT = re.compile(
    r"(use-after-(poison|free|scope)) on address|Invalid (read|write) of size"
    r"|SEGV on unknown address|Bad permissions for mapped region")
NAME = re.compile(r'^TEST_CASE\("(.+)", "\[\.mistake\]"\) \{$')


def mistakes_in(source, wrapped):
    """Yields the name and line of each mistake."""
    ends = ("// caught",) if wrapped else ("// caught", "// caught by AddressSanitizer")
    name = None
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if match := NAME.match(line):
            name = match[1]
        elif line.endswith(ends):
            yield name, number
            name = None


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    # Finds the lines of the frames by addr2line, because not every compiler's sanitizer finds its own symbolizer.
    offsets = [offset for module, offset in FRAME.findall(output) if os.path.samefile(module, command[0])]
    if offsets:
        output += subprocess.run(["addr2line", "-e", command[0], *offsets], capture_output=True, text=True).stdout
    return done.returncode, output


def main():
    program, source, wrapper = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    if wrapper and shutil.which(wrapper[0]) is None:
        print(f"{wrapper[0]} is not installed")
        return SKIPPED
    # Makes the sanitizer report segmentation faults, which Catch2 would report otherwise.
    os.environ["ASAN_OPTIONS"] = "symbolize=0:handle_segv=2"
    failed = 0
    mistakes = list(mistakes_in(source, wrapper))
    assert len(mistakes) >= 5 and all(name for name, _ in mistakes), mistakes
    for name, line in mistakes:
        status, output = run([*wrapper, program, name])
        where = f"{source.name}:{line}"
        found = re.search(re.escape(where) + r"\b", output) and REPORT.search(output)
        if status == 0 or not found:
            print(f"{name}: status {status}, no report that names {where}:\n{output}\n")
            failed += 1
    status, output = run([*wrapper, program, "~[.mistake]"])
    if status != 0:
        print(f"the tests without mistakes ended with status {status}:\n{output}")
        failed += 1
    print(f"{len(mistakes) + 1 - failed} of {len(mistakes) + 1} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
