#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if the library makes a call of libibverbs whose failure is not covered by a device test.

    failing_calls.py PROJECT

A call is covered if a test names it among the calls that it makes fail.
"""

import pathlib
import re
import sys

# These calls report no failure.
CANNOT_FAIL = re.compile(
    r"""ibv_(
    ack_\w+ | free_device_list | get_device_name | get_device_guid | is_fork_initialized |
    cq_ex_to_cq | qp_to_qp_ex | inc_rkey | end_poll | wc_read_\w+ | wr_(?!complete)\w+
    )""",
    re.VERBOSE,
)


def calls_in(folder):
    """Returns each call, with a file that makes it."""
    found = {}
    for path in sorted(folder.rglob("*.?pp")):
        code = re.sub(r'//.*|"(?:\\.|[^"\\])*"', "", path.read_text())
        for name in re.findall(r"\b(ibv_\w+)\(", code):
            found.setdefault(name, path)
    return found


def main():
    project = pathlib.Path(sys.argv[1])
    calls = {**calls_in(project / "include"), **calls_in(project / "lib")}
    named = set()
    for path in (project / "test" / "device").glob("failing_*.cpp"):
        if path.name != "failing_verb.cpp":  # this file only implements the failures that tests request
            named.update(re.findall(r'"(ibv_\w+)[ "]', path.read_text()))
    fallible = {name for name in calls if not CANNOT_FAIL.fullmatch(name)}
    forgotten = sorted(fallible - named)
    for name in forgotten:
        print(f"{calls[name].relative_to(project)} calls {name}, which no device test makes fail")
    print(f"{len(fallible)} calls can fail, {len(fallible) - len(forgotten)} of them in a test")
    return 1 if forgotten or not fallible else 0


if __name__ == "__main__":
    sys.exit(main())
