#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the report of a test program: shows each failure, and a line for each at the end; the last
line contains the numbers of passed, failed and skipped tests.

    results.py NAME REPORT STATUS [AGAIN STATUS_AGAIN]
    results.py --failed REPORT STATUS

REPORT is in the format of Catch2's reporter "xml", or TAP. STATUS is the exit status of the program.
A program has also failed if it exits with an error although its report shows no failure, or if its
report is incomplete. AGAIN is the report of a second run of the failed tests: those that
pass there count as passed, and are reported as unsteady.

With --failed, prints the names of the failed tests, one per line, in Catch2's syntax. Prints nothing if
the program did not run all of its tests, or if too many failed for a coincidence.
"""

import collections
import itertools
import pathlib
import re
import sys
import xml.etree.ElementTree

SKIP_STATUS = "77"
EXCERPT_LINES = 40
MOST_AGAIN = 5
# The highest status of a program that exits by itself: not by a signal, and not by `timeout`.
HIGHEST_STATUS = 123


def said_in(element):
    """Catch2's output about a failure as text, in order."""
    for part in element:
        if part.tag in ("OverallResult", "OverallResults") or part.get("success") == "true":
            continue
        place = f" at {part.get('filename')}:{part.get('line')}" if part.get("filename") else ""
        name = f" {part.get('name')}" if part.get("name") else ""
        text = (part.text or "").strip()
        yield f"{part.tag}{name}{place}{': ' if text else ''}{text}"
        yield from ("  " + line for line in said_in(part))


def of_catch2(path):
    """Yields name, outcome and explanation of each test case; an error of the report is one more."""
    case = None
    try:
        for event, element in xml.etree.ElementTree.iterparse(path, ("start", "end")):
            if element.tag != "TestCase":
                continue
            if event == "start":
                case = element.get("name")
                continue
            result = element.find("OverallResult")
            # Catch2 before 3.3 cannot skip tests; test/catch.hpp warns instead.
            skipped = int(result.get("skips", "0")) > 0 or any(
                (warning.text or "").strip().startswith("skipped: ") for warning in element.iter("Warning")
            )
            outcome = "failed" if result.get("success") != "true" else "skipped" if skipped else "passed"
            yield case, outcome, "\n".join(said_in(element))
            case = None
    except (OSError, xml.etree.ElementTree.ParseError) as problem:
        yield case or "the report", "broken", f"the program left no complete report: {problem}"


def of_tap(path):
    """Yields the same as of_catch2, but for a report in TAP, in which the lines after a result explain the result."""
    try:
        lines = pathlib.Path(path).read_text(errors="replace").splitlines()
    except OSError as problem:
        yield "the report", "broken", f"the program left no report: {problem}"
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
        yield "the report", "broken", f"it has {count} results, but its plan says {planned or 'no number'}"


def results_of(report, status):
    """Returns the results of a report of either kind. A failed program without a failed test is one more failure."""
    results = list((of_tap if report.endswith(".tap") else of_catch2)(report))
    if status not in ("0", SKIP_STATUS) and not any(outcome in ("failed", "broken") for _, outcome, _ in results):
        case = f"every test succeeded, but the program ended with status {status}"
        results.append((case, "broken", ""))
    return results


def worth_another_run(results, status):
    """The failed tests, if the program ran all of its tests, and few of them failed."""
    failed = [case for case, outcome, _ in results if outcome == "failed"]
    got_to_all = all(outcome != "broken" for _, outcome, _ in results)
    ended_by_itself = status.isdecimal() and int(status) <= HIGHEST_STATUS
    return failed if got_to_all and ended_by_itself and len(failed) <= MOST_AGAIN else []


def main():
    if sys.argv[1] == "--failed":
        report, status = sys.argv[2:]
        for case in worth_another_run(results_of(report, status), status):
            print(case.replace("\\", "\\\\").replace(",", "\\,"))
        return
    name, report, status = sys.argv[1:4]
    passed_again = set()
    if again := sys.argv[4:]:
        passed_again = {case for case, outcome, _ in results_of(*again) if outcome == "passed"}
    counts = collections.Counter()
    remarks = []
    for case, outcome, said in results_of(report, status):
        verdict = outcome
        if outcome == "failed" and case in passed_again:
            verdict = "unsteady"
        counts[verdict] += 1
        if verdict in ("failed", "broken", "unsteady"):
            print(f"--- {name}: {case}{'; it passed when it ran again' if verdict == 'unsteady' else ''}")
            # Catch2 repeats information that applies to several checks.
            lines = [line for line, _ in itertools.groupby(said.splitlines())]
            print("\n".join(f"    {line}" for line in lines[:EXCERPT_LINES]))
            remarks.append(f"{'unsteady' if verdict == 'unsteady' else 'failed'}: {name}: {case}")
    for remark in remarks:
        print(remark)
    print(counts["passed"] + counts["unsteady"], counts["failed"] + counts["broken"], counts["skipped"])


if __name__ == "__main__":
    main()
