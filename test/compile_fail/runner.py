#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that one file does not compile, and says why in the words that it promises.

The file is compiled twice: as it is, which must work, and with -DMUST_FAIL, which
must fail with every expected message among the compiler's first errors. It starts
with comment lines:

    // expect: text             shown by every compiler; /.../ is a regular expression
    // expect-gcc: text         the same for one compiler, also expect-clang
    // only: clang              the rule is out of reach of the other compiler: skipped
    // flags: -Werror=...       more flags for both variants
    // flags-must-fail: -std=...  more flags for the failing variant

Messages are compared with runs of white space as one blank. Source lines of the file
itself that the compiler quotes do not count, else a comment could satisfy the check.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from verdict import read_depfile, write_verdict  # noqa: E402

FIRST_ERRORS = 3
HEADER_LINE = re.compile(r"// (expect|expect-gcc|expect-clang|only|flags|flags-must-fail|runner): (.+)")
LIMIT_FLAG = {"gcc": f"-fmax-errors={FIRST_ERRORS}", "clang": f"-ferror-limit={FIRST_ERRORS}"}


class Case:
    """One file: what its header says, and how to compile it."""

    def __init__(self, path, flags):
        self.path = path
        self.family = flags["family"]
        self.directory = flags["directory"]
        self.command = flags["command"]
        self.header = {}
        self.dependencies = [path]
        for line in path.read_text().splitlines():
            match = HEADER_LINE.fullmatch(line.rstrip())
            if match:
                self.header.setdefault(match[1], []).append(match[2].strip())

    def words(self, key):
        return " ".join(self.header.get(key, [])).split()

    def expected(self):
        return self.header.get("expect", []) + self.header.get(f"expect-{self.family}", [])

    def compile(self, *more):
        """Returns whether the file compiles, and what the compiler says."""
        with tempfile.TemporaryDirectory() as folder:
            depfile = pathlib.Path(folder) / "depfile"
            done = subprocess.run(
                [*self.command, "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0",
                 LIMIT_FLAG[self.family], "-MD", "-MF", depfile, *self.words("flags"), *more, self.path],
                cwd=self.directory, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"},
            )
            self.dependencies += read_depfile(depfile)
        return done.returncode == 0, done.stderr

    def without_quotes_of_itself(self, text):
        """The diagnostics less the lines of this file that they quote."""
        kept, quoting = [], False
        for line in text.splitlines():
            if re.match(r"\S+?:(\d+:)* |In file included from |  +from ", line):
                quoting = line.startswith(f"{self.path}:")
                kept.append(line)
            elif not quoting:
                kept.append(line)
        return "\n".join(kept)


def shown(expectation, text):
    """Whether the compiler's words contain the expected ones."""
    text = " ".join(text.split())
    if len(expectation) > 2 and expectation[0] == expectation[-1] == "/":
        return re.search(expectation[1:-1], text) is not None
    return " ".join(expectation.split()) in text


def judge(case):
    """Returns passed, failed or skipped, and the reason."""
    if case.header.get("only", [case.family]) != [case.family]:
        return "skipped", f"only for {case.header['only'][0]}"
    if not case.expected():
        return "failed", f"the file expects no message from {case.family}"
    works, text = case.compile()
    if not works:
        return "failed", f"the good variant does not compile:\n{text}"
    works, text = case.compile("-DMUST_FAIL", *case.words("flags-must-fail"))
    if works:
        return "failed", "the bad variant compiles"
    said = case.without_quotes_of_itself(text)
    missing = [expectation for expectation in case.expected() if not shown(expectation, said)]
    if missing:
        return "failed", "the message is not shown:\n  " + "\n  ".join(missing) + f"\nbut:\n{text}"
    return "passed", text


def judge_runner(case):
    """For the tests of this program: it must find fault with the file, in the words of '// runner:'."""
    word, text = judge(case)
    wanted = case.header["runner"][0]
    if f"{word}: {text}".startswith(wanted):
        return "passed", f"{word}: {text}"
    return "failed", f"the runner should have said\n  {wanted}\nbut said\n  {word}: {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("--flags", type=pathlib.Path, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--depfile", required=True)
    options = parser.parse_args()
    case = Case(options.case.resolve(), json.loads(options.flags.read_text()))
    word, text = judge_runner(case) if "runner" in case.header else judge(case)
    write_verdict(options.output, options.depfile, word, text, case.dependencies)


if __name__ == "__main__":
    main()
