#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads Meson's testlog.json: shows what failed, again in a line each at the end; the last line has
passed, failed, skipped as numbers.

    results.py NAME LOG [AGAIN]
    results.py --failed LOG

AGAIN is the log of a second run of what failed: what passes there counts as passed, and is named as
unsteady. With --failed, the names of what failed, a line each, as Meson takes them; nothing where
too many failed for that to be luck.
"""

import collections
import json
import pathlib
import re
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# How Catch2, our scripts, compilers, Python and the sanitizers begin what they have against a program.
COMPLAINT = re.compile(r"FAILED:|ERROR: |: error: |WARNING: ThreadSanitizer|runtime error:|^[A-Za-z]*(Error|Exception)\b")
RULE = re.compile(r"-{70,}$")
COMPLAINTS_SHOWN, COMPLAINT_LINES = 2, 10
LAST_LINES = 10
LONGEST_LINE = 200
MOST_AGAIN = 5


def complaints(said):
    """Yields each complaint as what it is about, Catch2's test case if there is one, and its lines."""
    lines = said.splitlines()
    case = None
    for number, line in enumerate(lines):
        if RULE.match(line):
            # Catch2 writes a test case, and its sections below, between two rules.
            end = next((at for at in range(number + 1, min(number + 8, len(lines))) if RULE.match(lines[at])), None)
            if end is not None and end > number + 1:
                case = ": ".join(name.strip() for name in lines[number + 1 : end])
        elif COMPLAINT.search(line):
            rest = lines[number + 1 : number + COMPLAINT_LINES]
            block = [line] + rest[: rest.index("") if "" in rest else None]
            # A complaint begins the next one.
            after = next((at for at in range(1, len(block)) if COMPLAINT.search(block[at])), None)
            yield case, block[:after]


def about(result, found, outputs):
    """One line of it: the test case, what was complained of, or what was said last."""
    for case, lines in found:
        return case or lines[0].strip()
    for said in reversed(outputs):
        if said.strip():
            return said.strip().splitlines()[-1].strip()
    return result


def excerpt(found, outputs):
    """The first complaints, then the last lines, which tell how a program ended."""
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


def worth_another_run(log):
    """What failed, if that isn't much: Meson's "project:suites / test", as "project:test"."""
    failed = [test["name"] for test, outcome in tests_of(log) if outcome == "failed"]
    if len(failed) > MOST_AGAIN:
        return []
    return [re.sub(r"^([^:/]*?)(:.*?)? / ", r"\1:", name) for name in failed]


def main():
    if sys.argv[1] == "--failed":
        for name in worth_another_run(sys.argv[2]):
            print(name)
        return
    name, log = sys.argv[1:3]
    passed_again = {test["name"] for again in sys.argv[3:] for test, outcome in tests_of(again) if outcome == "passed"}
    counts = collections.Counter()
    remarks = []
    for test, outcome in tests_of(log):
        verdict = "unsteady" if outcome == "failed" and test["name"] in passed_again else outcome
        counts[verdict] += 1
        if verdict in ("failed", "unsteady"):
            steadiness = "; it passed when it ran again" if verdict == "unsteady" else ""
            print(f"--- {name}: {test['name']}: {test['result']}, exit status {test['returncode']}{steadiness}")
            outputs = [test.get("stdout") or "", test.get("stderr") or ""]
            found = [each for said in outputs for each in complaints(said)]
            print("\n".join(f"    {line[:LONGEST_LINE]}" for line in excerpt(found, outputs)))
            remarks.append(f"{verdict}: {name}: {test['name']}: {about(test['result'], found, outputs)}"[:LONGEST_LINE])
    for line in remarks:
        print(line)
    print(counts["passed"] + counts["unsteady"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
