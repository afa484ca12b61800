#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs softverbs-bench on the software device, and prints its figures beside those of the host without it,
and as ratios of them.

    table.py [--rounds N | --quick] [--only NAME] PROGRAM LIBRARY

Each figure is the median of the rounds, in which all measurements take turns. "longest" is the longest
time of all rounds. Without --quick, perftest's own programs are run as well if they are installed.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MEASUREMENTS = [
    "socket_latency", "socket_bandwidth", "memcpy", "process_vm_writev", "process_vm_writev_64",
    "plain_threads", "write_bandwidth", "device_memory_bandwidth", "send_latency", "write_latency",
    "send_rate", "post_to_completion", "window_16", "threads", "many_pairs", "memory", "destroy",
    "idle",
]
# The figures that may be missing, because not every host permits these calls.
MAY_LACK = {"process_vm_writev", "process_vm_writev_64"}
PERFTEST = {
    "ib_write_bw": ["-s", "1048576", "-n", "400"],
    "ib_send_lat": ["-s", "64", "-n", "5000"],
    "ib_write_lat": ["-s", "64", "-n", "2000"],
}
UNITS = {"s": [(1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
         "B/s": [(1e9, "GB/s"), (1e6, "MB/s")],
         "/s": [(1e6, "M/s"), (1e3, "k/s")],
         "B": [(1024, "KiB"), (1, "B")]}


def shown(figure, unit):
    if figure is None:
        return ""
    if unit == "":
        return f"{figure:.3f}"
    for scale, name in UNITS[unit]:
        if figure >= scale:
            break
    number = figure / scale
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f} {name}"


class Row:
    """A line of the table: a title, a figure's name and unit, and the limits of its ratios."""

    def __init__(self, title, name, unit, *wanted):
        self.title, self.name, self.unit, self.wanted = title, name, unit, wanted


class Wanted:
    """The limit of a figure's ratio to another figure, or to a number: at most `most`, or at least `least`,
    multiplied by the ratio of the two figures in `by`. With neither, the ratio is only shown. If `of` is
    0, the figure itself is limited."""

    def __init__(self, of, most=None, least=None, title=None, by=None):
        self.of, self.most, self.least, self.title, self.by = of, most, least, title, by

    def limit(self, figures):
        """Returns the limit, or None if the ratio has none or a figure in `by` is missing."""
        limit = self.least if self.most is None else self.most
        if limit is None or self.by is None:
            return limit
        over, under = (middle(figures, name) for name in self.by)
        return limit * over / under if over and under else None

    def shown_limit(self, figures):
        limit = self.limit(figures)
        return "" if limit is None else f"{'>=' if self.most is None else '<='} {limit:.3g}"

    def holds(self, ratio, figures):
        limit = self.limit(figures)
        return limit is None or (ratio >= limit if self.most is None else ratio <= limit)


ROWS = [
    Row("Unix stream, 1 MiB", "socket_bandwidth", "B/s"),
    Row("Unix socket, 64 B one way", "socket_latency", "s"),
    Row("memcpy, 1 MiB", "memcpy", "B/s"),
    Row("process_vm_writev, 1 MiB", "process_vm_writev", "B/s"),
    Row("process_vm_writev, 64 B", "process_vm_writev_64", "s"),
    Row("plain copies, 1 thread", "plain_1", "/s"),
    Row("plain copies, 2 threads", "plain_2", "/s", Wanted("plain_1", title="1 thread")),
    None,
    Row("two processes: write 1 MiB", "write_bandwidth", "B/s",
        Wanted("socket_bandwidth", least=1, title="Unix stream"),
        Wanted("memcpy", least=0.5, title="memcpy")),
    Row("into device memory", "device_memory_bandwidth", "B/s",
        Wanted("memcpy", least=0.5, title="memcpy")),
    Row("send 64 B, one way", "send_latency", "s",
        Wanted("socket_latency", most=0.2, title="Unix socket")),
    Row("write 64 B, one way", "write_latency", "s",
        Wanted("send_latency", most=2, title="send"),
        Wanted("process_vm_writev_64", title="process_vm_writev")),
    Row("sends of 64 B", "send_rate", "/s", Wanted(1e6, least=1)),
    Row("one process: write 64 B to polled", "post_to_completion", "s", Wanted(0.5e-6, most=1)),
    Row("window 16", "window_16", "/s", Wanted(3e6, least=1)),
    Row("1 thread", "threads_1", "/s"),
    Row("2 threads", "threads_2", "/s",
        Wanted("threads_1", least=0.95, by=("plain_2", "plain_1"), title="1 thread")),
    Row("4 threads", "threads_4", "/s", Wanted("threads_1", least=1.5, title="1 thread")),
    Row("8 threads", "threads_8", "/s", Wanted("threads_1", least=1.5, title="1 thread")),
    Row("1 queue pair, window 8191", "deep_window", "/s"),
    Row("8191 queue pairs, window 8191", "many_pairs", "/s",
        Wanted("deep_window", least=1, title="1 queue pair")),
    Row("memory of a queue pair", "memory", "B", Wanted(4096, most=1)),
    Row("destroying an idle queue pair", "destroy_idle", "s"),
    Row("destroying an active queue pair", "destroy_active", "s", Wanted(2e-6, most=1)),
    Row("idle, share of a processor", "idle", "", Wanted(0, most=0.001)),
    None,
    Row("ib_write_bw 1 MiB", "ib_write_bw", "B/s",
        Wanted("socket_bandwidth", least=1, title="Unix stream")),
    Row("ib_send_lat 64 B", "ib_send_lat", "s",
        Wanted("socket_latency", most=0.2, title="Unix socket")),
    Row("ib_write_lat 64 B", "ib_write_lat", "s", Wanted("ib_send_lat", most=2, title="send"),
        Wanted("process_vm_writev_64", title="process_vm_writev")),
]


def under_softverbs(library):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("SOFTVERBS_")}
    return environment | {"LD_PRELOAD": str(pathlib.Path(library).resolve())}


def measure(program, library, name, seconds, figures):
    run = subprocess.run([program, "--seconds", str(seconds), name], text=True, timeout=100,
                         capture_output=True, env=under_softverbs(library))
    if run.returncode != 0:
        sys.exit(f"{name}: could not be measured:\n{run.stderr}")
    for line in run.stdout.splitlines():
        what, *numbers = line.split()
        figures.setdefault(what, []).append([float(number) for number in numbers])


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return str(listener.getsockname()[1])


def run_perftest(program, library, figures):
    """perftest doesn't report when its server listens, so the client is restarted, at most 50 times, until it
    connects."""
    command = [program, "-d", "soft0", "-F", "-p", free_port(), *PERFTEST[program]]
    environment = under_softverbs(library)
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            for _ in range(50):
                client = subprocess.run([*command, "localhost"], text=True, capture_output=True,
                                        env=environment, timeout=60)
                if client.returncode == 0 or server.poll() is not None:
                    break
                time.sleep(0.1)
            server.wait(10)
        finally:
            server.kill()
            server.wait()
        numbers = [line.split() for line in client.stdout.splitlines()
                   if re.match(r"\s*\d+\s+\d+\s+[\d.]+\s", line)]
        if client.returncode != 0 or not numbers:
            log.seek(0)
            sys.exit(f"{program} failed:\n{client.stdout}{client.stderr}{log.read()}")
    line = numbers[-1]
    if program.endswith("_bw"):
        figure = [float(line[3]) * 2**20]  # the average, in MiB/s
    else:
        # bytes, iterations, shortest, longest, typical, average, deviation, 99%
        figure = [float(line[at]) * 1e-6 for at in (4, 7, 3)]
    figures.setdefault(program, []).append(figure)


def middle(figures, name):
    if isinstance(name, (int, float)):
        return name
    return statistics.median(one[0] for one in figures[name]) if name in figures else None


def table(figures):
    lines = [("", "median", "p99", "longest", "compared with", "ratio", "limit", "")]
    for row in ROWS:
        if row is None:
            lines.append(None)
            continue
        figure = middle(figures, row.name)
        if figure is None:
            continue
        rounds = figures[row.name]
        rest = ["", ""]
        if len(rounds[0]) > 1:
            rest = [shown(statistics.median(one[1] for one in rounds), row.unit),
                    shown(max(one[2] for one in rounds), row.unit)]
        cells = [row.title, shown(figure, row.unit), *rest]
        for wanted in row.wanted or [None]:
            if wanted is None:
                lines.append((*cells, "", "", "", ""))
                continue
            other = middle(figures, wanted.of)
            ratio = figure / other if other else figure
            against = f"{wanted.title} {shown(other, row.unit)}" if wanted.title else \
                shown(other, row.unit) if other else ""
            lines.append((*cells, against, f"{ratio:.2f}" if other else "",
                          wanted.shown_limit(figures),
                          "" if wanted.holds(ratio, figures) else "no"))
            cells = ["", "", "", ""]
    while lines[-1] is None:
        lines.pop()
    widths = [max(len(line[at]) for line in lines if line) for at in range(8)]
    for line in lines:
        if line is None:
            print()
            continue
        print("  ".join(cell.ljust(width) if at in (0, 4) else cell.rjust(width)
                        for at, (cell, width) in enumerate(zip(line, widths))).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the number of rounds")
    parser.add_argument("--quick", action="store_true", help="one round, too short for meaningful figures")
    parser.add_argument("--only", action="append", choices=[*MEASUREMENTS, *PERFTEST],
                        help="only this measurement; may be given again")
    parser.add_argument("program")
    parser.add_argument("library")
    asked = parser.parse_args()
    figures = {}
    chosen = asked.only or [*MEASUREMENTS, *([] if asked.quick else PERFTEST)]
    for _ in range(1 if asked.quick else asked.rounds):
        for name in chosen:
            if name not in PERFTEST:
                measure(asked.program, asked.library, name, 0.05 if asked.quick else 0.4, figures)
            elif shutil.which(name):
                run_perftest(name, asked.library, figures)
    table(figures)
    missing = {row.name for row in ROWS if row and row.name not in PERFTEST} - figures.keys()
    if not asked.only and missing - MAY_LACK:
        sys.exit(f"no round printed these figures: {', '.join(sorted(missing - MAY_LACK))}")


if __name__ == "__main__":
    main()
