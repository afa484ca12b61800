# SPDX-License-Identifier: Apache-2.0
"""Checks that the README's quick start is the sample, word for word, and that its files exist."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
readme = (root / "README.md").read_text()
sample = (root / "samples/00_quick_start.cpp").read_text()

blocks = re.findall(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
if not blocks:
    sys.exit("README.md quotes no sample")
for block in blocks:
    if block not in sample:
        sys.exit("README.md: the quick start differs from samples/00_quick_start.cpp")

named = re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)
there = sorted(path.stem for path in (root / "samples").glob("[0-9]*.cpp"))
if sorted(named) != there:
    sys.exit(f"README.md names the samples {sorted(named)}, there are {there}")
