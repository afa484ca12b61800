#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the halo exchange on several numbers of ranks, and kills ranks in the middle of it.

    18_halo.py PROGRAM [MPIRUN [TWIN]]

PROGRAM compares its result with the serial solution. Ranks find each other by TCP. If MPIRUN is
given, they are also started with it, and so is TWIN, the same program with MPI. PAIR_PRELOAD names a
library to preload into all ranks of PROGRAM.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from held_port import hold_port  # noqa: E402

PROGRAM, LAUNCHERS = sys.argv[1], sys.argv[2:]
PRELOAD = os.environ.get("PAIR_PRELOAD", "")
# In seconds: the limit of a whole run, which suffices even on a slow machine, and the ranks' own limit of each wait.
PATIENCE = 120
LIMIT = 30
# Small plates, whose parts have different sizes. Some of the parts have only one column or row.
PLATES = [(40, 24, 120), (6, 5, 20)]
# These options make the ranks run until one is killed.
ENDLESS = ["--residual", "3000", "--rows", "64", "--columns", "64", "--steps", "100000000", "--no-check", "--limit", "5"]


def fail(what):
    sys.exit(f"18_halo: {what}")


class World:
    """Ranks that meet by TCP; kills those that still run at the end."""

    def __init__(self, size, arguments):
        self.held, port = hold_port()
        self.ranks = [
            subprocess.Popen(
                [PROGRAM, *arguments],
                env=dict(os.environ, LD_PRELOAD=PRELOAD, VERBSPP_RANK=str(rank), VERBSPP_WORLD_SIZE=str(size),
                         VERBSPP_MEETING_POINT=f"127.0.0.1:{port}"),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(size)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        self.held.close()

    def ends(self, but=None):
        """Waits for all ranks except `but`; yields the number, status and output of each."""
        for number, rank in enumerate(self.ranks):
            if number == but:
                continue
            try:
                out, err = rank.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                fail(f"rank {number} of {len(self.ranks)} did not end within {PATIENCE} s")
            yield number, rank.returncode, out, err


def check_result(out, what):
    found = re.search(r"^largest difference from the serial solution: (\S+)$", out, re.MULTILINE)
    if not found or float(found[1]) > 1e-12 or "of which communication" not in out:
        fail(f"{what} printed:\n{out}")


def run(size, plate):
    rows, columns, steps = map(str, plate)
    arguments = ["--rows", rows, "--columns", columns, "--steps", steps, "--limit", str(LIMIT)]
    with World(size, arguments) as world:
        for number, status, out, err in world.ends():
            if status != 0:
                fail(f"rank {number} of {size} ended with {status}: {err}")
            if number == 0:
                check_result(out, f"rank 0 of {size}")
    programs = [["-x", f"LD_PRELOAD={PRELOAD}", PROGRAM]] if LAUNCHERS else []
    programs += [[twin] for twin in LAUNCHERS[1:]]
    for program in programs:
        command = [LAUNCHERS[0], "--allow-run-as-root", "--oversubscribe", "-n", str(size), *program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 0:
            fail(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        check_result(done.stdout, " ".join(command))


def kill(size, victim):
    """Checks that all other ranks exit, and name the rank that they have lost: the given rank, or another one that
    exited because of it before they detected the loss of the given rank."""
    with World(size, ENDLESS) as world:
        # Printed when all ranks are connected and the steps begin.
        if "ranks: " not in world.ranks[0].stdout.readline():
            fail(f"a world of {size} did not begin")
        world.ranks[victim].send_signal(signal.SIGKILL)
        named = set()
        for number, status, _, err in world.ends(but=victim):
            lost = re.search(r"^peer (\d+)[:,] ", err, re.MULTILINE)
            if status != 1 or not lost:
                fail(f"rank {victim} of {size} was killed, and rank {number} ended with {status}, saying: {err}")
            named.add(int(lost[1]))
        if victim not in named:
            fail(f"rank {victim} of {size} was killed, and the others named {sorted(named)}")


def refuse():
    with World(6, ["--rows", "1", "--columns", "2", "--limit", str(LIMIT)]) as world:
        for number, status, _, err in world.ends():
            if status != 1 or "start fewer ranks" not in err:
                fail(f"rank {number} ended with {status}, saying: {err}")


for world_size in (1, 2, 4, 6):
    for size_of_plate in PLATES:
        run(world_size, size_of_plate)
for world_size, killed in ((2, 1), (4, 3), (6, 5), (6, 0), (6, 1)):
    kill(world_size, killed)
refuse()
