#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows the twenty objects of a build folder that took longest to build, and the twenty slowest tests.

    times.py FOLDER [--check]

The times are wall times in seconds, of jobs that ran in parallel; those of tests are followed by their processor
time, if it was measured. With --check, objects that took too long are compiled once more, alone, and tests that took
too much processor time run once more, alone; each a second time if it is too slow again. The exit status is 1 if one
of these still takes too much processor time, or if no time could be compared. The limits are 20 s for an object and
15 s for a test on a machine that takes 7 s to compile Catch2, and in proportion on other machines; but that of tests
is never below 40 s, because a wait that spins takes the same time on each machine.
"""

import json
import pathlib
import re
import resource
import subprocess
import sys

SHOWN = 20
REFERENCE, REFERENCE_SECONDS = "libcatch.a.p/", 7
OBJECT_SECONDS, TEST_SECONDS, LEAST_TEST_SECONDS = 20, 15, 40
# Printed by the wrapper in which scripts/test runs tests.
PROCESSOR_TIME = re.compile(r"^processor time: ([\d.]+) s, and ([\d.]+) s of the system$", re.MULTILINE)


def objects_of(log):
    """The wall time of each object, in seconds, the slowest first."""
    times = {}
    for line in log.splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        times[output] = (int(end) - int(start)) / 1000
    return sorted(((seconds, name) for name, seconds in times.items() if name.endswith((".o", ".gch"))), reverse=True)


def tests_of(log):
    """Each test as its wall time, its processor time, its name, and Meson's record, the slowest first."""
    found = []
    for test in map(json.loads, log.splitlines()):
        said = PROCESSOR_TIME.search(test.get("stderr") or "")
        found.append((test["duration"], float(said[1]) + float(said[2]) if said else None, test["name"], test))
    return sorted(found, key=lambda test: -test[0])


def processor_time_of(*command, check=True, **arguments):
    """The processor time that a command takes, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(*command, **arguments, check=check)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compile_again(folder, name):
    """The processor time that an object takes, in seconds."""
    command = subprocess.run(["ninja", "-C", folder, "-t", "commands", "-s", name], check=True, capture_output=True,
                             text=True).stdout.splitlines()[-1]
    return processor_time_of(f"CCACHE_DISABLE=1 exec {command}", shell=True, cwd=folder)


def run_again(folder, test):
    """The processor time that a test takes, in seconds."""
    # Its verdict was that of the first run. Alone, a test may lack programs that only some sets of tests build.
    return processor_time_of(test["command"], check=False, env=test["env"], cwd=folder, capture_output=True, timeout=600)


def fastest(measure, limit):
    """The result of a measurement, which is repeated if it is above the limit: something else may have delayed it."""
    seconds = measure()
    return seconds if seconds <= limit else min(seconds, measure())


def limits(reference):
    """The limits of objects and of tests, scaled to this machine by the time that Catch2 takes to compile."""
    scale = reference / REFERENCE_SECONDS
    return OBJECT_SECONDS * scale, max(TEST_SECONDS * scale, LEAST_TEST_SECONDS)


def too_slow(what, times, limit):
    """A line for each object or test beyond the limit."""
    for seconds, name in times:
        if seconds > limit:
            yield f"failed: the {what} {name} takes {seconds:.1f} s of processor time, more than {limit:.1f} s"


def main():
    folder = pathlib.Path(sys.argv[1])
    objects = objects_of((folder / ".ninja_log").read_text())
    tests = tests_of("".join(log.read_text() for log in folder.glob("meson-logs/testlog*.json")))
    for seconds, name in objects[:SHOWN]:
        print(f"{seconds:7.1f} s  {name}")
    for seconds, of_processor, name, _ in tests[:SHOWN]:
        print(f"{seconds:7.1f} s  {name}" + (f", {of_processor:.1f} s of processor time" if of_processor is not None else ""))
    if "--check" not in sys.argv:
        return 0
    references = [name for _, name in objects if REFERENCE in name]
    if not references:
        print(f"failed: {folder} has no {REFERENCE} for comparison")
        return 1
    of_objects, of_tests = limits(compile_again(folder, references[0]))
    objects_again = [(fastest(lambda: compile_again(folder, name), of_objects), name) for seconds, name in objects
                     if seconds > of_objects]
    tests_again = [(fastest(lambda: run_again(folder, test), of_tests), name) for _, of_processor, name, test in tests
                   if of_processor is not None and of_processor > of_tests]
    for seconds, name in objects_again + tests_again:
        print(f"{seconds:7.1f} s of processor time, alone: {name}")
    lines = [*too_slow("object", objects_again, of_objects), *too_slow("test", tests_again, of_tests)]
    if all(of_processor is None for _, of_processor, _, _ in tests):
        lines.append("failed: no test says how much processor time it takes")
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
