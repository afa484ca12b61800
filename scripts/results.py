#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads Meson's testlog.json: shows the failed tests, again with one line each at the end; the last line has
the numbers of passed, failed and skipped test cases.

    results.py [--skips FILE] NAME LOG [AGAIN]
    results.py --failed LOG
    results.py --summary FILE...

A program whose last line is "N passed, N failed, N skipped" counts as that many test cases, any other one
as a single test. AGAIN is the log of a second run of the failed tests: a test that passes there counts as
passed, and is reported as unsteady. FILE gets the reason for each skipped test case; --summary shows the
reasons in such files, grouped. --failed prints the names of the failed tests, one per line, in the form that
Meson accepts; nothing if too many failed for a coincidence.
"""

import collections
import json
import pathlib
import re
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# The beginnings of complaints by Catch2, our scripts, compilers, Python and the sanitizers.
COMPLAINT = re.compile(r"FAILED:|ERROR: |: error: |WARNING: ThreadSanitizer|runtime error:|^[A-Za-z]*(Error|Exception)\b")
RULE = re.compile(r"-{70,}$")
COMPLAINTS_SHOWN, COMPLAINT_LINES = 2, 10
LAST_LINES = 10
LONGEST_LINE = 200
MOST_AGAIN = 5
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped$")
SKIPPED_CASE = re.compile(r"skipped: (.*) \((.*)\)$")
NAMES_SHOWN = 3


def complaints(said):
    """Yields each complaint: its subject, which is Catch2's test case if there is one, and its lines."""
    lines = said.splitlines()
    case = None
    for number, line in enumerate(lines):
        if RULE.match(line):
            # Catch2 prints a test case and its sections between two rules.
            end = next((at for at in range(number + 1, min(number + 8, len(lines))) if RULE.match(lines[at])), None)
            if end is not None and end > number + 1:
                case = ": ".join(name.strip() for name in lines[number + 1 : end])
        elif COMPLAINT.search(line):
            rest = lines[number + 1 : number + COMPLAINT_LINES]
            block = [line] + rest[: rest.index("") if "" in rest else None]
            # The block ends where the next complaint begins.
            after = next((at for at in range(1, len(block)) if COMPLAINT.search(block[at])), None)
            yield case, block[:after]


def about(result, found, outputs):
    """One line about a failure: the test case, the first complaint, the last line of output, or the result."""
    for case, lines in found:
        return case or lines[0].strip()
    for said in reversed(outputs):
        if said.strip():
            return said.strip().splitlines()[-1].strip()
    return result


def excerpt(found, outputs):
    """The first complaints, then the last lines, which show how the program ended."""
    previous = None
    for case, lines in found[:COMPLAINTS_SHOWN]:
        if case is not None and case != previous:
            yield f"in: {case}"
        previous = case
        yield from lines
    if len(found) > COMPLAINTS_SHOWN:
        yield f"and {len(found) - COMPLAINTS_SHOWN} more complaints"
    for name, said in zip(("stdout", "stderr"), outputs):
        last = [line for line in said.splitlines() if line.strip()][-LAST_LINES:]
        if last:
            yield f"the end of {name}:"
            yield from last


def tests_of(log):
    """Yields each test with its outcome."""
    for line in pathlib.Path(log).read_text().splitlines():
        test = json.loads(line)
        result = test["result"]
        yield test, "passed" if result in PASSED else "skipped" if result in SKIPPED else "failed"


def cases_of(test, outcome):
    """The numbers of a program's test cases that passed, failed and were skipped."""
    lines = [line for line in (test.get("stdout") or "").splitlines() if line.strip()]
    counts = COUNTS.match(lines[-1]) if lines else None
    if not counts:
        return collections.Counter({outcome: 1})
    passed, failed, skipped = map(int, counts.groups())
    # A program that crashed, hung or leaked has failed, whatever it counted before.
    failed = max(failed, 1) if outcome == "failed" else failed
    return collections.Counter(passed=passed, failed=failed, skipped=skipped)


def skips_of(test, outcome):
    """Returns the skipped test cases, each with the reason."""
    outputs = [line for said in (test.get("stdout"), test.get("stderr")) for line in (said or "").splitlines()]
    found = [match.groups() for match in map(SKIPPED_CASE.match, outputs) if match]
    if not found and outcome == "skipped":
        last = [line.strip() for line in outputs if line.strip()] or ["no reason given"]
        found = [(test["name"], last[-1])]
    return found


def show_summary(files):
    """Shows the reasons for skipped test cases, the most frequent first."""
    groups = collections.defaultdict(list)
    for file in files:
        if pathlib.Path(file).exists():
            for line in pathlib.Path(file).read_text().splitlines():
                where, case, reason = json.loads(line)
                groups[reason].append((where, case))
    for reason, skipped in sorted(groups.items(), key=lambda group: -len(group[1])):
        where = ", ".join(sorted({where for where, _ in skipped}))
        cases = list(dict.fromkeys(case for _, case in skipped))
        more = f" and {len(cases) - NAMES_SHOWN} more" if len(cases) > NAMES_SHOWN else ""
        print(f"skipped: {len(skipped)} in {where}: {reason}: {'; '.join(cases[:NAMES_SHOWN])}{more}"[:2 * LONGEST_LINE])


def worth_another_run(log):
    """The failed tests, unless there are many: Meson's "project:suites / test", as "project:test"."""
    failed = [test["name"] for test, outcome in tests_of(log) if outcome == "failed"]
    if len(failed) > MOST_AGAIN:
        return []
    return [re.sub(r"^([^:/]*?)(:.*?)? / ", r"\1:", name) for name in failed]


def main():
    if sys.argv[1] == "--failed":
        for name in worth_another_run(sys.argv[2]):
            print(name)
        return
    if sys.argv[1] == "--summary":
        show_summary(sys.argv[2:])
        return
    arguments = sys.argv[1:]
    skips = None
    if arguments[0] == "--skips":
        skips = open(arguments[1], "w", encoding="utf-8")
        arguments = arguments[2:]
    name, log = arguments[:2]
    passed_again = {test["name"]: test for again in arguments[2:] for test, outcome in tests_of(again) if outcome == "passed"}
    counts = collections.Counter()
    remarks = []
    for test, outcome in tests_of(log):
        again = passed_again.get(test["name"]) if outcome == "failed" else None
        verdict = "unsteady" if again else outcome
        counts += cases_of(again, "passed") if again else cases_of(test, outcome)
        for case, reason in skips_of(again or test, "passed" if again else outcome) if skips else []:
            print(json.dumps([name, case, reason]), file=skips)
        if verdict in ("failed", "unsteady"):
            steadiness = "; it passed when it ran again" if verdict == "unsteady" else ""
            print(f"--- {name}: {test['name']}: {test['result']}, exit status {test['returncode']}{steadiness}")
            outputs = [test.get("stdout") or "", test.get("stderr") or ""]
            found = [each for said in outputs for each in complaints(said)]
            print("\n".join(f"    {line[:LONGEST_LINE]}" for line in excerpt(found, outputs)))
            remarks.append(f"{verdict}: {name}: {test['name']}: {about(test['result'], found, outputs)}"[:LONGEST_LINE])
    for line in remarks:
        print(line)
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
