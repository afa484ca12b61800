# SPDX-License-Identifier: Apache-2.0
"""Checks that the messages quoted in docs/mistakes.md are in the sources.

    mistakes.py ROOT
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
# The points at which a message in the documentation may be split, because the library joins it from several literals.
SEPARATOR = re.compile(r'\.\.\.|soft0|\d[\d.:]*|"[^"]*"|[:;,()] | \(| differs| a signed integer of')
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def words(text):
    """Replaces runs of white space by a blank."""
    return " ".join(text.split())


def known():
    """The string literals of the library, with adjacent ones joined, and the messages expected of compilers."""
    texts = []
    for folder in ("include", "lib"):
        for path in sorted((ROOT / folder).rglob("*.[hc]pp")):
            source = re.sub(r'"\s*\n\s*"', "", path.read_text())
            texts += [re.sub(r"\\(.)", r"\1", found) for found in LITERAL.findall(source)]
    for path in sorted((ROOT / "test/compile_fail").glob("*.cpp")):
        texts.append(" ".join(re.findall(r"// expect(?:-\w+)?: (.*)", path.read_text())))
    return words("\n".join(texts))


def pieces(quoted):
    """The parts of a message that the sources contain literally, which excludes numbers, names and errnos."""
    quoted = re.sub(r"[A-Z][a-z/ ]+ \(E[A-Z]+\)", "...", words(quoted))
    return [piece.strip() for piece in SEPARATOR.split(quoted) if len(piece.strip()) >= 12]


def main():
    text = (ROOT / "docs/mistakes.md").read_text()
    found = re.findall(r"^(\d+)\. .*?\n\n((?: {7,}[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    numbers = [int(number) for number, _ in found]
    if numbers != list(range(1, 31)):
        sys.exit(f"docs/mistakes.md: these mistakes quote messages, but all thirty should: {numbers}")
    sources = known()
    unknown = []
    for number, quoted in found:
        parts = pieces(quoted)
        missing = [piece for piece in parts if piece not in sources]
        if missing or not parts:
            unknown.append(f"docs/mistakes.md: mistake {number} quotes text that no source contains: {missing}")
    if unknown:
        sys.exit("\n".join(unknown))


if __name__ == "__main__":
    main()
