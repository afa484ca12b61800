#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that steady.py finds each kind of unsteady line, and accepts lines with a reason."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import steady  # noqa: E402

FOUND = {
    "a fixed time": {
        "a.cpp": ["std::this_thread::sleep_for(20ms);", "std::this_thread::sleep_until(start + 1s);", "::usleep(5);",
                  "  ::nanosleep(&time, nullptr);", "::sleep(1);", "::poll(nullptr, 0, 50);"],
        "a.sh": ["sleep 1", "until ready; do sleep 0.1; done", 'sleep "$attempt"'],
        "a.py": ["time.sleep(0.2)", "sleep(delay)", 'run(["sleep", "60"])'],
    },
    "a fixed port": {
        "a.cpp": ["address.sin_port = htons(4711);", 'auto listener = tcp_listener::open("4711");',
                  'tcp_socket::connect("localhost", "4711", 1s)', 'tcp_socket::connect(host, "1", 1s)',
                  'std::string port = "4711";', 'at("127.0.0.1:4711");'],
        "a.sh": ["server --port 4711", "server --port=4711", "port=18700 number=0", "port=$((20000 + RANDOM))"],
        "a.py": ['one.bind(("", 4711))', 'start("--port", "4711")', "FIRST_PORT = 18600"],
        "meson.build": ["args: ['--port', '4711'],"],
    },
    "a fixed name": {
        "a.cpp": ['std::ofstream("/tmp/output");', '::shm_open("/board", O_RDWR, 0);', 'text.copy(name.sun_path + 1, 9);'],
        "a.sh": ["exec 8>${TMPDIR:-/tmp}/lock", "echo >/dev/shm/board", "ip link add dummy0 type dummy"],
        "a.py": ['one.bind("\\0name")'],
    },
    "a fixed multicast group": {"a.cpp": ['join(ip("239.1.2.3"));', 'attach(gid_of("ff0e::5"));']},
}  # fmt: skip
RIGHT = {
    "a.cpp": ["limit.sleep_until();", "wait_mode::sleep()", "void sleep_for(int milliseconds) {", 'tcp_listener::open("0")',
              "// sleep_for(20ms) would be luck", 'char name[] = "/tmp/softverbs-XXXXXX";', "htons(port)", "port = 1;",
              'connect("127.0.0.1", port)', "::poll(nullptr, 0, 0);", '"2001:db8::1"'],
    "a.sh": ["# sleep 1", "sleeps 1", "port=$((port + 1))", 'ip link add "$name" type dummy', "mktemp -d"],
    "a.py": ['one.bind(("127.0.0.1", 0))', "# time.sleep(1)", 'start("--port", port)'],
}  # fmt: skip


def problems(name, *lines):
    return list(steady.problems_of(name, "".join(line + "\n" for line in lines)))


class Steady(unittest.TestCase):
    def test_each_kind_is_found(self):
        for kind, files in FOUND.items():
            for name, lines in files.items():
                for line in lines:
                    self.assertEqual(problems(name, "", line), [(2, f"{kind}: {line.strip()}")])

    def test_steady_lines_are_not_found(self):
        for name, lines in RIGHT.items():
            for line in lines:
                self.assertEqual(problems(name, line), [])

    def test_marker_with_a_reason_is_accepted(self):
        for files in FOUND.values():
            for name, lines in files.items():
                sign = "//" if name == "a.cpp" else "#"
                for line in lines:
                    self.assertEqual(problems(name, f"{line}  {sign} steady: it polls"), [])
                    self.assertEqual(problems(name, f"  {sign} steady: it polls until", f"  {sign} the deadline", line), [])

    def test_marker_is_for_one_line(self):
        self.assertEqual(problems("a.sh", "# steady: it polls", "sleep 1", "sleep 2"), [(3, "a fixed time: sleep 2")])
        self.assertEqual(problems("a.sh", "sleep 1 # steady: it polls", "sleep 2"), [(2, "a fixed time: sleep 2")])

    def test_marker_without_a_reason(self):
        self.assertEqual(problems("a.sh", "sleep 1 # steady:"), [(1, "a marker without a reason")])
        self.assertEqual(problems("a.cpp", "// steady: ", "::sleep(1);"), [(1, "a marker without a reason")])

    def test_marker_where_nothing_is_found(self):
        stale = "a marker where nothing is found"
        self.assertEqual(problems("a.sh", "true # steady: it polls"), [(1, stale)])
        self.assertEqual(problems("a.sh", "# steady: it polls", "true", "sleep 1"), [(1, stale), (3, "a fixed time: sleep 1")])
        self.assertEqual(problems("a.sh", "# steady: it polls"), [(1, stale)])
        self.assertEqual(problems("a.sh", "# steady: it polls", "sleep 1 # steady: it polls"), [(2, stale)])
        self.assertEqual(problems("a.sh", "# steady: it polls", "# steady: it polls", "sleep 1"), [(1, stale)])

    def test_project(self):
        with tempfile.TemporaryDirectory() as folder:
            project = pathlib.Path(folder)

            def outcome(**files):
                for path in ("test/unit", "scripts", "subprojects/softverbs/test"):
                    (project / path).mkdir(parents=True, exist_ok=True)
                    for number in range(10):
                        (project / path / f"{number}.py").touch()
                for path, text in files.items():
                    (project / path).write_text(text)
                run = subprocess.run([sys.executable, steady.__file__, folder], capture_output=True, text=True, check=False)
                return run.returncode, run.stdout

            self.assertEqual(outcome(), (0, ""))
            self.assertEqual(outcome(**{"scripts/demo": "#!/bin/sh\nsleep 1\n", "test/unit/a.conf": "sleep 1\n"}),
                             (1, "scripts/demo:2: a fixed time: sleep 1\n"))


if __name__ == "__main__":
    unittest.main()
