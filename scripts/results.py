#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads Meson's testlog.json: shows what failed; the last line has passed, failed, skipped as numbers.

    results.py NAME LOG
"""

import collections
import json
import pathlib
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
EXCERPT_LINES = 40
# How Catch2 and the sanitizers begin what they have against a program, and how much of it is shown.
COMPLAINTS = ("FAILED:", "ERROR: ", "WARNING: ThreadSanitizer", "runtime error:")
BEFORE, AFTER, COMPLAINTS_SHOWN = 14, 26, 3


def excerpts(said):
    """The lines around the first complaints, then the last lines, which tell how a program ended."""
    lines = said.splitlines()
    end = len(lines) - EXCERPT_LINES
    places = [number for number, line in enumerate(lines[: max(end, 0)]) if any(word in line for word in COMPLAINTS)]
    shown = sorted({line for place in places[:COMPLAINTS_SHOWN] for line in range(max(place - BEFORE, 0), min(place + AFTER, end))})
    previous = -1
    for number in [*shown, *range(max(end, 0), len(lines))]:
        if number != previous + 1:
            yield "..."
        yield lines[number]
        previous = number


def main():
    name, log = sys.argv[1:]
    counts = collections.Counter()
    for line in pathlib.Path(log).read_text().splitlines():
        test = json.loads(line)
        result = test["result"]
        outcome = "passed" if result in PASSED else "skipped" if result in SKIPPED else "failed"
        counts[outcome] += 1
        if outcome == "failed":
            print(f"--- {name}: {test['name']}: {result}, exit status {test['returncode']}")
            said = (test.get("stdout") or "") + (test.get("stderr") or "")
            print("\n".join(f"    {line}" for line in excerpts(said)))
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
