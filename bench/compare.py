#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares verbspp with raw C: runs the loops, counts and times them, prints a table.

callgrind counts instructions, in the loop and in all functions that it calls except those of the null
device; the counts are the same in each run. Times are medians over rounds, in each of which every loop
runs once. The device counts doorbells, completions and locks.
"""

import argparse
import collections
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

CASES = {
    "write": "(a) RDMA write, poll",
    "send": "(b) 16 sends, wait",
    "receive": "(c) receive, poll",
    "list": "(d) 16 in one doorbell",
    "extended": "(e) extended interface",
    "checked": "(f) (a), all checked",
    "stream": "(g) (b), all checked",
    "pending": "(h) channel, post, wait",
    "blocking": "(i) channel, blocking",
    "scope": "(j) scope of 16 sends",
    "doorbell": "(k) (j), one doorbell",
    "unsignaled": "(l) every 16th signaled",
    "owned": "(m) owned buffer",
    "inbox": "(n) receives in bulk",
    "limited": "(o) (i), its own limit",
    "usual_write": "(1) write, blocking",
    "usual_within": "(2) (1), its own limit",
    "usual_pending": "(3) one handle",
    "usual_vector": "(4) 16 in a vector",
    "usual_scope": "(5) scope of 16",
    "usual_stream": "(6) stream",
    "usual_owned": "(7) owned buffer",
    "usual_shared": "(8) shared buffer",
    "usual_put": "(9) (1) by a helper",
    "usual_message": "(10) message of a pool",
    "usual_receive": "(11) inbox, a message",
    "usual_one_busy": "(12) hub, 1 of 64 busy",
    "usual_all_busy": "(13) hub, all 64 busy",
    "usual_awaited": "(14) in a coroutine",
    "usual_call": "(15) call, the caller",
    "usual_answer": "(16) call, the service",
}
# The cases that have the same C code as another case.
RAW = {"pending": "write", "blocking": "write", "limited": "write", "scope": "send", "doorbell": "list",
       "usual_awaited": "usual_write", "usual_answer": "usual_call"}
# The cases for which there is also a loop with prebuilt requests.
PREBUILT = ["write", "send", "receive", "list"]
VARIANTS = ["raw", "verbspp", "prebuilt"]
DEVICE = "libnullverbs"
BATCH = 16
# The allowed ratios to the instructions of raw C, if they are above 1.00: a channel also tracks the requests in
# flight, and an inbox takes each place from a pool that threads share, and returns it.
MOST = {"pending": 1.5, "blocking": 1.5, "limited": 1.5, "scope": 1.75, "doorbell": 1.75,
        "unsignaled": 1.25, "owned": 1.75, "inbox": 7.0}
# The prefix of the loops over functions as users write them (usual.h). Their rows have numbers instead of letters.
USUAL = "usual_"


class Limit(typing.NamedTuple):
    """The allowed number of instructions of a function as users write it, compared with its C version."""
    # "ratio": the ratio to C; "more": the difference from C; "more_than_default": the difference from the blocking
    # write of verbspp, (1), which has the default time limit; "all": the number itself
    measure: str
    most: float


LIMITS = {
    "usual_write": Limit("ratio", 1.25),
    "usual_within": Limit("more_than_default", 2),
    "usual_pending": Limit("ratio", 1.25),
    "usual_vector": Limit("ratio", 1.5),
    "usual_scope": Limit("ratio", 1.25),
    "usual_stream": Limit("ratio", 1.25),
    "usual_owned": Limit("ratio", 1.25),
    "usual_shared": Limit("ratio", 1.5),
    "usual_put": Limit("ratio", 1.25),
    "usual_message": Limit("more", 60),
    "usual_receive": Limit("more", 60),
    "usual_one_busy": Limit("more", 60),
    "usual_all_busy": Limit("more", 60),
    "usual_awaited": Limit("more", 110),
    "usual_call": Limit("all", 600),
    "usual_answer": Limit("all", 600),
}
# The counts of the device. verbspp's counts must not exceed those of raw C.
OF_DEVICE = ["doorbells", "completions", "locks"]


def read_profile(path):
    """Returns the name of the loop in a profile, and the instructions of each function, without those of the device
    and of the functions that it calls."""
    name, function, spent = None, None, collections.Counter()
    in_device, called, leaves_object, cost_of_call = False, None, False, False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            in_device = DEVICE in line
        elif line.startswith("fn="):
            function = line.removeprefix("fn=")
            if function.startswith("loop_"):
                # clang's function names include the parameters, and those of lambdas the function around them.
                name = function.removeprefix("loop_").partition("(")[0].partition("::")[0]
        elif line.startswith("cob="):
            leaves_object = True
        elif line.startswith("cfn="):
            called = line.removeprefix("cfn=")
        elif line.startswith("calls="):
            cost_of_call = True
        elif line[:1].isdigit():
            cost = int(line.split()[1])
            if not cost_of_call and not in_device:
                spent[function] += cost
            # The line after a call is its cost, which the profile counts again in the callee. The device calls
            # only functions of libc, such as memcpy.
            if cost_of_call and in_device and leaves_object:
                spent[called] -= cost
            cost_of_call = leaves_object = False
    return name, spent


def count(program, names, batches):
    """Returns, for each loop's name, the instructions per operation of each function: the difference between a
    run and another one of twice the length."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no",
                   f"--callgrind-out-file={folder}/profile",
                   "--toggle-collect=measured", "--dump-after=measured",
                   program, "count", str(batches)]
        done = subprocess.run(command, capture_output=True, text=True,
                              env={**os.environ, "LD_BIND_NOW": "1"})
        if done.returncode != 0:
            sys.exit(f"callgrind failed with status {done.returncode}:\n{done.stderr}")
        counted = {name: [] for name in names}
        parts = pathlib.Path(folder).glob("profile.*")
        for part in sorted(parts, key=lambda path: int(path.suffix[1:])):
            name, spent = read_profile(part)
            if name:
                counted[name].append(spent)
    for name, runs in counted.items():
        if len(runs) != 2:
            sys.exit(f"callgrind has not counted {name} twice")
    return {name: {function: (long[function] - short[function]) / (batches * BATCH) for function in long}
            for name, (short, long) in counted.items()}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)} failed with status {done.returncode}")
    return done.stdout.splitlines()


def measure(compiler, program, options):
    """Returns a row for each loop of one compiler's program."""
    names = run(program, "list")
    raw = {case: f"raw_{RAW.get(case, case)}" for case in CASES}
    loops = [(case, "raw", name) for case, name in raw.items()]
    loops += [(case, "verbspp", f"verbspp_{case}") for case in CASES]
    loops += [(case, "prebuilt", f"prebuilt_{case}") for case in PREBUILT]
    loops += [("write", "planted", "planted_write")]
    wanted = {name for _, _, name in loops}
    if set(names) != wanted:
        sys.exit(f"{program} has additional loops, or lacks some: {' '.join(sorted(set(names) ^ wanted))}")
    timed = {}
    for line in run(program, "time", str(options.rounds), str(options.batches)):
        name, *figures = line.split()
        timed[name] = dict(zip(["nanoseconds", "allocations", *OF_DEVICE], map(float, figures)))
    spent = count(program, names, options.counted_batches)
    counted = {name: sum(functions.values()) for name, functions in spent.items()}
    for name in options.functions:
        show_functions(f"{compiler}, {name}", spent[name])
    rows = []
    for case, variant, name in loops:
        base = raw[case]
        rows.append({
            "compiler": compiler, "case": case, "variant": variant,
            "instructions": counted[name], "instructions_ratio": counted[name] / counted[base],
            "nanoseconds_ratio": timed[name]["nanoseconds"] / timed[base]["nanoseconds"],
            **timed[name],
        })
    return rows


def show_functions(title, functions):
    print(f"\n{title}: instructions per operation of each function")
    for function, instructions in sorted(functions.items(), key=lambda each: -each[1]):
        if instructions >= 0.5:
            print(f"{instructions:10.2f}  {function}")


def show(rows):
    for compiler in dict.fromkeys(row["compiler"] for row in rows):
        print(f"\n{compiler}, per operation")
        print(f"{'':24}{'':10}{'instructions':>14}{'ratio':>8}{'ns':>10}{'ratio':>8}{'allocations':>13}"
              + "".join(f"{each:>13}" for each in OF_DEVICE))
        for case, title in CASES.items():
            for row in rows:
                if (row["compiler"], row["case"]) == (compiler, case) and row["variant"] in VARIANTS:
                    print(f"{title:24}{row['variant']:10}"
                          f"{row['instructions']:14.2f}{row['instructions_ratio']:8.2f}"
                          f"{row['nanoseconds']:10.2f}{row['nanoseconds_ratio']:8.2f}"
                          f"{row['allocations']:13g}"
                          + "".join(f"{row[each]:13.2f}" for each in OF_DEVICE))
                    title = ""


def figures(rows):
    """Yields, for each function as users write it, the compiler, the case, the figure, and its limit."""
    counted = {(row["compiler"], row["case"], row["variant"]): row["instructions"] for row in rows}
    for (compiler, case, variant), instructions in counted.items():
        if variant != "verbspp" or case not in LIMITS:
            continue
        limit = LIMITS[case]
        of_raw = counted[compiler, case, "raw"]
        yield compiler, case, {
            "ratio": instructions / of_raw,
            "more": instructions - of_raw,
            "all": instructions,
            "more_than_default": instructions - counted[compiler, f"{USUAL}write", "verbspp"],
        }[limit.measure], limit


def show_limits(rows):
    """Shows the figures of the functions as users write them that have limits, and which limits are met."""
    compiler_before = None
    for compiler, case, figure, limit in figures(rows):
        if compiler != compiler_before:
            print(f"\n{compiler}, limits\n{'':24}{'':18}{'today':>10}{'limit':>8}")
        compiler_before = compiler
        what = {"ratio": "ratio", "more": "more than the C", "more_than_default": "more than (1)", "all": "all"}
        print(f"{CASES[case]:24}{what[limit.measure]:18}{figure:10.2f}{limit.most:8.2f}  "
              f"{'met' if figure <= limit.most else 'not met'}")


def problems(rows):
    """Yields all violations. The planted loop allocates memory, so it must exceed the limits for instructions and
    allocations. If it does not, that is a violation as well."""
    raw = {(row["compiler"], row["case"]): row for row in rows if row["variant"] == "raw"}
    for compiler, case, figure, limit in figures(rows):
        if figure > limit.most:
            yield (f"{compiler}: verbspp, {CASES[case]}: {limit.measure.replace('_', ' ')} "
                   f"{figure:.3f}, above {limit.most:g}")
    for row in rows:
        what = f"{row['compiler']}: {row['variant']}, {CASES[row['case']]}"
        too_many = row["instructions_ratio"] > MOST.get(row["case"], 1.0)
        allocates = row["allocations"] != 0
        if row["variant"] == "planted":
            if not too_many or not allocates:
                yield f"{what}: its allocations were not noticed"
        elif row["variant"] == "verbspp" and too_many and row["case"] not in LIMITS:
            yield f"{what}: {row['instructions_ratio']:.3f} times the instructions of raw C"
        for each in OF_DEVICE:
            of_raw = raw[row["compiler"], row["case"]][each]
            if row[each] > of_raw:
                yield f"{what}: {row[each]:g} {each} for each operation, in raw C {of_raw:g}"
        if row["variant"] != "planted" and allocates:
            yield f"{what}: {row['allocations']:g} allocations for each operation"


def write_csv(rows, path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(row for row in rows if row["variant"] in VARIANTS)


def write_svg(rows, path):
    """Draws bars of verbspp's ratios in the cases with letters, by instructions and time, with a line for raw C."""
    bars = [row for row in rows
            if row["variant"] == "verbspp" and not row["case"].startswith(USUAL)]
    measures = {"instructions_ratio": "#3465a4", "nanoseconds_ratio": "#b0b8c0"}
    left, top, width, height = 60, 50, 84, 240
    highest = 1.25 * max(1.0, *(row[measure] for row in bars for measure in measures))
    y = lambda ratio: top + height * (1 - ratio / highest)
    right = left + width * len(bars)
    text = ['<text x="{}" y="20">verbspp, relative to raw C (1.00)</text>'.format(left)]
    for index, (measure, colour) in enumerate(measures.items()):
        x = left + 130 * index
        text += [f'<rect x="{x}" y="28" width="10" height="10" fill="{colour}"/>',
                 f'<text x="{x + 14}" y="38">{measure.removesuffix("_ratio")}</text>']
    for index, row in enumerate(bars):
        x = left + width * index
        for number, (measure, colour) in enumerate(measures.items()):
            at = x + 6 + 36 * number
            text += [f'<rect x="{at}" y="{y(row[measure]):.1f}" width="34" '
                     f'height="{top + height - y(row[measure]):.1f}" fill="{colour}"/>',
                     f'<text x="{at + 17}" y="{y(row[measure]) - 4:.1f}" '
                     f'text-anchor="middle">{row[measure]:.2f}</text>']
        for line, label in enumerate([CASES[row["case"]][:3] + " " + row["case"], row["compiler"]]):
            text.append(f'<text x="{x + 42}" y="{top + height + 16 + 14 * line}" '
                        f'text-anchor="middle">{label}</text>')
    text.append(f'<line x1="{left}" x2="{right}" y1="{y(1):.1f}" y2="{y(1):.1f}" stroke="#a40000"/>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 20}" height="{top + height + 50}" '
        'font-family="sans-serif" font-size="11">\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n'
        '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(text) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+", metavar="COMPILER=PROGRAM")
    parser.add_argument("--check", action="store_true",
                        help="fail if verbspp allocates memory, or exceeds a limit for instructions, doorbells, "
                        "completions or locks")
    parser.add_argument("--rounds", type=int, default=201)
    parser.add_argument("--batches", type=int, default=500, help="batches of 16 operations that are timed in a round")
    parser.add_argument("--counted-batches", type=int, default=10)
    parser.add_argument("--output", type=pathlib.Path, help="folder for ratios.csv and ratios.svg")
    parser.add_argument("--functions", action="append", default=[], metavar="LOOP",
                        help="show the instructions of each function that this loop calls, such as "
                        "verbspp_usual_write; may be repeated")
    options = parser.parse_args()

    rows = []
    for argument in options.programs:
        compiler, _, program = argument.partition("=")
        rows += measure(compiler, program, options)
    show(rows)
    show_limits(rows)
    found = list(problems(rows)) if options.check else []
    print(*["", *found], sep="\n" if found else "")
    if options.output:
        write_csv(rows, options.output / "ratios.csv")
        write_svg(rows, options.output / "ratios.svg")
        print(options.output / "ratios.csv", options.output / "ratios.svg", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
