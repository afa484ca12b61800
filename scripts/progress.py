#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command with its output in a log, and shows on stderr how far it is.

    progress.py --log FILE [--append] --what TEXT [--step 2/7] [--count PATTERN --of N --noun WORD]
                [--period SECONDS] [--grace SECONDS] -- COMMAND...

On a terminal one line renews itself each second and is erased at the end. Elsewhere a line appears every
ten seconds, and one at the end if there was one before. The objects of ninja, the tests of Meson, and the
packages of apt and mmdebstrap are counted; in other output, the lines that match a PATTERN, of N in all.

The exit status is the command's. A signal is passed on to all processes of the command, which have three
seconds (--grace) to end before a stronger one follows; then it ends this program, too.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

NINJA = re.compile(r"\[(\d+)/(\d+)\] ")
MESON_TEST = re.compile(r" *(\d+)/(\d+) .* (OK|SKIP|FAIL|TIMEOUT|ERROR|EXPECTEDFAIL|UNEXPECTEDPASS|INTERRUPT) +[\d.]+s\b")
BAD = {"FAIL", "TIMEOUT", "ERROR", "UNEXPECTEDPASS", "INTERRUPT"}
APT = re.compile(r"(\d+) upgraded, (\d+) newly installed")
APT_STEPS = [(re.compile(r"Get:\d+ .*\]$"), "fetched"), (re.compile("Unpacking "), "unpacked"), (re.compile("Setting up "), "set up")]
MMDEBSTRAP = re.compile(r"I: (.*?)\.*$")
LONGEST_LINE = 4096


def duration(seconds):
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Output:
    """The output of a command as far as it has come, and how far the command is by that."""

    def __init__(self, count=None, of=None, noun="steps"):
        self.count, self.of, self.noun = count, of, noun
        self.rest = b""
        self.so_far = ""
        self.failed = self.counted = 0
        self.packages, self.steps = 0, {}

    def feed(self, output):
        *lines, rest = re.split(rb"[\r\n]", self.rest + output)
        self.rest = rest[:LONGEST_LINE]
        for line in lines:
            self.line(line[:LONGEST_LINE].decode(errors="replace"))

    def line(self, line):
        if self.count:
            if self.count.search(line):
                self.counted += 1
                self.so_far = f"{self.counted} of {self.of} {self.noun}" if self.of else f"{self.counted} {self.noun}"
        elif found := NINJA.match(line):
            self.so_far = f"{found[1]} of {found[2]} objects"
        elif found := MESON_TEST.match(line):
            self.failed = (self.failed if int(found[1]) > 1 else 0) + (found[3] in BAD)
            self.so_far = f"{found[1]} of {found[2]} tests" + (f", {self.failed} failed" if self.failed else "")
        elif found := APT.match(line):
            self.packages, self.steps = int(found[1]) + int(found[2]), {}
        elif found := MMDEBSTRAP.match(line):
            self.so_far = found[1]
        elif self.packages:
            for pattern, step in APT_STEPS:
                if pattern.match(line):
                    self.steps[step] = self.steps.get(step, 0) + 1
                    self.so_far = f"{self.steps[step]} of {self.packages} packages {step}"


class Line:
    """What the user sees: a line that renews itself on a terminal, a line each time elsewhere."""

    def __init__(self, stream, period=None):
        self.stream, self.shown = stream, False
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.period = period or (1 if self.terminal else 10)

    def columns(self):
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def write(self, text):
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            pass  # the terminal has closed; the command goes on

    def show(self, text):
        text = "".join(each if each.isprintable() else "?" for each in text)
        self.shown = True
        self.write(f"\r{text[: self.columns() - 1]}\x1b[K" if self.terminal else text + "\n")

    def end(self, text):
        if self.shown and self.terminal:
            self.write("\r\x1b[K")
        elif self.shown:
            self.show(text)


class RunningTests:
    """Which test of `meson test` has run longest; Meson itself names a test only when it has ended."""

    def __init__(self, command):
        self.tests = []
        if "meson" in [pathlib.Path(word).name for word in command] and "test" in command:
            folder = command[command.index("-C") + 1] if "-C" in command[:-1] else "."
            try:
                self.tests = json.loads((pathlib.Path(folder) / "meson-info" / "intro-tests.json").read_text())
            except (OSError, ValueError):
                pass

    def name_of(self, process):
        """The name of the test that is this process; None if there is no such test."""
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        variables = set((process / "environ").read_bytes().decode(errors="replace").split("\0"))
        for test in self.tests:
            # A script comes after its interpreter, a program perhaps after valgrind.
            if words[-len(test["cmd"]):] == test["cmd"] and {f"{key}={value}" for key, value in test["env"].items()} <= variables:
                return test["name"]
        return None

    def longest(self, parent):
        """The first among the processes below a parent, which stand in the order of their start."""
        if not self.tests:
            return None
        try:
            children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            return None
        for child in children:
            try:
                name = self.name_of(pathlib.Path("/proc", child)) or self.longest(child)
            except OSError:
                continue  # it has just ended
            if name:
                return name
        return None


def status_line(what, so_far, seconds, longest=None):
    return f"{what}: " + ", ".join(
        [*([so_far] if so_far else []), duration(seconds), *([f"longest running: {longest}"] if longest else [])]
    )


def send(group, number):
    """Whether there was still a process in the group."""
    try:
        os.killpg(group, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def end_group(group, grace):
    """Ends the processes that are left in a group."""
    end_by = time.monotonic() + grace
    send(group, signal.SIGTERM)
    while send(group, 0) and time.monotonic() < end_by:
        time.sleep(0.05)  # steady: polls until the group has ended, or its time has
    send(group, signal.SIGKILL)


def guard(group, grace):
    """Starts a process that ends the group if this program is killed; returns it, and the pipe that calls it off."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(writer)
            if not os.read(reader, 1):
                end_group(group, grace)
        finally:
            os._exit(0)
    os.close(reader)
    return process, writer


def run(arguments, line):
    """Runs the command; returns its exit status, and the signal that interrupted it, if one has."""
    with open(arguments.log, "ab" if arguments.append else "wb") as log, open(arguments.log, "rb") as reader:
        reader.seek(0, os.SEEK_END)
        # Signals wait for sigtimedwait(); those that were ignored at the start stay ignored.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        wanted = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
        wanted = {number for number in wanted if signal.getsignal(number) != signal.SIG_IGN} | {signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        begun = time.monotonic()
        try:
            # The log is its stdout itself, no pipe: nothing is lost if this program is, and nothing waits for it.
            child = subprocess.Popen(
                arguments.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )  # fmt: skip
        except OSError as error:
            print(f"progress.py: {arguments.command[0]}: {error.strerror}", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126, None
        guardian, call_off = guard(child.pid, arguments.grace)

        output = Output(arguments.count, arguments.of, arguments.noun)
        tests = RunningTests(arguments.command)
        what = f"[{arguments.step}] {arguments.what}" if arguments.step else arguments.what

        def status():
            while read := reader.read(1 << 16):
                output.feed(read)
            return status_line(what, output.so_far, time.monotonic() - begun, tests.longest(child.pid))

        interrupted, stronger = None, [signal.SIGTERM, signal.SIGKILL]
        due, stronger_at = begun + line.period, float("inf")
        while child.poll() is None:
            came = signal.sigtimedwait(wanted, max(0, min(due, stronger_at) - time.monotonic()))
            now = time.monotonic()
            if came and came.si_signo != signal.SIGCHLD:
                interrupted = interrupted or came.si_signo
                send(child.pid, came.si_signo)
                stronger_at = min(stronger_at, now + arguments.grace)
            elif now >= stronger_at:
                send(child.pid, stronger.pop(0))
                stronger_at = now + arguments.grace if stronger else float("inf")
            if now >= due:
                line.show(status())
                due = now + line.period
        line.end(status())
        if interrupted:
            end_group(child.pid, arguments.grace)
        try:
            os.write(call_off, b".")
        except OSError:
            pass  # it was killed
        os.waitpid(guardian, 0)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode, interrupted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True)
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--what", required=True)
    parser.add_argument("--step")
    parser.add_argument("--count", type=re.compile)
    parser.add_argument("--of", type=int)
    parser.add_argument("--noun", default="steps")
    parser.add_argument("--period", type=float)
    parser.add_argument("--grace", type=float, default=3)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command[:1] == ["--"]:
        arguments.command = arguments.command[1:]
    if not arguments.command:
        parser.error("no command")
    status, interrupted = run(arguments, Line(sys.stderr, arguments.period))
    if interrupted:
        # A shell that waits for this ends only if the signal has ended it.
        signal.signal(interrupted, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {interrupted})
        os.kill(os.getpid(), interrupted)
    return status


if __name__ == "__main__":
    sys.exit(main())
