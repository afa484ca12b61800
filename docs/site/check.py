#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a built site: each link inside it leads to a file, and to an anchor of it; each picture exists; no page loads
anything from elsewhere; and no Markdown is left in the text.

    check.py FOLDER
"""

import html
import os
import pathlib
import re
import sys
import urllib.parse

LINK = re.compile(r"""<(\w+)\b[^>]*?\s(href|src)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
ANCHOR = re.compile(r"""\s(?:id|name)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""")
# Tables, blocks of code and links that mkdocs has not recognised.
LEFT = re.compile(r"<p>\s*\||\|\s*---|</?p>\n?```|\]\([\w./#-]+\)")
# Results of Doxygen's search.
RESULT = re.compile(r"'\.\./([\w.-]+\.html)(?:#(\w+))?'")
CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>|<script.*?</script>|<style.*?</style>|<!--.*?-->", re.DOTALL)


def first(found):
    return html.unescape(next((each for each in found if each), ""))


def check(folder):
    """Returns a sentence with the counts, and the complaints."""
    pages = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.rglob("*.html"))}
    anchors = {path: {urllib.parse.unquote(first(each)) for each in ANCHOR.findall(text)} for path, text in pages.items()}
    wrong, inside, outside = [], 0, 0
    exists = {str(path) for path in folder.rglob("*")}

    def look(page, target, anchor, link):
        if str(target) not in exists and target != folder:
            wrong.append(f"{page.relative_to(folder)}: no such file: {link}")
        elif anchor and target in anchors and anchor not in anchors[target]:
            wrong.append(f"{page.relative_to(folder)}: no such anchor: {link}")

    for page, text in pages.items():
        # Its links begin at the top of a server.
        if page == folder / "404.html":
            continue
        text = re.sub(r"<script\b(?![^>]*\ssrc).*?</script>|<!--.*?-->", "", text, flags=re.DOTALL)
        for tag, kind, *quoted in LINK.findall(text):
            link = first(quoted)
            parts = urllib.parse.urlsplit(link)
            if parts.scheme in ("javascript", "data", "mailto") or not link:
                continue
            if parts.scheme or parts.netloc:
                outside += 1
                if kind == "src" or tag == "link":
                    wrong.append(f"{page.relative_to(folder)}: loads from elsewhere: {link}")
                continue
            inside += 1
            path = urllib.parse.unquote(parts.path)
            target = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
            look(page, target, urllib.parse.unquote(parts.fragment), link)
        if "reference" not in page.relative_to(folder).parts[:1]:
            for left in LEFT.finditer(CODE.sub("", text)):
                wrong.append(f"{page.relative_to(folder)}: Markdown in the text: {left[0]!r}")
    for script in sorted((folder / "reference/search").glob("*.js")):
        for name, anchor in RESULT.findall(script.read_text(errors="replace")):
            inside += 1
            look(script, folder / "reference" / name, anchor, name + (f"#{anchor}" if anchor else ""))
    if not inside:
        wrong.append(f"{folder} has no links")
    return f"{len(pages)} pages, {inside} links inside the site, {outside} to others", wrong


def main():
    counts, wrong = check(pathlib.Path(sys.argv[1]).resolve())
    print(counts)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
