#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uses verbspp as other projects do, and runs the program that they build.

    consumer.py subproject   a parent project finds verbspp by dependency(), through a wrap file
    consumer.py pkg-config   the installed library, found through pkg-config
    consumer.py cmake        the installed library, found through CMake
    consumer.py components   all installed libraries, shared and static, found through CMake

The parent project is built offline from a tarball of the current sources; whichever test starts first builds it.
`pkg-config` and `cmake` use its installation, and `components` installs it again, with all libraries.
"""

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
# The parent project's build files contain the same options.
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Weffc++", "-Werror"]


def run(*command, **options):
    """Runs a command, which has to succeed, and returns its output."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{shlex.join(command)}: exit status {done.returncode}")
    return done.stdout


def refuse(words, *command):
    """Runs a command, which has to fail and to print the words, regardless of its line breaks."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0 or words not in " ".join(done.stdout.split()):
        sys.exit(f"{done.stdout}\n{shlex.join(command)}: exit status {done.returncode}, expected: {words}")


def sources():
    """The files of the project: those that Git would commit; without Git, all files outside of build folders."""
    if (TOP / ".git").exists() and shutil.which("git"):
        names = run("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
                    "--exclude-standard", cwd=TOP).split("\0")
    else:
        names = [str(path.relative_to(TOP)) for path in TOP.rglob("*")]
        names = [name for name in names if not name.startswith((".git/", "build"))]
    return sorted(name for name in names if name and (TOP / name).is_file())


class Parent:
    """The parent project in its folder; a change of any source recreates it."""

    def __init__(self, folder, quick_start):
        self.folder = folder
        self.build = folder / "build"
        self.prefix = folder / "prefix"
        self.quick_start = quick_start

    def prepare(self):
        digest = hashlib.sha256(repr((run("meson", "--version"), os.environ.get("CXX"))).encode())
        for path in [TOP / name for name in sources()] + [self.quick_start]:
            digest.update(f"{path}\0".encode() + path.read_bytes())
        state = self.folder / "sources.sha256"
        if state.exists() and state.read_text() == digest.hexdigest():
            return
        shutil.rmtree(self.folder)
        shutil.copytree(HERE / "parent", self.folder)
        shutil.copy(self.quick_start, self.folder / "quick_start.cpp")
        packages = self.folder / "subprojects" / "packagefiles"
        packages.mkdir()
        with tarfile.open(packages / "verbspp.tar", "w") as tarball:
            for name in sources():
                tarball.add(TOP / name, f"verbspp/{name}")
        self.install(self.build, self.prefix)
        state.write_text(digest.hexdigest())

    def install(self, build, prefix, *options):
        run("meson", "setup", build, self.folder, "--wrap-mode=nodownload", f"--prefix={prefix}",
            "--libdir=lib", "-Dunity=subprojects", "-Dunity_size=32", *options)
        run("meson", "install", "-C", build)

    def introspect(self, what):
        return json.loads(run("meson", "introspect", f"--{what}", self.build))

    def check_subproject(self):
        """The parent gets the library, and nothing that it did not request."""
        targets = {target["name"] for target in self.introspect("targets")}
        expect("targets", targets, {"quick_start", "verbspp"})
        expect("tests", {test["name"] for test in self.introspect("tests")}, set())
        expect("benchmarks", {test["name"] for test in self.introspect("benchmarks")}, set())

        installed = {path.relative_to(self.prefix) for path in self.prefix.rglob("*") if path.is_file()}
        headers = {path for path in installed if path.parts[:2] == ("include", "verbspp")}
        wanted = {path.relative_to(TOP) for path in (TOP / "include").rglob("*.hpp")}
        expect("installed headers", headers, wanted)
        others = {str(path) for path in installed - headers if not path.name.startswith("libverbspp.so")}
        expect("other installed files", others, {
            "bin/quick_start",
            "lib/pkgconfig/verbspp.pc",
            "lib/pkgconfig/verbspp-asio.pc",
            "lib/cmake/verbspp/verbspp-config.cmake",
            "lib/cmake/verbspp/verbspp-config-version.cmake",
        })
        return self.build / "quick_start"

    def build_with_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "verbspp",
                    env={**os.environ, "PKG_CONFIG_PATH": self.prefix / "lib/pkgconfig"})
        program = self.folder / "quick_start_pkg_config"
        run(*shlex.split(os.environ["CXX"]), "-std=c++20", *WARNINGS, self.quick_start, "-o", program,
            *shlex.split(flags), f"-Wl,-rpath,{self.prefix}/lib")
        return program

    def build_with_cmake(self):
        build = self.folder / "build-cmake"
        run("cmake", "-G", "Ninja", "-S", self.folder, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        # A component that was not built is refused.
        refuse('The component "cm" is not installed: configure verbspp\'s own build with -Dcm=enabled.',
               *self.cmake_components("none", self.prefix))
        return build / "quick_start"

    def cmake_components(self, folder, prefix, *options):
        return ["cmake", "-G", "Ninja", "-S", self.folder / "components", "-B", self.folder / "build-components" / folder,
                f"-DCMAKE_PREFIX_PATH={prefix}", *options]

    def build_components(self):
        """All shared and static libraries work after the installation was moved, and so do the static ones alone."""
        everything, moved = self.folder / "everything", self.folder / "moved"
        if not moved.exists():
            self.install(self.folder / "build-everything", everything, "-Ddefault_library=both",
                         "-Dverbspp:calls=enabled", "-Dverbspp:cm=enabled", "-Dverbspp:ranks=enabled")
            everything.rename(moved)
        refuse('verbspp has no component "rank"; its components are calls, cm and ranks.',
               *self.cmake_components("wrong", moved, "-DCOMPONENTS=calls;cm;rank"))
        programs = [self.build_components_as(kind, moved) for kind in ("shared", "static")]
        if "libverbspp" in run("ldd", programs[1]):
            sys.exit("the shared libraries were linked instead of the static ones")
        alone = self.folder / "alone"
        if not alone.exists():
            shutil.copytree(moved, alone, ignore=shutil.ignore_patterns("*.so*"))
        programs.append(self.build_components_as("static-alone", alone))
        for program in programs[1:]:
            run(program)
        return programs[0]

    def build_components_as(self, kind, prefix):
        run(*self.cmake_components(kind, prefix, f"-Dverbspp_USE_STATIC_LIBS={'ON' if kind == 'static' else 'OFF'}"))
        run("cmake", "--build", self.folder / "build-components" / kind)
        return self.folder / "build-components" / kind / "components"


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: missing {sorted(map(str, wanted - got))}, too many {sorted(map(str, got - wanted))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("how", choices=["subproject", "pkg-config", "cmake", "components"])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="the working folder")
    parser.add_argument("--quick-start", type=pathlib.Path, required=True, help="the program's source")
    parser.add_argument("--softverbs", default="", help="the library to preload when it runs")
    options = parser.parse_args()
    if options.how in ("cmake", "components") and not shutil.which("cmake"):
        print("cmake is not installed")
        sys.exit(77)

    options.folder.mkdir(parents=True, exist_ok=True)
    with open(options.folder.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        parent = Parent(options.folder.resolve(), options.quick_start.resolve())
        parent.prepare()
        program = {
            "subproject": parent.check_subproject,
            "pkg-config": parent.build_with_pkg_config,
            "cmake": parent.build_with_cmake,
            "components": parent.build_components,
        }[options.how]()
    print(run("env", f"LD_PRELOAD={options.softverbs}", program))


if __name__ == "__main__":
    main()
