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
            print("\n".join(f"    {line}" for line in said.splitlines()[-EXCERPT_LINES:]))
    print(counts["passed"], counts["failed"], counts["skipped"])


if __name__ == "__main__":
    main()
