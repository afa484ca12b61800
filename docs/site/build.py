#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: the guide and the other pages by mkdocs, the reference by Doxygen, and checks all of it.

    build.py OUTPUT

The pages are those of the tree, at the same places, so that their links work on both sides. Exit code 77 if a program
is missing.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402
import reference  # noqa: E402

ROOT = HERE.parents[1]
AWESOME = pathlib.Path("/usr/share/doxygen-awesome-css")
# The order of the pages; others follow by name.
GUIDE = ["rdma-in-ten-minutes", "tutorial", "cookbook", "asynchronous", "from-libibverbs", "safety", "errors",
         "troubleshooting", "limits", "glossary"]
TOPICS = ["features", "build", "pictures", "queue_pair_states", "exchange", "cm", "groups", "calls", "mistakes", "scale", "benchmark"]
PROJECT = ["docs/design.md", "docs/testing.md", "CONTRIBUTING.md", "CHANGELOG.md"]
SOURCES = (".c", ".cpp", ".h", ".hpp")
# A sample's name in code, which is not the text of a link.
SAMPLE = re.compile(r"(?<!\[)`((?:samples/)?(\d\d_\w+)(?:\.cpp)?)`(?!\])")
REFERENCE = """# Reference

The [reference](reference/index.html) has all types and functions, which Doxygen reads from the headers.

| | |
| --- | --- |
| [Floors](reference/modules.html) | types and functions in groups, from errors up to ranks |
| [Classes](reference/annotated.html), [concepts](reference/concepts.html) | by name |
| [Headers](reference/files.html) | by folder |
| [C calls](reference/calls.html) | the functions of libibverbs and librdmacm, and the functions of verbspp that call them |

The search of this page finds the names of the reference, too.

"""


def title_of(text, path):
    found = re.search(r"^# (.*)$", text, re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else path.stem


def ordered(pages, names):
    """Pages by their place in a list of names, then by name."""
    return sorted(pages, key=lambda page: (names.index(page.stem) if page.stem in names else len(names), page.name))


def linked_sample(found, folder):
    """The name of a sample as a link to its source, for a page in that folder."""
    source = ROOT / "samples" / f"{found[2]}.cpp"
    return f"[`{found[1]}`]({os.path.relpath(source, ROOT / folder)})" if source.is_file() else found[0]


class Pages:
    """The pages of the site, in a folder for mkdocs."""

    def __init__(self, into):
        self.into = into
        self.sources = set()

    def add(self, path):
        """Adds a page of the tree, and the files that it shows. Returns its entry in the navigation."""
        text = (ROOT / path).read_text()
        text = re.sub(r"\A<!-- SPDX-[^\n]*-->\n", "", text)
        # Markdown wants tables in lists further in than GitHub does.
        text = re.sub(r"^ {2,3}(?=\|)", "    ", text, flags=re.MULTILINE)
        text = SAMPLE.sub(lambda found: linked_sample(found, path.parent), text)
        text = re.sub(r"\]\(([^)\s#]+)\)", lambda found: f"]({self.target_of(found[1], path.parent)})", text)
        self.write(path, text)
        return {title_of(text, path): str(path)}

    def write(self, path, text):
        (self.into / path).parent.mkdir(parents=True, exist_ok=True)
        (self.into / path).write_text(text)

    def target_of(self, link, folder):
        """The link as it is, or to a page that shows a source or another text."""
        file = (ROOT / folder / link).resolve()
        if "://" in link or link.endswith((".md", ".html")) or not file.is_file():
            return link
        path = file.relative_to(ROOT)
        if file.suffix == ".svg":
            (self.into / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, self.into / path)
            return link
        language = "cpp" if file.suffix in SOURCES else "text"
        self.write(path.with_name(path.name + ".md"), f"# {path.name}\n\n`{path}`\n\n````{language}\n{file.read_text()}````\n")
        return link + ".md"


def navigation(pages):
    def section(paths):
        return [pages.add(path.relative_to(ROOT)) for path in paths]

    docs = set((ROOT / "docs").glob("*.md")) - {ROOT / path for path in PROJECT}
    softverbs = [page for page in (ROOT / "subprojects/softverbs").rglob("*.md") if "build" not in page.parts]
    pages.write(pathlib.Path("reference.md"), REFERENCE)
    return [
        {"Home": list(pages.add(pathlib.Path("README.md")).values())[0]},
        {"Guide": section(ordered((ROOT / "docs/guide").glob("*.md"), GUIDE))},
        {"Topics": section(ordered(docs, TOPICS))},
        {"softverbs": section(sorted(softverbs, key=lambda page: (len(page.parts), page.name != "README.md", page)))},
        {"Reference": "reference.md"},
        {"Project": section(ROOT / path for path in PROJECT)},
    ]


def html_name(element):
    return element.text if element.text.endswith(".html") else element.text + ".html"


def add_reference_to_search(site, tags):
    """Adds the names of the reference to the search of the guide, and removes the sources of samples from it, which
    contain so many names that they would come before the pages."""
    index = site / "search/search_index.json"
    content = json.loads(index.read_text())
    content["docs"] = [each for each in content["docs"] if not each["location"].startswith("samples/")]
    pages = set()

    def add(page, title, text, anchor=""):
        # The search expects the entry of a page before those of its sections.
        if page not in pages:
            pages.add(page)
            content["docs"].append({"location": f"reference/{page}", "title": title, "text": text})
        if anchor:
            content["docs"].append({"location": f"reference/{page}#{anchor}", "title": title, "text": text})

    compounds = [each for each in xml.etree.ElementTree.parse(tags).getroot() if "::detail" not in each.findtext("name")]
    for compound in compounds:
        if compound.get("kind") == "group":
            title = compound.findtext("title")
            add(html_name(compound.find("filename")), f"{title} (reference)", f"Types and functions of the floor {title}")
    for compound in compounds:
        name, kind = compound.findtext("name"), compound.get("kind")
        if kind not in ("class", "struct", "concept", "namespace"):
            continue
        short = name.removeprefix("verbspp::")
        if kind != "namespace":
            # Words in titles count most. So the names of classes do, and other names come after the pages of the guide.
            title = short if kind in ("class", "struct") and "<" not in short else name
            add(html_name(compound.find("filename")), title, f"Reference: {kind} {short}")
        seen = {short.split("::")[-1].split("<")[0]}
        for member in compound.iter("member"):
            called = member.findtext("name")
            if called not in seen and not called.startswith(("~", "operator")):
                seen.add(called)
                add(html_name(member.find("anchorfile")), f"{name}::{called}",
                    f"Reference: {member.get('kind')} {called} of {short}", member.findtext("anchor"))
    index.write_text(json.dumps(content, separators=(",", ":")))


def build(work, output):
    """Returns the complaints."""
    for program in ("doxygen", "mkdocs"):
        if not shutil.which(program):
            print(f"skipped: {program} is not installed")
            sys.exit(77)
    if not AWESOME.is_dir():
        print("skipped: doxygen-awesome-css is not installed")
        sys.exit(77)
    pages = Pages(work / "pages")
    nav = navigation(pages)
    shutil.copy(HERE / "site.css", work / "pages")
    said = reference.make(ROOT, work, work / "pages", AWESOME)
    if said:
        return [said]
    settings = (f"INHERIT: {HERE / 'mkdocs.yml'}\ndocs_dir: {work / 'pages'}\nsite_dir: {work / 'site'}\n"
                f"theme:\n  custom_dir: {HERE / 'theme'}\nnav: {json.dumps(nav)}\n")
    (work / "mkdocs.yml").write_text(settings)
    done = subprocess.run(["mkdocs", "build", "--quiet", "--config-file", work / "mkdocs.yml"],
                          check=False, capture_output=True, text=True)
    if done.returncode != 0 or done.stdout.strip() or done.stderr.strip():
        return [(done.stdout + done.stderr).strip() or f"mkdocs failed with status {done.returncode}"]
    add_reference_to_search(work / "site", work / "verbspp.tag")
    count, wrong = check.check(work / "site")
    if not wrong:
        shutil.rmtree(output, ignore_errors=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(work / "site", output)
        print(f"{output}: {count}")
    return wrong


def main():
    output = pathlib.Path(sys.argv[1]).resolve()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verbspp-site-") as work:
        wrong = build(pathlib.Path(work), output)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"built in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
