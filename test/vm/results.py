#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the report of a test program: shows what failed, again in a line each at the end; the last
line has passed, failed, skipped as numbers.

    results.py NAME REPORT STATUS

REPORT is XML as Catch2's reporter of that name writes it, or TAP. STATUS is the exit status of
the program; a program that says that all is well, and then fails, has failed. So has one whose
report ends in the middle.
"""

import collections
import itertools
import pathlib
import re
import sys
import xml.etree.ElementTree

SKIP_STATUS = "77"
EXCERPT_LINES = 40


def said_in(element):
    """What Catch2 tells of a failure, as text, in order."""
    for part in element:
        if part.tag in ("OverallResult", "OverallResults") or part.get("success") == "true":
            continue
        place = f" at {part.get('filename')}:{part.get('line')}" if part.get("filename") else ""
        name = f" {part.get('name')}" if part.get("name") else ""
        text = (part.text or "").strip()
        yield f"{part.tag}{name}{place}{': ' if text else ''}{text}"
        yield from ("  " + line for line in said_in(part))


def of_catch2(path):
    """Yields name, outcome and explanation of each test case; what is wrong with the report is one more."""
    case = None
    try:
        for event, element in xml.etree.ElementTree.iterparse(path, ("start", "end")):
            if element.tag != "TestCase":
                continue
            if event == "start":
                case = element.get("name")
                continue
            result = element.find("OverallResult")
            # Catch2 before 3.3 knows no skipping; test/catch.hpp warns in its stead.
            skipped = int(result.get("skips", "0")) > 0 or any(
                (warning.text or "").strip().startswith("skipped: ") for warning in element.iter("Warning")
            )
            outcome = "failed" if result.get("success") != "true" else "skipped" if skipped else "passed"
            yield case, outcome, "\n".join(said_in(element))
            case = None
    except (OSError, xml.etree.ElementTree.ParseError) as problem:
        yield case or "the report", "failed", f"the program left no complete report: {problem}"


def of_tap(path):
    """The same of a report in TAP; the lines behind a result explain it."""
    try:
        lines = pathlib.Path(path).read_text(errors="replace").splitlines()
    except OSError as problem:
        yield "the report", "failed", f"the program left none: {problem}"
        return
    count, planned = 0, None
    for at, line in enumerate(lines):
        if plan := re.fullmatch(r"1\.\.(\d+)", line):
            planned = int(plan[1])
        elif test := re.fullmatch(r"(not )?ok \d+ - (.*?)( # SKIP.*)?", line):
            count += 1
            outcome = "skipped" if test[3] else "failed" if test[1] else "passed"
            said = itertools.takewhile(lambda line: line.startswith("# "), lines[at + 1 :])
            yield test[2], outcome, "\n".join(line[2:] for line in said)
    if planned != count:
        yield "the report", "failed", f"it has {count} results, and {planned or 'an unknown number'} was planned"


def main():
    name, report, status = sys.argv[1:]
    counts = collections.Counter()
    failed = []
    for case, outcome, said in (of_tap if report.endswith(".tap") else of_catch2)(report):
        counts[outcome] += 1
        if outcome == "failed":
            print(f"--- {name}: {case}")
            # Catch2 tells what applies to several checks once for each.
            lines = [line for line, _ in itertools.groupby(said.splitlines())]
            print("\n".join(f"    {line}" for line in lines[:EXCERPT_LINES]))
            failed.append(case)
    if status not in ("0", SKIP_STATUS) and not counts["failed"]:
        counts["failed"] += 1
        failed.append(f"every test succeeded, but the program ended with status {status}")
        print(f"--- {name}: {failed[-1]}")
    for case in failed:
        print(f"failed: {name}: {case}")
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
