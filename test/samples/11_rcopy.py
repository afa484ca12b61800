#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies files with the sample between two processes, and kills one of them in the middle.

    11_rcopy.py PROGRAM

PAIR_PRELOAD names a library to preload into both processes.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from held_port import hold_port  # noqa: E402

PROGRAM = sys.argv[1]
ENVIRONMENT = dict(os.environ, LD_PRELOAD=os.environ.get("PAIR_PRELOAD", ""))
PATIENCE = 30
SIZE = (12 << 20) + 12345
# Limits the rate so that the copy takes a second, and an end can be killed during it.
RATE = ["--rate", "12"]


def fail(what):
    sys.exit(f"11_rcopy: {what}")


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            fail(f"{what} took longer than {PATIENCE} s")
        # steady: this pause is not critical, because the loop polls until its deadline
        time.sleep(0.005)


class Copy:
    """A source, a target that does not exist yet, and a separate port."""

    def __init__(self, folder, size=SIZE):
        self.source = folder / "source"
        self.target = folder / "target"
        self.part = folder / "target.part"
        self.source.write_bytes(random.Random(7).randbytes(size))
        for path in (self.target, self.part):
            path.unlink(missing_ok=True)
        self.held, self.port = hold_port()
        self.running = []

    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, "--device", "soft0", "--port", str(self.port), *arguments],
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(process)
        return process

    def server(self, *options):
        return self.start(*options, str(self.target))

    def client(self, *options):
        return self.start(*options, str(self.source), "localhost")

    def wait_for_middle(self):
        wait_until(lambda: self.part.exists() and self.part.stat().st_size > SIZE // 4, "a quarter of the copy")
        if self.target.exists():
            fail("the copy was complete before an end could be killed")

    def finish(self, *processes):
        """Checks that both ends succeed and the files are equal; returns their output."""
        said = []
        for process in processes:
            try:
                said.append(process.communicate(timeout=PATIENCE)[0])
            except subprocess.TimeoutExpired:
                fail(f"{process.args} hangs")
        for process, output in zip(processes, said):
            if process.returncode != 0:
                fail(f"{process.args}: exit status {process.returncode}\n{output}")
        if self.target.read_bytes() != self.source.read_bytes():
            fail("the files differ")
        if self.part.exists():
            fail("the partial file still exists")
        return said

    def close(self):
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.held.close()


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    return process.stdout.read()


def starts(output):
    return [int(number) for number in re.findall(r"from byte (\d+) of", output)]


def whole(copy):
    copy.finish(copy.server(), copy.client())


def server_is_killed(copy):
    server = copy.server()
    client = copy.client(*RATE)
    copy.wait_for_middle()
    kill(server)
    there = copy.part.stat().st_size
    if not 0 < there < SIZE:
        fail(f"the server was killed at byte {there}")
    said = copy.finish(client, copy.server())[0]
    if starts(said)[0] != 0 or starts(said)[-1] != there:
        fail(f"the copy did not continue where it stopped, at byte {there}:\n{said}")


def client_is_killed(copy):
    server = copy.server()
    client = copy.client(*RATE)
    copy.wait_for_middle()
    kill(client)
    said = copy.finish(copy.client(), server)[0]
    if len(starts(said)) != 1 or not 0 < starts(said)[0] < SIZE:
        fail(f"the copy did not continue where it stopped:\n{said}")


def server_hangs(copy):
    server = copy.server()
    client = copy.client(*RATE, "--limit", "3")
    copy.wait_for_middle()
    server.send_signal(signal.SIGSTOP)
    try:
        output = client.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired:
        fail(f"{client.args} hangs with its server")
    if client.returncode != 1:
        fail(f"{client.args}: exit status {client.returncode}\n{output}")
    server.send_signal(signal.SIGCONT)
    said = copy.finish(copy.client(), server)[0]
    if not 0 < starts(said)[-1] < SIZE:
        fail(f"the copy did not continue where it stopped:\n{said}")


def other_file_is_there(copy):
    copy.part.write_bytes(bytes(5000))
    said = copy.finish(copy.client(), copy.server())[0]
    if starts(said)[-1] != 0:
        fail(f"the copy continued after the bytes of another file:\n{said}")


def nobody_comes(copy):
    for end in (copy.client, copy.server):
        process = end("--limit", "1")
        try:
            output = process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            fail(f"{process.args} hangs")
        if process.returncode != 1 or not output:
            fail(f"{process.args}: exit status {process.returncode}\n{output}")


def ends_differ(copy):
    server = copy.server("--limit", "2")
    client = copy.client("--chunk", "1000")
    output = client.communicate(timeout=PATIENCE)[0]
    if client.returncode != 1 or "--chunk" not in output:
        fail(f"{client.args}: exit status {client.returncode}\n{output}")
    server.communicate(timeout=PATIENCE)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for test, size in ((whole, SIZE), (whole, 0), (whole, 1), (server_is_killed, SIZE), (client_is_killed, SIZE),
                           (server_hangs, SIZE),
                           (other_file_is_there, 100000), (nobody_comes, 1), (ends_differ, 1)):
            copy = Copy(folder, size)
            start = time.monotonic()
            try:
                test(copy)
            finally:
                copy.close()
            print(f"{test.__name__}, {size} bytes: {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
