#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command with its output in a log, and shows its progress on stderr.

    progress.py --log FILE [--append] --what TEXT COMMAND...

On a terminal, one line is updated each second, and erased at the end. Otherwise, a line is printed every
ten seconds. The objects of ninja, the tests of Meson and the packages of apt are counted. The exit status
is the command's. The command runs in this program's process group, so an interrupt reaches both.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
import time

PERIOD_OF_TERMINAL, PERIOD_OF_LOG = 1, 10
NINJA = re.compile(rb"\[(\d+)/(\d+)\] ")
MESON = re.compile(rb"\s*(\d+)/(\d+) \S")
TO_INSTALL = re.compile(rb"(?:\d+ upgraded, )?(\d+) newly installed")
SET_UP = re.compile(rb"Setting up ")


class Output:
    """The progress of a command, counted in its output."""

    def __init__(self):
        self.rest, self.to_install, self.set_up, self.so_far = b"", 0, 0, ""

    def feed(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.read(line)

    def read(self, line):
        if found := NINJA.match(line):
            done, of = map(int, found.groups())
            self.so_far = f"{done} objects done, {of - done} left"
        elif found := MESON.match(line):
            done, of = map(int, found.groups())
            self.so_far = f"{done} tests done, {of - done} left"
        elif found := TO_INSTALL.match(line):
            self.to_install, self.set_up = int(found[1]), 0
        elif SET_UP.match(line) and self.to_install:
            self.set_up += 1
            self.so_far = f"{self.set_up} packages done, {max(self.to_install - self.set_up, 0)} left"


def show(text, is_terminal):
    if is_terminal:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{text[:width]}\033[K", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def run(options):
    is_terminal = sys.stderr.isatty()
    period = PERIOD_OF_TERMINAL if is_terminal else PERIOD_OF_LOG
    # The command writes the log directly, without a pipe, so neither process waits for the other.
    with open(options.log, "ab" if options.append else "wb") as log, open(options.log, "rb") as reader:
        reader.seek(0, 2)
        begun = time.monotonic()
        child = subprocess.Popen(options.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        # The command handles an interrupt.
        signal.signal(signal.SIGINT, lambda *_: None)
        output = Output()
        while True:
            try:
                status = child.wait(timeout=period)
                break
            except subprocess.TimeoutExpired:
                output.feed(reader.read())
                seconds = int(time.monotonic() - begun)
                show(": ".join([options.what, ", ".join(filter(None, [output.so_far, f"{seconds} s"]))]), is_terminal)
        if is_terminal:
            show("", is_terminal)
            print("\r", end="", file=sys.stderr, flush=True)
    return status if status >= 0 else 128 - status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True)
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--what", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    try:
        return run(parser.parse_args())
    except OSError as error:
        print(f"progress.py: {error}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
