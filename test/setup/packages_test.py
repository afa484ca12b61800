#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks need_packages and want_packages of scripts/lib.sh with a simulated apt."""

import pathlib
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent

# Programs that replace those of the system. A line of the file `apt` contains the name of a package and
# the result of installing it.
PRETENDED = {
    "id": 'cat "$PRETENDED/user"',
    "sudo": "exit 1",
    "dpkg-query": """
shift 2
for name; do
  ! grep -qx "$name" "$PRETENDED/installed" || echo "installed $name"
done""",
    "apt-cache": r"""
shift 2
for name; do printf 'Package: %s\nInstalled-Size: 2048\nSize: 1048576\n' "$name"; done""",
    "apt-get": r"""
echo "apt-get $*" >>"$PRETENDED/calls"
simulated=
names=
while [ $# != 0 ]; do
  case $1 in
  update)
    [ ! -e "$PRETENDED/new" ] || mv "$PRETENDED/new" "$PRETENDED/apt"
    exit 0
    ;;
  -o) shift ;;
  --simulate) simulated=yes ;;
  -* | install) ;;
  *) names="$names $1" ;;
  esac
  shift
done
for name in $names; do
  case $(sed -n "s/^$name //p" "$PRETENDED/apt") in
  works) echo "Inst $name (2.0 Debian:12 [amd64])" ;;
  upgrades) printf 'Inst lib%s [1.0] (2.0 Debian:12 [amd64])\nInst %s (2.0 Debian:12 [amd64])\n' $name $name ;;
  conflicts) printf ' %s : Depends: other (= 2.0) but 1.0 is to be installed\nE: Unable to correct problems\n' $name; exit 100 ;;
  unreachable)
    echo "Inst $name (1.0 Debian:12 [amd64])"
    [ "$simulated" ] || { echo "E: Failed to fetch $name.deb  404 Not Found"; exit 100; }
    ;;
  *) echo "E: Unable to locate package $name"; exit 100 ;;
  esac
done
[ "$simulated" ] || printf '%s\n' $names >>"$PRETENDED/installed"
""",
}


class Packages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in PRETENDED.items():
            self.write(name, f"#!/bin/sh\n{text}\n").chmod(0o755)
        self.write("apt", "one works\ntwo works\nold upgrades\nbad conflicts\n")
        self.write("installed", "here\n")
        self.write("user", "0\n")

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_bash(self, command, **environment):
        ran = subprocess.run(
            ["bash", "-c", f'. "{TOP}/scripts/lib.sh"\nbuild=$PRETENDED/build\n{command}', "script"],
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "PRETENDED": str(self.folder), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def installed(self):
        return (self.folder / "installed").read_text().split()[1:]

    def calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def test_apt_is_not_called_when_nothing_is_missing(self):
        for function in "need_packages", "want_packages":
            self.assertEqual(self.run_bash(f"{function} here"), (0, ""))
        self.assertEqual(self.calls(), [])

    def test_only_missing_packages_are_installed_and_announced(self):
        status, output = self.run_bash("need_packages here two one")
        self.assertEqual(status, 0, output)
        self.assertEqual(self.installed(), ["one", "two"])
        self.assertIn("installing one two: 2 packages, a download of 2 MB, 4 MB on disk", output)
        self.assertFalse([call for call in self.calls() if "update" in call])

    def test_a_user_who_may_not_install_packages_gets_the_command(self):
        self.write("user", "1000\n")
        status, output = self.run_bash("need_packages here one two; echo went on")
        self.assertEqual(status, 1)
        self.assertIn("apt-get install --no-install-recommends one two", output)
        self.assertNotIn("went on", output)
        status, output = self.run_bash("want_packages here one two || echo status $?")
        self.assertIn("apt-get install --no-install-recommends one two", output)
        self.assertIn("status 1", output)
        self.assertEqual(self.calls(), [])

    def test_packages_are_installed_with_sudo(self):
        self.write("user", "1000\n")
        self.write("sudo", '#!/bin/sh\n[ "$1" != --non-interactive ] || shift\nexec "$@"\n')
        status, output = self.run_bash("need_packages one")
        self.assertEqual((status, self.installed()), (0, ["one"]), output)

    def test_an_installation_that_would_upgrade_a_package_is_refused(self):
        status, output = self.run_bash("need_packages one old")
        self.assertEqual((status, self.installed()), (1, []))
        self.assertIn("would upgrade libold from 1.0 to 2.0", output)
        self.assertIn("apt-get install --no-install-recommends old one", output)

    def test_upgrades_can_be_allowed(self):
        for function in "need_packages old", "want_packages one":
            self.assertEqual(self.run_bash(function, VERBSPP_MAY_UPGRADE="1")[0], 0)
        self.assertEqual(self.installed(), ["old", "one"])

    def test_wanted_packages_are_installed_even_if_others_cannot_be(self):
        status, output = self.run_bash("want_packages one old bad unknown two || echo status $?")
        self.assertIn("status 1", output)
        self.assertEqual(self.installed(), ["one", "two"])
        for reason in (
            "without old: this would upgrade libold",
            "without bad: bad : Depends: other (= 2.0)",
            "without unknown: Unable to locate",
        ):
            self.assertIn(reason, output)

    def test_lists_are_updated_when_they_lack_a_package(self):
        self.write("new", "late works\n")
        status, output = self.run_bash("need_packages late")
        self.assertEqual((status, self.installed()), (0, ["late"]), output)

    def test_lists_are_updated_when_the_server_lacks_a_package(self):
        self.write("apt", "late unreachable\n")
        self.write("new", "late works\n")
        status, output = self.run_bash("need_packages late")
        self.assertEqual((status, self.installed()), (0, ["late"]), output)

    def test_lists_are_updated_only_once(self):
        status, output = self.run_bash("need_packages unknown")
        self.assertEqual(status, 1)
        self.assertIn("Unable to locate package unknown", output)
        self.assertEqual(len([call for call in self.calls() if "update" in call]), 1)

    def test_installing_can_be_forbidden(self):
        for function in "need_packages", "want_packages":
            self.assertEqual(self.run_bash(f"{function} one", VERBSPP_NO_INSTALL="1"), (0, ""))
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
