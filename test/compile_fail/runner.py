#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that mistakes do not compile, and that the compiler prints the expected message.

    runner.py BUILD [CASE...]

BUILD is a build folder; without a CASE, all cases are checked. A file contains one or more cases. Each
begins with its name, followed by some of these lines, and then its code:

    // case: name
    // expect: text             shown by every compiler; /.../ is a regular expression
    // expect-gcc: text         the message of g++ only; likewise expect-clang
    // within: 15               the messages must be within that many lines
    // only: clang              skipped with the other compiler, which cannot check the rule
    // needs: -W...             skipped if the compiler does not know this option
    // flags: -Werror=...       more options; likewise flags-gcc and flags-clang, for one compiler
    // flags-must-fail: -std=...  more options for the variant that must fail

Cases that differ only in words are rows of a table. Each row is a case, in which its words replace those
of the columns, including in the name:

    // case: NUMBER_out_of_range
    // columns: NUMBER | BEYOND | LAST
    // row: retry_count | 8 | 7

All cases of a file share the lines and the code before its first case.

Each case is first compiled unchanged, which must succeed. Then it is compiled with -DMUST_FAIL=1, and so on
up to the largest number with which its code compares MUST_FAIL. Each of these must fail, with every expected
message among the compiler's first errors. Code in BAD(...) is compiled only if the case must fail, and code
in GOOD(...) only if it must succeed. Unchanged cases with the same options are compiled together, each in
its own namespace. Only if this fails, they are compiled one by one, to find those that do not compile.

Lines are counted as a user sees them, including the chain of includes. Runs of white space in messages
are compared as one blank. Lines of the file itself that the compiler quotes do not count; otherwise a
comment in the file could satisfy the check.
"""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
import check  # noqa: E402
import verdicts  # noqa: E402

LIKE = FOLDER / "like.cpp"
LIKE_TARGET = "compile_fail_like"
FIRST_ERRORS = 3
ONLY_GOOD = ("-DBAD(...)=", "-DGOOD(...)=__VA_ARGS__")
ONLY_BAD = ("-DBAD(...)=__VA_ARGS__", "-DGOOD(...)=")
LIMIT = {"gcc": f"-fmax-errors={FIRST_ERRORS}", "clang": f"-ferror-limit={FIRST_ERRORS}"}
KEYS = "expect|expect-gcc|expect-clang|within|only|needs|flags|flags-gcc|flags-clang|flags-must-fail|runner"
CASE_LINE = re.compile(r"// case: (\w+)")
TABLE_LINE = re.compile(r"// (columns|row): (.+)")
HEADER_LINE = re.compile(rf"// ({KEYS}): (.+)")
# Also matches in the middle of a comment, in case a formatter has joined lines.
KEY_LIKE_LINE = re.compile(r"//(.* )? *(case|expect|within|variant|only|need|flag|runner|column|row)[a-z-]* *: ")
DIAGNOSTIC = re.compile(r"\S+?:(\d+:)* |In file included from |  +from ")


class Compiler:
    """The compiler of a build folder, with the options and the precompiled header of like.cpp."""

    def __init__(self, build):
        self.command, self.directory = check.compile_command(build / "compile_commands.json", LIKE)
        macros = subprocess.run(
            [*check.without_precompiled(self.command), "-dM", "-E", "-x", "c++", "/dev/null"],
            cwd=self.directory, check=True, capture_output=True, text=True,
        ).stdout
        self.family = "clang" if "__clang__" in macros else "gcc"

    def compile(self, text, *options):
        """Returns whether a text compiles, and the compiler's output."""
        # The precompiled header is valid with other warnings and macros, but with no other options.
        is_alike = all(option.startswith(("-W", "-D")) for option in options)
        command = self.command if is_alike else check.without_precompiled(self.command)
        done = subprocess.run(
            ["env", "LC_ALL=C", *command, "-fsyntax-only", "-fdiagnostics-color=never",
             "-fmessage-length=0", LIMIT[self.family], *options, "-x", "c++", "-"],
            cwd=self.directory, input=text, capture_output=True, text=True,
        )
        return done.returncode == 0, done.stdout + done.stderr

    def knows(self, option):
        return self.compile("", "-Werror", option)[0]


class Case:
    """A part of a file: the lines of its header, and its code."""

    def __init__(self, name, path, shared, lines):
        """Takes the lines with their numbers."""
        self.name = name
        self.path = path
        self.includes = [line for _, line in shared if line.startswith("#include")]
        self.code = [(number, line) for number, line in shared if line not in self.includes] + lines
        self.header = {}
        self.unknown_lines = []
        for _, line in self.code:
            match = HEADER_LINE.fullmatch(line)
            if match and not KEY_LIKE_LINE.match(f"//{match[2]}"):
                self.header.setdefault(match[1], []).append(match[2].strip())
            elif KEY_LIKE_LINE.match(line) and not CASE_LINE.fullmatch(line):
                self.unknown_lines.append(line)

    def all(self, key, family):
        return self.header.get(key, []) + self.header.get(f"{key}-{family}", [])

    def options(self, family):
        return " ".join(self.all("flags", family)).split()

    def variants(self):
        compared = re.findall(r"MUST_FAIL [!=]= (\d+)", "\n".join(line for _, line in self.code))
        return range(1, max(map(int, compared), default=1) + 1)

    def without_quotes_of_itself(self, text, lines):
        """The first lines of the diagnostics, or all lines, without those that the compiler quotes from the file."""
        kept, quoting = [], False
        for line in text.splitlines()[: lines or None]:
            if DIAGNOSTIC.match(line):
                quoting = line.startswith(f"{self.path}:")
                kept.append(line)
            elif not quoting:
                kept.append(line)
        return "\n".join(kept)


def cases_of(path):
    """The cases of a file. If the file is in a subfolder, their names begin with the name of that folder."""
    lines = list(enumerate(path.read_text().splitlines(), 1))
    starts = [at for at, (_, line) in enumerate(lines) if CASE_LINE.fullmatch(line)]
    prefix = "" if path.parent == FOLDER else f"{path.parent.name}/"
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        for own in rows_of(lines[start:end]):
            name = prefix + CASE_LINE.fullmatch(own[0][1])[1]
            yield Case(name, path, lines[: starts[0]], own)


def rows_of(lines):
    """The lines of each row if the case is a table, otherwise the lines of the case."""
    table = [match for _, line in lines if (match := TABLE_LINE.fullmatch(line))]
    if not table:
        return [lines]
    columns, *rows = [match[2].split(" | ") for match in table]
    rest = [(number, line) for number, line in lines if not TABLE_LINE.fullmatch(line)]
    filled = []
    for row in rows:
        if len(row) != len(columns):
            sys.exit(f"not a row of the columns {columns}: {row}")
        words = dict(zip(columns, row))
        column = re.compile("|".join(sorted(columns, key=len, reverse=True)))
        filled.append([(number, column.sub(lambda found: words[found[0]], line)) for number, line in rest])
    return filled


def source_of(cases):
    """The text to compile for cases, with the line numbers of their files."""
    text = [include for include in dict.fromkeys(line for case in cases for line in case.includes)]
    for at, case in enumerate(cases):
        text.append(f"namespace case_{at} {{")
        expected = None
        for number, line in case.code:
            if number != expected:
                text.append(f'#line {number} "{case.path}"')
            text.append(line)
            expected = number + 1
        text.append("}")
    return "\n".join(text) + "\n"


def do_not_compile(compiler, cases):
    """The compiler's output for the cases that do not compile unchanged, by name. All cases have the same
    options."""
    def compile_those(those):
        return compiler.compile(source_of(those), *ONLY_GOOD, *cases[0].options(compiler.family))

    works, text = compile_those(cases)
    if works:
        return {}
    alone = zip(cases, verdicts.in_parallel(lambda case: compile_those([case]), cases))
    failed = {case.name: said for case, (works, said) in alone if not works}
    if failed:
        return failed
    named = [case for case in cases if str(case.path) in text] or cases
    return {case.name: f"only together with others:\n{text}" for case in named}


def shown(expectation, text):
    """Returns whether the compiler's output contains the expected text."""
    text = " ".join(text.split())
    if len(expectation) > 2 and expectation[0] == expectation[-1] == "/":
        return re.search(expectation[1:-1], text) is not None
    return " ".join(expectation.split()) in text


def why_skipped(case, compiler):
    if case.header.get("only", [compiler.family]) != [compiler.family]:
        return f"only for {case.header['only'][0]}"
    missing = [option for option in case.header.get("needs", []) if not compiler.knows(option)]
    return f"this compiler has no {missing[0]}" if missing else ""


def judge(case, compiler, faults):
    """Returns passed, failed or skipped, and the reason."""
    expected = case.all("expect", compiler.family)
    if case.unknown_lines:
        return "failed", f"unknown directive: {case.unknown_lines[0]}"
    if reason := why_skipped(case, compiler):
        return "skipped", reason
    if not expected:
        return "failed", f"the file expects no message from {compiler.family}"
    if case.name in faults:
        return "failed", f"the good variant does not compile:\n{faults[case.name]}"
    source = source_of([case])
    for variant in case.variants():
        works, text = compiler.compile(
            source, f"-DMUST_FAIL={variant}", *ONLY_BAD, *case.options(compiler.family),
            *" ".join(case.header.get("flags-must-fail", [])).split())
        if works:
            return "failed", f"the bad variant compiles: -DMUST_FAIL={variant}"
        said = case.without_quotes_of_itself(text, int(case.header.get("within", ["0"])[0]))
        missing = [expectation for expectation in expected if not shown(expectation, said)]
        if missing:
            missing = "\n  ".join(missing)
            return "failed", f"the message is not shown:\n  {missing}\nbut with -DMUST_FAIL={variant}:\n{text}"
    return "passed", ""


def judge_runner(case, compiler, faults):
    """Judges a test of this program, which must report the error that '// runner:' describes."""
    word, text = judge(case, compiler, faults)
    wanted = case.header["runner"][0]
    if f"{word}: {text}".startswith(wanted):
        return "passed", ""
    return "failed", f"the runner should have said\n  {wanted}\nbut said\n  {word}: {text}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    cases = {}
    for path in sorted(FOLDER.glob("**/*.cpp")):
        found = list(cases_of(path))
        if path != LIKE and not found:
            sys.exit(f"{path} has no case")
        for case in found:
            if cases.setdefault(case.name, case) is not case:
                sys.exit(f"this case exists twice: {case.name}")
    chosen = sys.argv[2:] or list(cases)
    if unknown := [name for name in chosen if name not in cases]:
        sys.exit(f"no such case: {', '.join(unknown)}")
    check.build(sys.argv[1], LIKE_TARGET)
    compiler = Compiler(pathlib.Path(sys.argv[1]))
    alike = {}
    for case in (cases[name] for name in chosen):
        if not why_skipped(case, compiler):
            key = ("runner" in case.header, *case.options(compiler.family))
            alike.setdefault(key, []).append(case)
    faults = {}
    for each in verdicts.in_parallel(lambda those: do_not_compile(compiler, those), alike.values()):
        faults |= each

    def judge_named(name):
        case = cases[name]
        return (judge_runner if "runner" in case.header else judge)(case, compiler, faults)

    return verdicts.report(chosen, judge_named)


if __name__ == "__main__":
    sys.exit(main())
