#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the halo exchange with verbspp and with MPI in turn, and compares their times.

    compare.py 18_HALO HALO_MPI [--ranks 2,4] [--rounds N] [OPTION...]

Both programs are started by mpirun, with the same OPTIONs. The times per step are medians over the rounds; in
each round, the programs run one after the other. The fastest rounds are disturbed least by other programs. With
more ranks than processors, set OMPI_MCA_mpi_yield_when_idle=1. COMPARE_PRELOAD names a library to preload into
the ranks of 18_HALO: libsoftverbs.so, or none if there is a device.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("program")
arguments.add_argument("twin")
arguments.add_argument("--ranks", default="2,4")
arguments.add_argument("--rounds", type=int, default=7)
given, options = arguments.parse_known_args()
preload = os.environ.get("COMPARE_PRELOAD")


def run(program, ranks, environment):
    """Returns the microseconds per step, and the percentage of communication."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *environment, program, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"time per step: (\S+) us, of which communication (\S+) %", done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return float(found[1]), float(found[2])


for ranks in given.ranks.split(","):
    of_verbspp, of_mpi = [], []
    for _ in range(given.rounds):
        of_verbspp.append(run(given.program, ranks, ["-x", f"LD_PRELOAD={preload}"] if preload else []))
        of_mpi.append(run(given.twin, ranks, []))
    medians, fastest = [], []
    for name, runs in (("verbspp", of_verbspp), ("MPI", of_mpi)):
        times = [time for time, _ in runs]
        medians.append(statistics.median(times))
        fastest.append(min(times))
        share = statistics.median(share for _, share in runs)
        print(f"ranks: {ranks}, {name}: {medians[-1]:.1f} us per step ({min(times):.1f} to {max(times):.1f}), "
              f"communication {share:.0f} %")
    print(f"ranks: {ranks}, verbspp / MPI: {medians[0] / medians[1]:.2f}, of the fastest rounds {fastest[0] / fastest[1]:.2f}",
          flush=True)
