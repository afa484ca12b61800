#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the input parsing of scripts/times.py, and that it finds slow objects."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import times  # noqa: E402


class Times(unittest.TestCase):
    def test_the_last_build_of_an_object_counts(self):
        log = "# ninja log v5\n0\t9000\t1\ta.o\tx\n0\t2000\t1\tb.o\tx\n0\t1000\t1\ta.o\tx\n0\t9000\t1\tprogram\tx\n"
        self.assertEqual(times.objects_of(log), [(2.0, "b.o"), (1.0, "a.o")])

    def test_the_processor_time_that_the_wrapper_prints_is_read(self):
        a = {"name": "a", "duration": 1, "stderr": "a\nprocessor time: 0.500 s, and 0.250 s of the system\n"}
        b = {"name": "b", "duration": 2}
        log = "".join(json.dumps(test) + "\n" for test in [a, b])
        self.assertEqual(times.tests_of(log), [(2, None, "b", b), (1, 0.75, "a", a)])

    def test_a_test_runs_again_in_its_environment(self):
        spins = "import os, time\nwhile time.process_time() < float(os.environ['SECONDS']): pass"
        test = {"command": [sys.executable, "-c", spins], "env": {"SECONDS": "0.5"}}
        self.assertGreaterEqual(times.run_again(".", test), 0.5)

    def test_a_measurement_above_the_limit_is_repeated(self):
        results = [3, 5, 1, 5, 4]
        self.assertEqual([times.fastest(lambda: results.pop(0), 4) for _ in range(3)], [3, 1, 4])
        self.assertEqual(results, [])

    def test_slow_objects_are_found(self):
        objects = [(21, "a.o"), (19, "b.o")]
        self.assertEqual([line.split()[3] for line in times.too_slow("object", objects, 20)], ["a.o"])
        self.assertEqual(list(times.too_slow("object", objects, 40)), [])

    def test_limits_are_scaled_to_the_machine_down_to_a_minimum(self):
        self.assertEqual(times.limits(3.5), (10, 40))
        self.assertEqual(times.limits(28), (80, 60))


if __name__ == "__main__":
    unittest.main()
