#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the counts of scripts/progress.py, and that it returns the status of a command and logs its output."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "progress.py"
sys.path.insert(0, str(PROGRAM.parent))
import progress  # noqa: E402


def so_far(*pieces):
    output = progress.Output()
    for piece in pieces:
        output.feed(piece)
    return output.so_far


class Counts(unittest.TestCase):
    def test_objects(self):
        self.assertEqual(so_far(b"ninja: Entering\n[3/10] Compiling a.cpp\n[4/10] Linking b\n"), "4 objects done, 6 left")

    def test_a_line_that_is_read_in_pieces(self):
        self.assertEqual(so_far(b"[3/10] a\n[4/", b"10] b\n"), "4 objects done, 6 left")

    def test_tests(self):
        self.assertEqual(so_far(b" 7/96 verbspp:unit / unit   OK   0.11s\n"), "7 tests done, 89 left")

    def test_packages(self):
        text = b"0 upgraded, 3 newly installed, 0 to remove and 4 not upgraded.\nSetting up a (1)\nSetting up b (1)\n"
        self.assertEqual(so_far(text), "2 packages done, 1 left")

    def test_bytes_that_are_not_text(self):
        self.assertEqual(so_far(b"\xff\xfe\n[1/2] \xff\n"), "1 objects done, 1 left")


class Command(unittest.TestCase):
    def run_it(self, *command, append=()):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text("before\n")
            arguments = [sys.executable, PROGRAM, "--log", log, *append, "--what", "some work", *command]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout, done.stderr, log.read_text()

    def test_output_is_only_in_the_log(self):
        self.assertEqual(self.run_it("sh", "-c", "echo out; echo error >&2"), (0, "", "", "out\nerror\n"))

    def test_a_log_is_continued(self):
        self.assertEqual(self.run_it("echo", "out", append=["--append"]), (0, "", "", "before\nout\n"))

    def test_status(self):
        self.assertEqual(self.run_it("sh", "-c", "exit 7")[0], 7)
        self.assertEqual(self.run_it("sh", "-c", "kill -9 $$")[0], 137)

    def test_no_such_command(self):
        status, _, error, _ = self.run_it("/no/such/command")
        self.assertEqual(status, 127)
        self.assertIn("/no/such/command", error)


if __name__ == "__main__":
    unittest.main()
