#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the ring of ranks, and checks the matrices that it prints and the picture that it draws.

    17_ring.py PROGRAM

PAIR_PRELOAD names a library to preload.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

RANKS = 4
ENVIRONMENT = dict(os.environ, LD_PRELOAD=os.environ.get("PAIR_PRELOAD", ""))


def fail(what):
    sys.exit(f"17_ring: {what}")


def run(picture):
    command = [sys.argv[1], "soft0", str(picture)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=80)


with tempfile.TemporaryDirectory() as folder:
    picture = pathlib.Path(folder) / "ring.svg"
    done = run(picture)
    if done.returncode != 0:
        fail(f"its exit status is {done.returncode}: {done.stderr}")
    rows = re.findall(r"^ +(\d)((?: +\d+\.\d){%d})   \S" % RANKS, done.stdout, re.MULTILINE)
    if [int(row) for row, _ in rows] != 2 * list(range(RANKS)):
        fail(f"it did not print two matrices of {RANKS} ranks:\n{done.stdout}")
    root = xml.etree.ElementTree.parse(picture).getroot()
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for unit in ("us", "Gbit/s", "to rank", "from"):
        if unit not in words:
            fail(f"the picture does not contain {unit!r}")
    # The cells of the picture contain the numbers that the ranks print.
    shown = [number for _, row in rows for number in row.split()]
    for number in set(shown):
        if words.count(number) < shown.count(number):
            fail(f"{number} is printed, but the picture does not contain it")
    refused = run(pathlib.Path(folder) / "none" / "ring.svg")
    if refused.returncode != 1 or "picture" not in refused.stderr:
        fail(f"its exit status is {refused.returncode} when it can't write the picture: {refused.stderr}")
