#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that scripts/results.py shows the cause of a failed test first, and little of its other output."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "results.py"

RULE = "-" * 79
OF_CATCH = f"""
{RULE}
who lies is doubted
  on a busy machine
{RULE}
../hostile_test.cpp:153
{"." * 79}

../hostile_test.cpp:157: FAILED:
  CHECK( ibv_dereg_mr(region) == 0 )
with expansion:
  16 == 0

{"=" * 79}
test cases: 9 | 8 passed | 1 failed
"""


def run(arguments, *logs):
    """The lines that results.py prints for these arguments and logs. A log is a list of tests."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / f"{number}.json" for number, _ in enumerate(logs)]
        for path, tests in zip(paths, logs):
            path.write_text("".join(json.dumps(test) + "\n" for test in tests))
        command = [sys.executable, RESULTS, *arguments, *paths]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test(name, result, **said):
    return {"name": name, "result": result, "returncode": 0 if result == "OK" else 1} | said


def shown(result, stdout="", stderr=""):
    """The lines for a log with two tests: one that has passed, and one with this result and output."""
    return run(["default"], [test("some / good", "OK"), test("some / test", result, stdout=stdout, stderr=stderr)])


class Results(unittest.TestCase):
    def test_success_is_only_counted(self):
        self.assertEqual(shown("SKIP"), ["1 0 1"])

    def test_an_error_of_a_compiler_is_given_as_the_cause(self):
        lines = shown("FAIL", "a.hpp:1:2: error: redundant\n   1 | x = y;\n     | ^\n")
        self.assertEqual(lines[-2], "failed: default: some / test: a.hpp:1:2: error: redundant")

    def test_test_case_and_assertion_are_shown_despite_much_other_output(self):
        lines = shown("FAIL", OF_CATCH, "".join(f"softverbs: remark {number}\n" for number in range(500)))
        self.assertLess(len(lines), 40)
        self.assertIn("    in: who lies is doubted: on a busy machine", lines)
        self.assertIn("      CHECK( ibv_dereg_mr(region) == 0 )", lines)
        self.assertIn("      16 == 0", lines)
        self.assertIn("    softverbs: remark 499", lines)
        self.assertEqual(lines[-2], "failed: default: some / test: who lies is doubted: on a busy machine")
        self.assertEqual(lines[-1], "1 1 0")

    def test_complaints_are_counted_rather_than_all_shown(self):
        lines = shown("FAIL", OF_CATCH * 5)
        self.assertIn("    and 3 more complaints", lines)

    def test_a_complaint_of_a_script_is_given_as_the_cause(self):
        lines = shown("FAIL", "FAILED: ib_send_bw\nand why\n")
        self.assertEqual(lines[-2], "failed: default: some / test: FAILED: ib_send_bw")

    def test_an_exception_of_python_is_given_as_the_cause(self):
        lines = shown("FAIL", "", 'Traceback:\n  File "a.py"\nAssertionError: 1 != 2\n')
        self.assertEqual(lines[-2], "failed: default: some / test: AssertionError: 1 != 2")

    def test_a_test_that_passes_the_second_time_is_unsteady(self):
        first = [test("some / good", "OK"), test("some / test", "FAIL", stdout=OF_CATCH)]
        lines = run(["default"], first, [test("some / test", "OK")])
        self.assertIn("      16 == 0", lines)
        self.assertEqual(lines[-2], "unsteady: default: some / test: who lies is doubted: on a busy machine")
        self.assertEqual(lines[-1], "2 0 0")

    def test_a_test_that_does_not_pass_the_second_time_has_failed(self):
        first = [test("some / one", "FAIL"), test("some / other", "TIMEOUT")]
        lines = run(["default"], first, [test("some / one", "FAIL"), test("some / third", "OK")])
        self.assertEqual(lines[-3:], ["failed: default: some / one: FAIL", "failed: default: some / other: TIMEOUT", "0 2 0"])

    def test_a_few_failed_tests_are_listed_by_the_names_that_meson_accepts(self):
        failed = [test("part:some+slow / a / b: c", "FAIL"), test("part / none", "FAIL"), test("part:x / good", "OK")]
        self.assertEqual(run(["--failed"], failed), ["part:a / b: c", "part:none"])
        self.assertEqual(run(["--failed"], failed * 3), [])

    def test_without_a_complaint_the_last_line_is_given_as_the_cause(self):
        self.assertEqual(shown("TIMEOUT", "begun\n")[-2], "failed: default: some / test: begun")
        self.assertEqual(shown("TIMEOUT")[-2], "failed: default: some / test: TIMEOUT")


if __name__ == "__main__":
    unittest.main()
