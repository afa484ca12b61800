# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/scale.md shows the numbers of the model; with --write, updates it.

    scale.py PROGRAM ROOT [--write]

PROGRAM is docs/scale. Each table is between a comment that names it and the comment "end".
"""

import pathlib
import re
import subprocess
import sys

program, root = sys.argv[1], pathlib.Path(sys.argv[2])
page = root / "docs/scale.md"
text = page.read_text()


def printed(what):
    return subprocess.run([program, what], check=True, capture_output=True, text=True).stdout


now, tables = re.subn(
    r"(<!-- ([a-z]+) -->\n).*?(<!-- end -->)",
    lambda found: f"{found[1]}\n{printed(found[2])}\n{found[3]}",
    text,
    flags=re.DOTALL,
)
if tables == 0:
    sys.exit(f"{page} has no tables of the model")
if sys.argv[3:] == ["--write"]:
    page.write_text(now)
elif now != text:
    sys.exit(f"{page} has tables that differ from the model; scripts/docs regenerates them")
