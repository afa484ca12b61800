#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what scripts/results.py shows of failed tests: the complaint first, little of the rest."""

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


def shown(result, stdout="", stderr=""):
    """The lines of a log with one test like that, and one that has passed."""
    tests = [
        {"name": "some / good", "result": "OK", "returncode": 0},
        {"name": "some / test", "result": result, "returncode": 1, "stdout": stdout, "stderr": stderr},
    ]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "testlog.json"
        log.write_text("".join(json.dumps(test) + "\n" for test in tests))
        said = subprocess.run([sys.executable, RESULTS, "default", log], check=True, capture_output=True, text=True).stdout
    return said.splitlines()


class Results(unittest.TestCase):
    def test_success_is_only_counted(self):
        self.assertEqual(shown("SKIP"), ["1 0 1"])

    def test_what_a_compiler_says_comes_first(self):
        lines = shown("FAIL", "a.hpp:1:2: error: redundant\n   1 | x = y;\n     | ^\n")
        self.assertEqual(lines[-2], "failed: default: some / test: a.hpp:1:2: error: redundant")

    def test_test_case_and_assertion_are_shown_whatever_else_is_said(self):
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

    def test_complaint_of_a_script_is_what_it_is_about(self):
        lines = shown("FAIL", "FAILED: ib_send_bw\nand why\n")
        self.assertEqual(lines[-2], "failed: default: some / test: FAILED: ib_send_bw")

    def test_exception_of_python(self):
        lines = shown("FAIL", "", 'Traceback:\n  File "a.py"\nAssertionError: 1 != 2\n')
        self.assertEqual(lines[-2], "failed: default: some / test: AssertionError: 1 != 2")

    def test_without_a_complaint_the_last_line_has_to_do(self):
        self.assertEqual(shown("TIMEOUT", "begun\n")[-2], "failed: default: some / test: begun")
        self.assertEqual(shown("TIMEOUT")[-2], "failed: default: some / test: TIMEOUT")


if __name__ == "__main__":
    unittest.main()
