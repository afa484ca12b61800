#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site, and checks it in headless Chromium: pages, code, search and pictures, in light and dark colours, and in
windows of the size of a telephone and of a desktop. Without Chromium these tests are skipped.

    site_test.py ROOT [--screenshots FOLDER]

The last line contains the numbers of passed, failed and skipped tests.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(sys.argv[1]).resolve()
SCREENSHOTS = pathlib.Path(sys.argv[3]) if sys.argv[2:3] == ["--screenshots"] else None
sys.path[:0] = [str(ROOT / "docs/site"), str(pathlib.Path(__file__).resolve().parent)]
import browser  # noqa: E402
import check  # noqa: E402
import reference  # noqa: E402

TELEPHONE, DESK = (390, 800), (1300, 900)
AWESOME = pathlib.Path("/usr/share/doxygen-awesome-css")
PAGE = "docs/guide/tutorial.html"
LOOKS = [(scheme, name, size) for scheme in ("light", "dark") for name, size in (("telephone", TELEPHONE), ("desk", DESK))]
# Two looks, in which each colour scheme and each window size occurs once.
TWO_LOOKS = [LOOKS[1], LOOKS[2]]
CLASS = "reference/classverbspp_1_1completion__queue.html"
HEADER = """namespace verbspp {{
/// Is one.
/// {comment}
int {name}();
namespace detail {{
int two();
}}  // namespace detail
}}  // namespace verbspp
"""
# The brightness of a colour (0 to 1) and the contrast of two colours (1 to 21), as WCAG defines them.
COLOURS = """
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const brightness = colour => parts(colour).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [brightness(a), brightness(b)].sort((p, q) => q - p);
                               return (x + 0.05) / (y + 0.05); };
  const behind = node => { for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (parts(colour).length < 4 || parts(colour)[3] > 0.5) return colour; }
    return 'rgb(255, 255, 255)'; };
"""


def script(text):
    return f"(() => {{ {COLOURS} {text} }})()"


class Checks(unittest.TestCase):
    """The checks of the build find mistakes."""

    def problems(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (pathlib.Path(folder) / f"{name}.html").write_text(text)
            return check.check(pathlib.Path(folder))[1]

    def test_wrong_links_are_found(self):
        good = '<a href="b.html#there">b</a><p id="here">'
        self.assertEqual(self.problems(a=good, b='<h1 id="there"><a href="a.html#here">a</a>'), [])
        for a, wrong in [
            ('<a href="c.html">', "a.html: no such file: c.html"),
            ('<a class=x href=b.html#nowhere>', "a.html: no such anchor: b.html#nowhere"),
            ('<a href="#nowhere">', "a.html: no such anchor: #nowhere"),
            ('<a href="b.html"><img src="c.svg">', "a.html: no such file: c.svg"),
            ('<a href="b.html"><script src="https://x.org/y.js"></script>',
             "a.html: loads from elsewhere: https://x.org/y.js"),
            ('<a href="b.html"><p>| a | b |</p>', "a.html: Markdown in the text: '<p>|'"),
        ]:
            self.assertEqual(self.problems(a=a, b='<a href="a.html">'), [wrong])
        self.assertEqual(len(self.problems(a="no links")), 1)

    def warnings(self, comment):
        with tempfile.TemporaryDirectory() as folder:
            root, work = pathlib.Path(folder) / "root", pathlib.Path(folder) / "work"
            (root / "include/verbspp/base").mkdir(parents=True)
            work.mkdir()
            shutil.copytree(ROOT / "docs/site", root / "docs/site")
            for floor in reference.FLOORS:
                (root / f"include/verbspp/{floor}.hpp").write_text(HEADER.format(comment="Is more.", name=f"{floor}_1"))
            (root / "include/verbspp/base/one.hpp").write_text(HEADER.format(comment=comment, name="one"))
            # Removes the links of the first page, because the pages to which they lead are missing here.
            first = root / "docs/site/reference.dox"
            first.write_text(first.read_text().replace("](", "] ("))
            said = reference.make(root, work, work, AWESOME)
            made = work / "reference/group__base.html"
            return said, made.read_text() if made.exists() else ""

    @unittest.skipUnless(shutil.which("doxygen") and AWESOME.is_dir(), "doxygen and doxygen-awesome-css are not installed")
    def test_warnings_of_doxygen_are_errors(self):
        said, text = self.warnings("Calls `ibv_poll_cq`.")
        self.assertEqual(said, "")
        self.assertIn("one", text)
        self.assertIn("C call", text)
        self.assertNotIn("two", text)
        self.assertIn("one.hpp:3", self.warnings("Is \\unknown.")[0])


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="verbspp-site-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.site = pathlib.Path(cls.folder.name) / "site"
        done = subprocess.run([sys.executable, ROOT / "docs/site/build.py", cls.site],
                              check=False, capture_output=True, text=True)
        print(done.stdout + done.stderr, end="")
        if done.returncode == 77:
            raise unittest.SkipTest(done.stdout.strip().removeprefix("skipped: "))
        if done.returncode != 0:
            raise RuntimeError("the site is not built")
        if not browser.program():
            raise unittest.SkipTest("chromium is not installed")
        cls.server = browser.Server(cls.site)
        cls.addClassCleanup(cls.server.close)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.problems.clear()
        self.browser.requests.clear()

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])
        here = (self.server.address, "data:", "about:", "blob:")
        self.assertEqual([each for each in self.browser.requests if not each.startswith(here)], [])

    def open(self, page, size=DESK, scheme="light"):
        self.browser.look(*size, scheme)
        self.browser.open(f"{self.server.address}/{page}")

    def shoot(self, name):
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(SCREENSHOTS / f"{name}.png")

    def assert_scheme(self, scheme):
        brightness = self.browser.evaluate(script("return brightness(behind(document.querySelector('article, .contents')))"))
        self.assertTrue(brightness < 0.1 if scheme == "dark" else brightness > 0.8, brightness)

    def contrast(self, selector):
        """The contrast of a text with its background."""
        return self.browser.evaluate(script(f"const text = document.querySelector({selector!r});"
                                            "return contrast(getComputedStyle(text).color, behind(text))"))

    def test_page(self):
        for scheme, name, size in LOOKS:
            self.open(PAGE, size, scheme)
            self.shoot(f"page-{name}-{scheme}")
            self.assertEqual(self.browser.evaluate("document.querySelector('h1').firstChild.textContent"), "Tutorial")
            self.assert_scheme(scheme)
            # The page's content is not wider than the window.
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), size[0])
            self.assertGreater(self.contrast("article p"), 7)
            self.assertGreater(self.contrast("article p a"), 4.5)

    def test_code_block(self):
        for scheme, name, size in TWO_LOOKS:
            self.open(PAGE, size, scheme)
            keyword = "document.querySelector('.highlight .k')"
            self.browser.evaluate(f"{keyword}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
            self.shoot(f"code-{name}-{scheme}")
            self.assertIn("VERBSPP_TRY", self.browser.evaluate(f"{keyword}.closest('code').textContent"))
            colours = self.browser.evaluate(script(f"""
              const found = {{}};
              for (const span of {keyword}.closest('code').querySelectorAll('span'))
                if (span.textContent.trim() && !span.children.length)
                  found[getComputedStyle(span).color] = contrast(getComputedStyle(span).color, behind(span));
              return found;"""))
            self.assertGreaterEqual(len(colours), 3, colours)
            self.assertGreater(min(colours.values()), 3, colours)

    def test_reference(self):
        for scheme, name, size in LOOKS:
            self.open(CLASS, size, scheme)
            self.browser.wait_for("document.querySelector('.memitem')")
            self.shoot(f"reference-{name}-{scheme}")
            self.assertIn("completion_queue", self.browser.evaluate("document.querySelector('.title').textContent"))
            self.assert_scheme(scheme)
            self.assertIn("ibv_create_cq", self.browser.evaluate("document.querySelector('dl.calls').textContent"))
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), size[0])

    def test_reference_is_in_the_navigation(self):
        self.open(PAGE)
        self.browser.click("[...document.querySelectorAll('.md-nav--primary a')]"
                           ".find(each => each.textContent.trim() == 'Reference')")
        self.browser.wait_for("location.pathname == '/reference.html' && document.readyState == 'complete'")
        self.browser.click("document.querySelector('article a[href=\"reference/index.html\"]')")
        self.browser.wait_for("location.pathname == '/reference/index.html' && document.readyState == 'complete'")
        self.browser.click("document.querySelector('.contents a[href=\"group__memory.html\"]')")
        self.browser.wait_for("location.pathname == '/reference/group__memory.html' && document.readyState == 'complete'")

    def search(self, words):
        """Types into the search, and returns the addresses of the results."""
        # The page ignores keys that are pressed before it has loaded the search index.
        meta = "document.querySelector('.md-search-result__meta').textContent.trim()"
        self.browser.wait_for(f"{meta} && !{meta}.includes('Initializing')")
        self.browser.click("document.querySelector('label[for=__search]')")
        self.browser.wait_for("document.querySelector('[data-md-toggle=search]').checked")
        self.browser.type("[data-md-component=search-query]", words)
        self.browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 0")
        return self.browser.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(a => new URL(a.href).pathname)")

    def test_search(self):
        for scheme, name, size in TWO_LOOKS:
            self.open("index.html", size, scheme)
            found = self.search("owned borrowed")
            self.shoot(f"search-{name}-{scheme}")
            self.assertTrue(any(each.startswith("/docs/guide/") for each in found), found)
            self.assertGreater(self.contrast(".md-search-result__item :is(h1, h2)"), 4.5)
        self.browser.click("document.querySelector('.md-search-result__link')")
        self.browser.wait_for(f"location.pathname == {found[0]!r} && document.readyState == 'complete'")

    def test_search_finds_the_reference(self):
        self.open("index.html")
        found = self.search("completion_queue")
        self.assertIn("/" + CLASS, found)

    def test_search_understands_names_of_cpp(self):
        self.open("index.html")
        found = self.search("message_pool::take")
        self.assertTrue(found[0].startswith("/reference/classverbspp_1_1message__pool"), found)
        self.open("index.html")
        self.assertIn("/docs/guide/cookbook.html", self.search("std::vector"))

    def test_search_of_the_reference(self):
        for scheme, name, size in TWO_LOOKS:
            self.open("reference/index.html", size, scheme)
            self.browser.wait_for("document.querySelector('#MSearchField')")
            self.browser.type("#MSearchField", "completion_queue")
            results = "document.querySelector('#MSearchResults').contentDocument"
            self.browser.wait_for(f"{results} && [...{results}.querySelectorAll('.SRResult')].some(each => each.offsetHeight > 0"
                                  " && each.textContent.includes('completion_queue'))")
            self.shoot(f"search-reference-{name}-{scheme}")

    def test_reader_chooses_dark(self):
        self.open(PAGE)
        self.browser.click("document.querySelector('label[for=__palette_2]:not([hidden])')")
        self.browser.wait_for("document.body.getAttribute('data-md-color-scheme') == 'slate'")
        self.open("reference/index.html")
        self.browser.click("document.querySelector('doxygen-awesome-dark-mode-toggle')")
        self.browser.wait_for("document.documentElement.classList.contains('dark-mode')")

    def test_pictures(self):
        for scheme, name, size in TWO_LOOKS:
            self.open("docs/pictures.html", size, scheme)
            self.shoot(f"pictures-{name}-{scheme}")
            pictures = self.browser.evaluate("[...document.querySelectorAll('article img')].map(each => "
                                             "[each.src, each.naturalWidth, each.clientWidth, getComputedStyle(each).colorScheme])")
            self.assertGreaterEqual(len(pictures), 5)
            for address, natural, width, colours in pictures:
                self.assertTrue(0 < width <= min(natural, size[0]), address)
                self.assertEqual(colours, scheme)
                self.open(address.removeprefix(self.server.address + "/"), size, scheme)
                ground = "getComputedStyle(document.querySelector('.page, .graph > polygon')).fill"
                brightness = self.browser.evaluate(script(f"return brightness({ground})"))
                self.assertTrue(brightness < 0.1 if scheme == "dark" else brightness > 0.8, address)
                text = self.browser.evaluate(script(
                    "return Math.min(...[...document.querySelectorAll('text')].map("
                    f"each => contrast(getComputedStyle(each).fill, {ground})))"))
                self.assertGreater(text, 4.5, address)


class Outcome(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def name_of(test):
    """The name of a test, or of the class whose tests cannot begin."""
    return test.id().removeprefix("setUpClass (").removesuffix(")").removeprefix("__main__.")


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Outcome).run(suite)
    for test, reason in outcome.skipped:
        print(f"skipped: {name_of(test)} ({reason})")
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.passed} passed, {failed} failed, {len(outcome.skipped)} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
