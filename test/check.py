# SPDX-License-Identifier: Apache-2.0
"""Shared code of the checks that call a compiler or a linter.

A check compiles a file with the options of the build and judges the outcome. `run` stores the verdict in
the user's cache. It is valid in every clone, until the command or the content of a file that was read
changes. Failures are never stored.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
KEPT = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "verbspp" / "verdicts"
EXIT_CODES = {"passed": 0, "failed": 1, "skipped": 77}


def compile_command(database, source):
    """The command that compiles a source, without the names of the source and the outputs, and its folder."""
    for entry in json.loads(database.read_text()):
        directory = pathlib.Path(entry["directory"])
        if (directory / entry["file"]).resolve() != source.resolve():
            continue
        command, arguments = [], iter(shlex.split(entry["command"]))
        for argument in arguments:
            if argument in ("-o", "-MF", "-MQ", "-MT", "-c"):
                next(arguments)
            elif argument not in ("-MD", "-MMD", "ccache"):
                command.append(argument)
        return command, directory
    sys.exit(f"{database} has no entry for {source}")


def build(folder, *targets):
    """Builds targets that the default build omits, because only one test needs them. Exits if they do not build."""
    done = subprocess.run(["meson", "compile", "-C", folder, *targets], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def without_precompiled(command):
    """The command without its precompiled header, which may be invalid with other flags."""
    words, kept = iter(command), []
    for word in words:
        if word in ("-include", "-include-pch"):
            next(words)
        elif word != "-fpch-preprocess":
            kept.append(word)
    return kept


def compiler_output(command, directory):
    """Runs a compiler; returns whether it succeeded, its output, and the files that it read."""
    with tempfile.TemporaryDirectory() as folder:
        depfile = pathlib.Path(folder) / "depfile"
        done = subprocess.run(
            ["env", "LC_ALL=C", *command, "-MD", "-MF", depfile],
            cwd=directory, capture_output=True, text=True,
        )
        rule = depfile.read_text().replace("\\\n", " ") if depfile.exists() else ""
    read = [directory / path for path in shlex.split(rule.partition(":")[2])]
    return done.returncode == 0, done.stdout + done.stderr, read


def digest(path):
    """A value that changes with the content of a file; empty if the file does not exist."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def in_any_clone(word):
    """Returns a word of a command, or a path, in a form that is the same in every clone of the project."""
    return str(word).replace(str(TOP), ".")


def keep(path, verdict):
    """Stores a verdict, which other runs may read at the same time. Does nothing if the cache cannot be written."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
            json.dump(verdict, new)
        os.replace(new.name, path)


def run(words, judge):
    """Exits with the verdict: the stored one, or that of judge(). judge() returns the verdict's word, a text, and
    the files on which the verdict depends. `words` are the commands and the names of the checked files."""
    key = json.dumps([in_any_clone(word) for word in words])
    path = KEPT / hashlib.sha256(key.encode()).hexdigest()
    try:
        kept = json.loads(path.read_text())
        stands = all(digest(TOP / name) == was for name, was in kept["files"].items())
    except (OSError, ValueError, KeyError):
        stands = False
    if not stands:
        word, text, files = judge()
        tools = [found for found in map(shutil.which, map(str, words)) if found]
        files = {pathlib.Path(file).resolve() for file in [*files, *tools, sys.argv[0], __file__]}
        kept = {"word": word, "text": text, "files": {in_any_clone(file): digest(file) for file in files}}
        if word != "failed":
            keep(path, kept)
    print(kept["text"])
    sys.exit(EXIT_CODES[kept["word"]])
