#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that one file does not compile, and says why in the words that it promises.

The file is compiled twice: as it is, which must work, and with -DMUST_FAIL, which
must fail with every expected message among the compiler's first errors. It starts
with comment lines:

    // expect: text             shown by every compiler; /.../ is a regular expression
    // expect-gcc: text         the same for one compiler, also expect-clang
    // within: 15               the messages must come within so many lines
    // variants: 3              with -DMUST_FAIL=1 to 3, which must fail alike
    // only: clang              the rule is out of reach of the other compiler: skipped
    // flags: -Werror=...       more flags for both variants
    // flags-must-fail: -std=...  more flags for the failing variant

Lines are counted as a user sees them, what is included from where among them. Messages are
compared with runs of white space as one blank. Source lines of the file
itself that the compiler quotes do not count, else a comment could satisfy the check.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import check  # noqa: E402

FIRST_ERRORS = 3
LIMIT = {"gcc": f"-fmax-errors={FIRST_ERRORS}", "clang": f"-ferror-limit={FIRST_ERRORS}"}
KEYS = "expect|expect-gcc|expect-clang|within|variants|only|flags|flags-must-fail|runner"
HEADER_LINE = re.compile(rf"// ({KEYS}): (.+)")
KEY_LIKE_LINE = re.compile(r"// *(expect|within|variant|only|flag|runner)[a-z-]* *:")
DIAGNOSTIC = re.compile(r"\S+?:(\d+:)* |In file included from |  +from ")


class Case:
    """One file: what its header says, and how to compile it."""

    def __init__(self, path, command, directory):
        self.path = path
        self.command = command
        self.directory = directory
        self.files_read = []
        self.header = {}
        self.unknown_lines = []
        for line in path.read_text().splitlines():
            match = HEADER_LINE.fullmatch(line.rstrip())
            if match:
                self.header.setdefault(match[1], []).append(match[2].strip())
            elif KEY_LIKE_LINE.match(line):
                self.unknown_lines.append(line)
        if self.words("flags") or self.words("flags-must-fail"):
            self.command = check.without_precompiled(command)
        macros = subprocess.run(
            [*check.without_precompiled(command), "-dM", "-E", "-x", "c++", "/dev/null"],
            cwd=directory, check=True, capture_output=True, text=True,
        ).stdout
        self.family = "clang" if "__clang__" in macros else "gcc"

    def words(self, key):
        return " ".join(self.header.get(key, [])).split()

    def expected(self):
        return self.header.get("expect", []) + self.header.get(f"expect-{self.family}", [])

    def compile(self, *more):
        """Returns whether the file compiles, and what the compiler says."""
        works, text, files = check.compiler_output(
            [*self.command, "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0",
             LIMIT[self.family], *self.words("flags"), *more, self.path],
            self.directory,
        )
        self.files_read += files
        return works, text

    def without_quotes_of_itself(self, text, lines):
        """The first lines of the diagnostics, or all, less those of this file that they quote."""
        kept, quoting = [], False
        for line in text.splitlines()[: lines or None]:
            if DIAGNOSTIC.match(line):
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
    if case.unknown_lines:
        return "failed", f"not a line that this program knows: {case.unknown_lines[0]}"
    if case.header.get("only", [case.family]) != [case.family]:
        return "skipped", f"only for {case.header['only'][0]}"
    if not case.expected():
        return "failed", f"the file expects no message from {case.family}"
    works, text = case.compile()
    if not works:
        return "failed", f"the good variant does not compile:\n{text}"
    for variant in range(1, int(case.header.get("variants", ["1"])[0]) + 1):
        works, text = case.compile(f"-DMUST_FAIL={variant}", *case.words("flags-must-fail"))
        if works:
            return "failed", f"the bad variant compiles: -DMUST_FAIL={variant}"
        said = case.without_quotes_of_itself(text, int(case.header.get("within", ["0"])[0]))
        missing = [expectation for expectation in case.expected() if not shown(expectation, said)]
        if missing:
            missing = "\n  ".join(missing)
            return "failed", f"the message is not shown:\n  {missing}\nbut with -DMUST_FAIL={variant}:\n{text}"
    return "passed", text


def judge_runner(case):
    """For the tests of this program: it must find fault with the file, in the words of '// runner:'."""
    word, text = judge(case)
    wanted = case.header["runner"][0]
    if f"{word}: {text}".startswith(wanted):
        return "passed", f"{word}: {text}"
    return "failed", f"the runner should have said\n  {wanted}\nbut said\n  {word}: {text}"


def main():
    options = check.parse_arguments(__doc__)
    command, directory = check.compile_command(options.database, options.like)

    def judge_file():
        case = Case(options.source.resolve(), command, directory)
        return *(judge_runner if "runner" in case.header else judge)(case), case.files_read

    check.run(options, command, judge_file)


if __name__ == "__main__":
    main()
