# SPDX-License-Identifier: Apache-2.0
"""Runs many small checks on all processors, and prints the verdict of each and the counts."""

import collections
import concurrent.futures
import os

SHOWN = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}


def in_parallel(function, items):
    """Yields the results in the order of the items, each as soon as it and all earlier results are available."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(function, items)


def report(names, judge):
    """Calls judge(name) for each name. judge returns "passed", "failed" or "skipped", and a text. Prints a line for
    each name, and then the counts. Returns the exit status, which is 0 if at least one passed and none failed."""
    counts = collections.Counter()
    for name, (word, text) in zip(names, in_parallel(judge, names)):
        counts[word] += 1
        print(SHOWN[word], name if word == "passed" else f"{name}: {text}", flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 0 if counts["passed"] and not counts["failed"] else 1
