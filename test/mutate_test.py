#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which changes scripts/mutate makes of a line."""

import importlib.machinery
import importlib.util
import itertools
import pathlib
import sys

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
