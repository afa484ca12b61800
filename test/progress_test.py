#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks scripts/progress.py: what it shows of a command's output, and that no process outlives it."""

import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRESS = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "progress.py"
sys.path.insert(0, str(PROGRESS.parent))
import progress  # noqa: E402


def after(*lines, **settings):
    """How far a command with this output is."""
    output = progress.Output(**settings)
    output.feed("".join(line + "\n" for line in lines).encode())
    return output.so_far


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal_line(columns):
    line = progress.Line(Terminal(), period=1)
    line.terminal, line.columns = True, lambda: columns
    return line


class Outputs(unittest.TestCase):
    def test_objects_of_ninja(self):
        self.assertEqual(after("ninja: Entering directory `build'", "[119/345] Compiling a.cpp", "[120/345] Linking b"),
                         "120 of 345 objects")

    def test_tests_of_meson(self):
        self.assertEqual(after("[2/2] Linking b", " 9/96 verbspp:unit / unit OK              1.02s"), "9 of 96 tests")
        self.assertEqual(after("1/6 part:a+b / skips      SKIP    0.00s   exit status 77"), "1 of 6 tests")

    def test_tests_that_fail_are_counted_in_each_run_anew(self):
        one, other = "1/2 part / a    FAIL    0.00s   exit status 1", "2/2 part / b    TIMEOUT   60.00s   killed by signal 15"
        self.assertEqual(after(one, ">>> a", "", other), "2 of 2 tests, 2 failed")
        self.assertEqual(after(one, other, one), "1 of 2 tests, 1 failed")

    def test_words_in_the_name_of_a_test_are_no_verdict(self):
        self.assertEqual(after("1/2 part / FAIL is found    OK    0.10s"), "1 of 2 tests")

    def test_packages_of_apt(self):
        lines = ["0 upgraded, 12 newly installed, 0 to remove and 3 not upgraded.", "Get:1 http://deb.debian.org a [3 kB]"]
        self.assertEqual(after(*lines), "1 of 12 packages fetched")
        self.assertEqual(after(*lines, "Unpacking a (1) ...", "Unpacking b (1) ..."), "2 of 12 packages unpacked")
        self.assertEqual(after(*lines, "Unpacking a (1) ...", "Setting up a (1) ..."), "1 of 12 packages set up")

    def test_steps_of_mmdebstrap(self):
        self.assertEqual(after("I: running apt-get update...", "done"), "running apt-get update")

    def test_lines_that_match_a_pattern(self):
        lines = ["==> device: ended with status 0", "[1/2] Compiling", "==> ranks: ended with status 1"]
        self.assertEqual(after(*lines, count=re.compile("^==> .* ended"), of=12, noun="sets"), "2 of 12 sets")
        self.assertEqual(after(*lines, count=re.compile("^==> .* ended")), "2 steps")

    def test_lines_that_come_in_pieces(self):
        output = progress.Output()
        for piece in (b"[1/3] a\n[2", b"/3", b"] b\r", b"[3/3] c"):
            output.feed(piece)
        self.assertEqual(output.so_far, "2 of 3 objects")
        output.feed(b"\r\n")
        self.assertEqual(output.so_far, "3 of 3 objects")

    def test_what_is_no_text(self):
        output = progress.Output()
        output.feed(b"\xff\xfe\n[1/2] \xc3\n" + b"\0" * 100000)
        self.assertEqual(output.so_far, "1 of 2 objects")
        self.assertLessEqual(len(output.rest), progress.LONGEST_LINE)


class Lines(unittest.TestCase):
    def test_line(self):
        self.assertEqual(progress.status_line("default: building", "120 of 345 objects", 40.7),
                         "default: building: 120 of 345 objects, 40 s")
        self.assertEqual(progress.status_line("default: testing", "31 of 96 tests", 132, "ranks on ethernet"),
                         "default: testing: 31 of 96 tests, 2 min 12 s, longest running: ranks on ethernet")
        self.assertEqual(progress.status_line("installing", "", 12), "installing: 12 s")

    def test_terminal_has_one_line_which_is_erased(self):
        line = terminal_line(11)
        line.show("0123456789abc")
        line.show("next")
        line.end("end")
        self.assertEqual(line.stream.getvalue(), "\r0123456789\x1b[K\rnext\x1b[K\r\x1b[K")

    def test_elsewhere_lines_stay(self):
        line = progress.Line(io.StringIO())
        line.show("one\x1b[0m")
        line.end("end")
        self.assertEqual(line.stream.getvalue(), "one?[0m\nend\n")

    def test_what_was_short_shows_nothing(self):
        for line in (terminal_line(80), progress.Line(io.StringIO())):
            line.end("end")
            self.assertEqual(line.stream.getvalue(), "")

    def test_periods(self):
        self.assertEqual(progress.Line(io.StringIO()).period, 10)
        before = os.environ.pop("TERM", None)
        try:
            self.assertEqual(progress.Line(Terminal()).period, 1)
            os.environ["TERM"] = "dumb"
            self.assertEqual(progress.Line(Terminal()).period, 10)
        finally:
            os.environ.pop("TERM")
            os.environ.update({} if before is None else {"TERM": before})


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log, self.fifo = self.folder / "log", self.folder / "fifo"
        os.mkfifo(self.fifo)

    def start(self, *command, options=("--period", "1000")):
        def heed():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # nohup and background jobs ignore some of them

        return subprocess.Popen(
            [sys.executable, PROGRESS, "--log", self.log, "--what", "it", "--grace", "0.1", *options, "--", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed,
        )  # fmt: skip

    def run_it(self, *command, **settings):
        process = self.start(*command, **settings)
        outputs = process.communicate()
        return process.returncode, *outputs

    def test_short_command_leaves_its_output_in_the_log_only(self):
        self.assertEqual(self.run_it("sh", "-c", r"echo out; echo err >&2; printf '\377'"), (0, "", ""))
        self.assertEqual(self.log.read_bytes(), b"out\nerr\n\xff")

    def test_log_is_written_anew_or_goes_on(self):
        self.log.write_text("[1/9] old\n")
        self.run_it("echo", "one")
        self.run_it("echo", "two", options=["--append", "--period", "1000"])
        self.assertEqual(self.log.read_text(), "one\ntwo\n")

    def test_exit_status(self):
        self.assertEqual(self.run_it("sh", "-c", "exit 3")[0], 3)
        self.assertEqual(self.run_it("sh", "-c", "kill -9 $$")[0], 128 + 9)
        status, _, said = self.run_it(str(self.folder / "none"))
        self.assertEqual(status, 127)
        self.assertIn("none: No such file", said)

    def test_silent_command_has_a_line_while_it_runs(self):
        process = self.start("cat", str(self.fifo), options=["--period", "0.01", "--step", "2/7"])
        self.assertRegex(process.stderr.readline(), r"^\[2/7\] it: \d+ s$")
        self.fifo.write_text("[1/2] done\n")
        self.assertRegex(process.communicate()[1].splitlines()[-1], r"^\[2/7\] it: 1 of 2 objects, \d+ s$")
        self.assertEqual(process.returncode, 0)

    def test_command_reads_nothing(self):
        self.assertEqual(self.run_it("cat")[0], 0)

    def end_by(self, number, script):
        """Ends it by a signal while it runs two processes; returns only when both have ended, which the fifo tells."""
        process = self.start("sh", "-c", f"exec 3>'{self.fifo}'; {script}")
        with open(self.fifo) as fifo:
            self.assertEqual(fifo.readline(), "ready\n")
            process.send_signal(number)
            self.assertEqual(fifo.read(), "")
        process.communicate()
        self.assertEqual(process.returncode, -number)

    def test_signal_ends_all_processes(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.end_by(number, "tail -f /dev/null & echo ready >&3; wait")

    def test_killed_it_leaves_nothing_behind(self):
        self.end_by(signal.SIGKILL, "tail -f /dev/null & echo ready >&3; wait")

    def test_deaf_processes_end_too(self):
        self.end_by(signal.SIGTERM, "trap '' TERM; tail -f /dev/null & echo ready >&3; wait")

    def test_longest_running_test(self):
        info = self.folder / "meson-info"
        info.mkdir()
        command = ["sh", "-c", "read line"]
        tests = [{"name": name, "cmd": command, "env": {"LAYER": name}} for name in ("one", "other")]
        (info / "intro-tests.json").write_text(json.dumps(tests))
        running = progress.RunningTests(["/usr/bin/meson", "test", "-C", str(self.folder)])
        start = lambda layer: subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"LAYER": layer})  # noqa: E731
        with start("none") as _, start("other") as first, start("one") as second:
            self.assertEqual(running.longest(os.getpid()), "other")
            first.communicate()
            self.assertEqual(running.longest(os.getpid()), "one")
            second.communicate()
            self.assertIsNone(running.longest(os.getpid()))
        self.assertIsNone(progress.RunningTests(["ninja"]).longest(os.getpid()))


if __name__ == "__main__":
    unittest.main()
