# SPDX-License-Identifier: Apache-2.0
"""What the checks share that call a compiler or a linter themselves.

A check compiles a file with the real options of the build and judges the outcome. That
takes a second or so each; so a verdict is kept, and stands until the command or one of
the files that were read changes. A verdict of failure is never kept.
"""

import argparse
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

EXIT_CODES = {"passed": 0, "failed": 1, "skipped": 77}


def parse_arguments(description):
    """The arguments of every check: what is checked, where the options are, where the verdict goes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--database", type=pathlib.Path, required=True, help="compile_commands.json")
    parser.add_argument("--verdict", type=pathlib.Path, required=True, help="where it is kept")
    parser.add_argument("--tool", default="", help="the linter")
    return parser.parse_args()


def compile_command(database, source):
    """The command that compiles a source, without the source and what it writes, and its folder."""
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
    """Builds targets that only one test needs, so the default build leaves them out. Ends if they do not build."""
    done = subprocess.run(["meson", "compile", "-C", folder, *targets], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def without_precompiled(command):
    """The same command without its precompiled header, which fits no other flags than its own."""
    words, kept = iter(command), []
    for word in words:
        if word in ("-include", "-include-pch"):
            next(words)
        elif word != "-fpch-preprocess":
            kept.append(word)
    return kept


def compiler_output(command, directory):
    """Runs a compiler; returns whether it succeeded, what it said, and the files that it read."""
    with tempfile.TemporaryDirectory() as folder:
        depfile = pathlib.Path(folder) / "depfile"
        done = subprocess.run(
            ["env", "LC_ALL=C", *command, "-MD", "-MF", depfile],
            cwd=directory, capture_output=True, text=True,
        )
        rule = depfile.read_text().replace("\\\n", " ") if depfile.exists() else ""
    read = [directory / path for path in shlex.split(rule.partition(":")[2])]
    return done.returncode == 0, done.stdout + done.stderr, read


def stamps(paths):
    """What tells whether one of the files has changed."""
    return {str(path): [path.stat().st_mtime_ns, path.stat().st_size] for path in paths}


def kept_verdict(path, command):
    """The verdict of an earlier run, if it still stands."""
    try:
        kept = json.loads(path.read_text())
        files = stamps(map(pathlib.Path, kept["files"]))
    except (OSError, ValueError):
        return None
    return kept if kept["command"] == command and kept["files"] == files else None


def run(options, command, judge):
    """Exits with the verdict: the kept one, or that of judge(), which returns the word for it, a
    text, and the files that it depends on."""
    command = [str(word) for word in command]
    kept = kept_verdict(options.verdict, command)
    if kept is None:
        word, text, files = judge()
        kept = {"word": word, "text": text, "command": command}
        compiler = pathlib.Path(shutil.which(command[0]))
        scripts = [pathlib.Path(sys.argv[0]), pathlib.Path(__file__)]
        kept["files"] = stamps({path.resolve() for path in [options.source, compiler, *scripts, *files]})
        options.verdict.unlink(missing_ok=True)
        if word != "failed":
            options.verdict.write_text(json.dumps(kept))
    print(kept["text"])
    sys.exit(EXIT_CODES[kept["word"]])
