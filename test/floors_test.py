#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that floors.py finds the errors of small projects, and nothing else."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import floors  # noqa: E402


def problems(**files):
    """The problems that floors.py finds in a project of files with these includes."""
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder)
        for path, included in files.items():
            path = project / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"#include {name}\n" for name in included.split()))
        return list(floors.problems(floors.files_of(project)))


LOWEST = "include/verbspp/base/error.hpp"
MIDDLE = "include/verbspp/memory/access.hpp"
HIGHEST = "include/verbspp/qp/state.hpp"
ALL = "include/verbspp/verbspp.hpp"


class Floors(unittest.TestCase):
    def test_a_picture_without_a_floor(self):
        drawn = [floor for floor in reversed(floors.FLOORS) if floor != "quirks"] + ["libibverbs"]
        picture = "".join(f'<text class="title">{floor}</text>' for floor in drawn)
        self.assertEqual(list(floors.missing_in_picture(picture)), [])
        self.assertEqual(len(list(floors.missing_in_picture(picture.replace("calls", "cells")))), 1)

    def test_includes_of_lower_floors_are_accepted(self):
        self.assertEqual(problems(**{
            LOWEST: "<string>",
            MIDDLE: "<verbspp/base/error.hpp>",
            HIGHEST: "<verbspp/base/error.hpp> <verbspp/memory/access.hpp>",
            "lib/qp/state.cpp": "<verbspp/qp/state.hpp> \"memory/pages.hpp\"",
            "lib/memory/pages.hpp": "<verbspp/memory/access.hpp>",
            ALL: "<verbspp/qp/state.hpp> <verbspp/memory/access.hpp>",
        }), [])

    def test_header_that_includes_one_above(self):
        found = problems(**{MIDDLE: "<verbspp/qp/state.hpp>", HIGHEST: ""})
        self.assertEqual(len(found), 1, found)
        self.assertIn("verbspp/memory/access.hpp: memory includes verbspp/qp/state.hpp", found[0])

    def test_source_that_includes_one_above(self):
        found = problems(**{HIGHEST: "", "lib/base/error.cpp": "<verbspp/qp/state.hpp>"})
        self.assertEqual(len(found), 1, found)
        self.assertIn("base/error.cpp: base includes verbspp/qp/state.hpp", found[0])

    def test_source_that_includes_a_header_of_the_sources_above(self):
        found = problems(**{"lib/qp/addressing.hpp": "", "lib/base/error.cpp": '"qp/addressing.hpp"'})
        self.assertEqual(len(found), 1, found)

    def test_circle(self):
        found = problems(**{
            MIDDLE: "<verbspp/memory/pages.hpp>",
            "include/verbspp/memory/pages.hpp": "<verbspp/memory/access.hpp>",
        })
        self.assertEqual(len(found), 1, found)
        self.assertIn("in a circle", found[0])

    def test_header_for_programs(self):
        found = problems(**{MIDDLE: "<verbspp/verbspp.hpp>", ALL: ""})
        self.assertEqual(len(found), 1, found)
        self.assertIn("for programs", found[0])

    def test_folder_that_is_not_a_floor(self):
        found = problems(**{"include/verbspp/verbs/device.hpp": ""})
        self.assertEqual(len(found), 1, found)
        self.assertIn("is on no floor", found[0])

    def test_header_that_does_not_exist(self):
        found = problems(**{MIDDLE: "<verbspp/verbs/device.hpp>"})
        self.assertEqual(len(found), 1, found)
        self.assertIn("which does not exist", found[0])


if __name__ == "__main__":
    unittest.main()
