# SPDX-License-Identifier: Apache-2.0
"""Checks that the README quotes the samples literally, and names all of them."""

import pathlib
import re
import sys
import textwrap

root = pathlib.Path(sys.argv[1])
readme = (root / "README.md").read_text()
samples = {path.stem: path.read_text() for path in sorted((root / "samples").glob("[0-9]*.cpp"))}


def is_in(block, sample):
    """Whether a sample contains the block, at any depth of indentation."""
    return any(textwrap.indent(block, " " * depth) in sample for depth in range(0, 12, 2))


blocks = re.findall(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
if not blocks or blocks[0] not in samples["00_quick_start"]:
    sys.exit("README.md: the quick start differs from samples/00_quick_start.cpp")
for block in blocks:
    if not any(is_in(block, sample) for sample in samples.values()):
        sys.exit(f"README.md: this is in none of the samples:\n{block}")

named = re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)
if sorted(named) != list(samples):
    sys.exit(f"README.md names the samples {sorted(named)}, but there are {list(samples)}")
