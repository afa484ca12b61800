# SPDX-License-Identifier: Apache-2.0
"""Checks the README, the guide and other pages: their code, their links, and the list of samples.

    guide.py ROOT

Each block of C or C++ has to be in a source that the build compiles: a sample, or the code of the guide.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(sys.argv[1])
# The mark between lines of one block that are not adjacent in the source.
GAP = re.compile(r"^\s*// \.\.\.\n", re.MULTILINE)


def is_in(block, source):
    """Returns whether the source contains the block, indented by up to ten spaces."""
    return any(textwrap.indent(block, " " * depth) in source for depth in range(0, 12, 2))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def wrong_links(page):
    """The links of a page to files or headings that do not exist."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{page.relative_to(ROOT)}: this link leads nowhere: {link}"


def wrong_code(page, sources):
    """The blocks of code of a page that no source has."""
    for block in re.findall(r"^```(?:cpp|c)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for part in GAP.split(block):
            if not any(is_in(part.strip("\n"), source) for source in sources):
                yield f"{page.relative_to(ROOT)}: no source has this code:\n{part}"


def wrong_samples(page):
    """The difference between the samples, and those that the page names."""
    there = sorted(path.stem for path in (ROOT / "samples").glob("[0-9]*.cpp"))
    named = sorted(re.findall(r"^\| `(\w+)` \|", page.read_text(), re.MULTILINE))
    if named != there:
        yield f"{page.relative_to(ROOT)} names the samples {named}; these exist: {there}"


def not_built():
    """The sources of the guide that the build does not compile."""
    listed = (ROOT / "docs/meson.build").read_text()
    for path in sorted((ROOT / "docs/guide/code").glob("*.cpp")):
        if f"'guide/code/{path.name}'" not in listed:
            yield f"docs/meson.build does not list guide/code/{path.name}"


def main():
    readme, features = ROOT / "README.md", ROOT / "docs/features.md"
    guide = sorted((ROOT / "docs/guide").glob("*.md"))
    sources = [path.read_text() for folder in ("samples", "docs/guide/code")
               for path in sorted((ROOT / folder).rglob("*.cpp"))]
    wrong = [*wrong_samples(features), *not_built()]
    for page in [readme, ROOT / "docs/queue_pair_states.md", ROOT / "docs/calls.md", *guide]:
        wrong += wrong_code(page, sources)
    for page in [readme, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *guide]:
        wrong += wrong_links(page)
    if wrong:
        sys.exit("\n".join(wrong))
    blocks = re.findall(r"^```cpp\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)
    if len(blocks) != 1 or not (ROOT / "samples/00_quick_start.cpp").read_text().endswith(blocks[0]):
        sys.exit("README.md: its program differs from samples/00_quick_start.cpp")


if __name__ == "__main__":
    main()
