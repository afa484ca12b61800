# SPDX-License-Identifier: Apache-2.0
"""Makes the reference: prepares copies of the headers for Doxygen, and runs it.

Doxygen does not understand all of C++20, and the headers are written for readers of the source, so the copies differ:
each header belongs to the group of its floor, implementation details are left out, and each documented call of
libibverbs or librdmacm is listed.
"""

import pathlib
import re
import subprocess

FLOORS = ["base", "device", "memory", "work", "queue", "qp", "wait", "pool", "hub", "core", "channel", "async",
          "exchange", "group", "cm", "ranks", "calls"]
# Base classes of public ones; other names of the namespace `detail` are left out.
ALIASED = {"outcome"}
C_HEADERS = ["/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"]
STRINGS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|\'\\?.\'')
DETAIL = re.compile(r"^namespace (?:verbspp::)?detail \{\n(.*?)^\}  // namespace (?:verbspp::)?detail\n",
                    re.DOTALL | re.MULTILINE)


def code_of(line):
    """The line without its comment, and without the contents of strings."""
    return STRINGS.sub(lambda found: "" if found[0].startswith("//") else '""', line).rstrip()


def blank(text):
    """As many lines, which are empty."""
    return "\n" * text.count("\n")


def declarations(text):
    """Splits the contents of a namespace into declarations, each with its comment."""
    start = depth = 0
    begun = False
    for line in re.finditer(r"[^\n]*\n", text):
        code = code_of(line[0])
        depth += sum(code.count(each) for each in "{(") - sum(code.count(each) for each in "})")
        begun |= bool(code) and not code.startswith("#")
        if depth == 0 and begun and code.endswith((";", "}")):
            yield text[start:line.end()]
            start, begun = line.end(), False
    yield text[start:]


def public_bases(texts):
    found = set(ALIASED)
    for text in texts:
        found.update(re.findall(r"\bpublic detail::(\w+)", text))
    return found


def without_details(text, kept):
    """Leaves only the named classes in the namespace `detail`."""
    def filtered(match):
        names = "|".join(sorted(kept))
        wanted = re.compile(rf"^(?:class|struct)\b[^;{{]*?\b(?:{names})\b(?:<[^;{{]*>)?(?: final)?\s*(?::[^;{{]*)?\{{",
                            re.MULTILINE)
        body = "".join(each if wanted.search(each) else blank(each) for each in declarations(match[1]))
        if not body.strip():
            return blank(match[0])
        head, tail = (match[0].splitlines()[at] + "\n" for at in (0, -1))
        return head + body + tail
    return DETAIL.sub(filtered, text)


REFUSED = re.compile(r"VERBSPP_DETAIL_(?:REFUSED|OTHERWISE|NO_DEFAULT|NUMBERS_ONLY)\(|\) (?:const)?&{0,2} ?= delete;|^ +void .*= delete;"
                     r"|^ *friend [^({]*$")
# A line after which a declaration can begin.
BOUNDARY = re.compile(r"[;}{]\s*(?://.*)?$|^\s*(?://|#)|^\s*$|^\s*(?:public|protected|private):")


def without_refusals(text):
    """Without hashes, friends, and the functions that are deleted, or exist only to be refused with a sentence."""
    text = re.sub(r"^template <[^\n]*>\nstruct std::hash<.*?^\};\n", lambda found: blank(found[0]), text,
                  flags=re.MULTILINE | re.DOTALL)
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        if lines[number].startswith("#define"):
            while lines[number].endswith("\\"):
                number += 1
        elif REFUSED.search(code_of(lines[number])):
            first = number
            while not BOUNDARY.search(lines[first - 1]):
                first -= 1
            while not code_of(lines[number]).endswith(";"):
                number += 1
            lines[first:number + 1] = [""] * (number + 1 - first)
        number += 1
    return "\n".join(lines)


def without_protected(text):
    """Without the members that are for derived classes of the library."""
    return re.sub(r"^( *) protected:\n.*?(?=^\1 (?:public|private):|^\1\};)", lambda found: blank(found[0]), text,
                  flags=re.MULTILINE | re.DOTALL)


def with_friends(text):
    """Describes the operators that a class has as friends: without a comment, Doxygen links to them and leaves them out."""
    def described(match):
        if match[1].lstrip().startswith("///"):
            return match[0]
        does = "Writes it as text." if "<<" in match[4] else "Compares." if match[4].startswith(("=", "<")) else "Computes."
        return f"{match[1]}\n{match[2]}/** {does} */ {match[3]}{match[4]}"
    return re.sub(r"^(.*)\n( *)((?:\[\[nodiscard\]\] )?friend (?:[^\n;(]|\n)*operator)([^\s(]+)", described, text,
                  flags=re.MULTILINE)


def c_functions():
    found = set()
    for path in map(pathlib.Path, C_HEADERS):
        if path.exists():
            found.update(re.findall(r"\b((?:ibv|rdma)_\w+)\s*\(", path.read_text()))
    return found


def with_calls(text, functions):
    """Adds the C calls that a comment names."""
    def added(match):
        calls = [name for name in dict.fromkeys(re.findall(r"`((?:ibv|rdma)_\w+)", match[0])) if name in functions]
        if not calls or "\\file" in match[0]:
            return match[0]
        indent = re.match(" *", match[0])[0]
        return f"{match[0]}{indent}///\n{indent}/// \\calls {', '.join(calls)}\n"
    return re.sub(r"(?:^ *///(?!<)[^\n]*\n)+", added, text, flags=re.MULTILINE)


def prepared(text, floor, kept, functions):
    text = without_refusals(without_details(text, kept))
    # An inline namespace whose name depends on the program.
    text = re.sub(r"^(inline namespace VERBSPP_DETAIL_\w+ \{|\}  // namespace VERBSPP_DETAIL_\w+)$", "", text, flags=re.MULTILINE)
    # Not a link to a global name.
    text = re.sub(r"(//[^\n`]*[\s(])(::ffff[\w:.]*\w)", r"\1\\\2", text)
    text = with_calls(with_friends(without_protected(text)), functions)
    return re.sub(r"^namespace verbspp \{$(.*)^\}  // namespace verbspp$",
                  rf"namespace verbspp {{ /** \\floor{{{floor}}} */\1/** @}} */ }}", text, count=1, flags=re.DOTALL | re.MULTILINE)


def prepare(root, into):
    """Writes the copies of the headers."""
    texts = {path.relative_to(root / "include"): path.read_text() for path in sorted((root / "include").rglob("*.hpp"))}
    kept, functions = public_bases(texts.values()), c_functions()
    for path, text in texts.items():
        floor = path.parts[1] if len(path.parts) > 2 else path.stem
        text = prepared(text, floor, kept, functions) if floor in FLOORS else without_details(text, kept)
        if "detail" in path.parts and not DETAIL.search(text):
            continue
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def run(command, **more):
    return subprocess.run(command, check=False, capture_output=True, text=True, **more)


def write_theme(work, awesome):
    """The header of the pages, and their menu, from Doxygen's own."""
    run(["doxygen", "-w", "html", "header.html", "footer.html", "unused.css"], cwd=work)
    header = (work / "header.html").read_text()
    scripts = "".join(f'<script type="text/javascript" src="$relpath^{name}"></script>\n' for name in
                      ("doxygen-awesome-darkmode-toggle.js", "doxygen-awesome-fragment-copy-button.js",
                       "doxygen-awesome-paragraph-link.js"))
    begin = ("<script type=\"text/javascript\">\nDoxygenAwesomeDarkModeToggle.init();\n"
             "DoxygenAwesomeFragmentCopyButton.init();\nDoxygenAwesomeParagraphLink.init();\n</script>\n")
    (work / "header.html").write_text(header.replace("</head>", scripts + begin + "</head>"))
    run(["doxygen", "-l", "layout.xml"], cwd=work)
    layout = (work / "layout.xml").read_text()
    for name, title in [("mainpage", "Reference"), ("modules", "Floors")]:
        layout = re.sub(rf'(<tab type="{name}" visible="yes" title=)""', rf'\1"{title}"', layout, count=1)
    layout = layout.replace('<tab type="pages" visible="yes" title="" intro=""/>',
                            '<tab type="user" url="calls.html" title="C calls"/>', 1)
    layout = layout.replace("<navindex>", '<navindex>\n    <tab type="user" url="../index.html" title="Guide"/>', 1)
    (work / "layout.xml").write_text(layout)
    return [f"HTML_HEADER={work}/header.html", f"LAYOUT_FILE={work}/layout.xml",
            f"HTML_EXTRA_STYLESHEET={awesome}/doxygen-awesome.css",
            "HTML_EXTRA_FILES=" + " ".join(f"{awesome}/{name}" for name in (
                "doxygen-awesome-darkmode-toggle.js", "doxygen-awesome-fragment-copy-button.js",
                "doxygen-awesome-paragraph-link.js"))]


def by_call(text):
    """The page of C calls, which Doxygen orders by members, ordered by calls."""
    calls = {}
    begin, end = text.index('<dl class="reflist">'), text.index("</dl>")
    for member, described in re.findall(r"<dt>(.*?)</dt>\n<dd>(.*?)</dd>", text[begin:end], re.DOTALL):
        link = re.search(r'<a class="el" href="[^"]*"[^>]*>.*?</a>', member)[0]
        anchors = "".join(re.findall(r'<a class="anchor" id="[^"]*"></a>', described))
        for name in sorted(set(re.findall(r"\b(?:ibv|rdma)_\w+", re.sub(r"<[^>]*>", " ", described)))):
            calls.setdefault(name, {}).setdefault(re.sub(r"<[^>]*>", "", link), (anchors, link))
            anchors = ""
    rows = "".join(f"<tr><td><code>{name}</code></td><td>{', '.join(anchors + link for anchors, link in members.values())}</td></tr>\n"
                   for name, members in sorted(calls.items()))
    table = f'<table class="doxtable">\n<tr><th>C call</th><th>function or type</th></tr>\n{rows}</table>'
    lost = set(re.findall(r'id="([^"]*)"', text[begin:end])) - set(re.findall(r'id="([^"]*)"', table))
    table += "".join(f'<a class="anchor" id="{each}"></a>' for each in sorted(lost))
    return text[:begin] + table + text[end + len("</dl>"):]


def make(root, work, output, awesome):
    """Makes `output`/reference. Returns Doxygen's warnings, an empty text if there are none."""
    include = work / "include"
    prepare(root, include)
    here = root / "docs/site"
    settings = [f"INPUT={include} {here}/reference.dox", f"STRIP_FROM_PATH={include}", f"STRIP_FROM_INC_PATH={include}",
                f"OUTPUT_DIRECTORY={output}", f"GENERATE_TAGFILE={work}/verbspp.tag", *write_theme(work, awesome)]
    (work / "Doxyfile").write_text((here / "Doxyfile").read_text() + "\n".join(settings) + "\n")
    done = run(["doxygen", "Doxyfile"], cwd=work)
    for page in (output / "reference").glob("*.html"):
        text = page.read_text()
        # Doxygen links to the list of nested classes, even if it has hidden all of them.
        if 'id="nested-classes"' not in text and "#nested-classes" in text:
            page.write_text(re.sub(r'<a href="#nested-classes">Classes</a>(?: &#124;)?', "", text))
    calls = output / "reference/calls.html"
    if calls.exists():
        calls.write_text(by_call(calls.read_text()))
    said = (done.stdout + done.stderr).strip().replace(f"{include}/", "include/")
    return said or ("" if done.returncode == 0 else f"doxygen failed with status {done.returncode}")
