#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which changes scripts/mutate makes of a line, and that it ends tests that hang."""

import contextlib
import importlib.machinery
import importlib.util
import itertools
import pathlib
import sys
import tempfile
import time

sys.dont_write_bytecode = True
TOP = pathlib.Path(__file__).resolve().parent.parent
loader = importlib.machinery.SourceFileLoader("mutate", str(TOP / "scripts" / "mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)


def check(line, expected, before="  {"):
    made = list(mutate.changes_of(line, before))
    assert made == expected, (line, made)


check("  if (one < two) return;", ["  if (one <= two) return;", "  if (!(one < two)) return;"])
check("  if (first && second) {", ["  if (first || second) {", "  if (!(first && second)) {"])
check("  return count + 1;", ["  return count;"])
check("  ++count;", ["  --count;", "  ;"])
check("  forget(one);", ["  ;"])
check("  count = one;", ["  ;"])
check("void clear() noexcept {", ["void clear() noexcept { return;"])
# Lines that are not mutated: the second line of a statement, a comment, a declaration, and the text of a message.
check("      other(two);", [], "  call(one,")
check("  // if (one < two) return;", [])
check("  const int count = one;", [])
check('  throw words("one < two");  // one < two', [])
check("  std::vector<int> made;", [])

first = list(itertools.islice(mutate.draw(TOP, 7), 40))
assert first == list(itertools.islice(mutate.draw(TOP, 7), 40)), "a seed draws the same changes"
assert first != list(itertools.islice(mutate.draw(TOP, 8), 40)), "another seed draws others"
assert len({change[:2] for change in first}) == len(first), "a line is changed once"
for source, number, old, new in first:
    assert (TOP / source).read_text().splitlines()[number] == old != new, source

assert mutate.suites_for("lib/cm/cm_datagram.cpp")[0] == ["unit", "cm"]
assert mutate.suites_for("subprojects/softverbs/src/wire/wire.cpp")[0] == ["softverbs"]

# A test that hangs is ended with the processes that it has started.
with tempfile.TemporaryDirectory() as folder:
    log, started = pathlib.Path(folder, "log"), pathlib.Path(folder, "started")
    assert mutate.run(["true"], log) and not mutate.run(["false"], log)
    assert not mutate.run(["sh", "-c", f"sleep infinity & echo $! > {started}; wait"], log, 1)
    # On a very busy machine, the shell may not have begun.
    child = pathlib.Path("/proc", started.read_text().strip(), "stat") if started.exists() else None
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while child and child.read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
            time.sleep(0.01)  # steady: polls until the process has ended
