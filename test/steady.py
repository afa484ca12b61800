#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds tests and scripts that wait for a fixed time, or use a port or a name that another run would share.

    steady.py PROJECT

Such a test may fail on a slow machine, or in parallel with another run. A line that is correct nevertheless needs
a comment with the reason, at its end or above it:

    std::this_thread::sleep_for(1ms);  // steady: polls until the deadline

A marker without a reason, or at a line without a problem, is an error, too.
"""

import pathlib
import re
import sys

FOLDERS = ["test", "subprojects/softverbs/test", "scripts"]
SUFFIXES = {".c", ".cpp", ".h", ".hpp", ".py", ".sh"}
# These files contain the patterns or examples of them, or compare addresses without using them.
EXEMPT = {"steady.py", "steady_test.py", "gid.cpp"}
PORT = r"[1-9]\d{1,4}\b"
KINDS = [(kind, re.compile("|".join(patterns))) for kind, patterns in {
    "a fixed time": [
        r"(?<!void )\bsleep_for ?\((?!\))", r"\bsleep_until ?\((?!\))", r"\b(?:u|nano|clock_nano)sleep ?\(",
        r"(?<!_)\bsleep ?\((?!\))",  # in C and Python; without an argument it is another function
        r"\bsleep +[\"']?[\d.$]",  # of the shell
        r"\bsleep[\"'], +[\"'][\d.]",  # as a command in a list of words
        r"\bp?poll ?\((?:nullptr|NULL), 0, (?!0\))",
    ],
    "a fixed port": [
        rf"\bhtons ?\({PORT}", rf"--port[\s=\"',]+{PORT}",
        rf"(?:\b127(?:\.\d+){{3}}|\b0\.0\.0\.0|\blocalhost|\[::1?\]):{PORT}",
        rf"\b(?:bind|connect|connect_ex|create_server|create_connection)\(\([^()]*, {PORT}",
        rf"\btcp_listener::open\(\"{PORT}", rf"\btcp_socket::connect\(.*, \"[1-9]\d{{0,4}}\"",
        r"(?<![a-z])(?:port|PORT)_? ?(?:=|\{) ?(?:[\"']|\$\(\()?[1-9]\d{2,4}\b",
    ],
    "a fixed name": [
        r"/tmp\b(?!.*XXXXXX)", r"/dev/shm/(?!.*XXXXXX)",
        r"\b(?:shm|sem|mq)_open ?\(\"", r"\bsun_path \+ 1\b", r"\bbind\(\"\\0", r"\babstract:",
        r"\b(?:link|tuntap|netns) add (?:name |dev )?[a-z]",
    ],
    "a fixed multicast group": [r"\"(?:::ffff:)?(?:22[4-9]|23\d)\.(?:\d+\.){2}\d+\"", r"\"ff[01][0-9a-f]:"],
}.items()]  # fmt: skip
COMMENT = {True: re.compile(r"(?:^|\s)///?(?!\S*[\"'])"), False: re.compile(r"(?:^|\s)#(?=\s|$)")}
MARKER = re.compile(r"steady:(.*)")


def sources(project):
    for folder in FOLDERS:
        for path in sorted((project / folder).rglob("*")):
            if not path.is_file() or path.name in EXEMPT:
                continue
            script = path.suffix == "" and path.read_bytes()[:2] == b"#!"
            if script or path.suffix in SUFFIXES or path.name == "meson.build":
                yield path


def problems_of(name, text):
    """Yields the problems of one file as line number and sentence."""
    comment = COMMENT[pathlib.Path(name).suffix in {".c", ".cpp", ".h", ".hpp"}]
    above = None  # the marker in the comment above, and its line
    for number, line in enumerate(text.splitlines(), 1):
        begin = comment.search(line)
        code, said = (line[: begin.start()], line[begin.start() :]) if begin else (line, "")
        marker = MARKER.search(said)
        if marker and not marker[1].strip():
            yield number, "a marker without a reason"
        if not code.strip() and said:
            if marker and above:
                yield above, "a marker where nothing is found"
            above = number if marker else above
            continue
        found = [kind for kind, pattern in KINDS if pattern.search(code)]
        if found and not marker and not above:
            yield from ((number, f"{kind}: {line.strip()}") for kind in found)
        # A second marker for the same line is superfluous.
        if marker and (not found or above):
            yield number, "a marker where nothing is found"
        if above and not found:
            yield above, "a marker where nothing is found"
        above = None
    if above:
        yield above, "a marker where nothing is found"


def main():
    project = pathlib.Path(sys.argv[1])
    files = list(sources(project))
    if len(files) < 20:
        sys.exit(f"{project} does not look like the project")
    failed = False
    for path in files:
        for number, problem in problems_of(path.name, path.read_text(errors="replace")):
            failed = True
            print(f"{path.relative_to(project)}:{number}: {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
