#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks scripts/plain-english: it finds planted sentences in each kind of prose, and keeps its limits.

    english_test.py PLAIN_ENGLISH
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)

# For each pattern, a sentence that it finds.
BAD = {
    "who without a noun": "For whoever counts it by `open_handle`.",
    "somebody": "This is for somebody with threads.",
    "starts with what": "What the device granted.",
    "what without a noun": "It blocks until what they gave it is consumed.",
    "told, said, heard of": "The device tells of every request.",
    "is no": "The duration is no test's business.",
    "is gone, goes": "The memory is gone.",
    "give back, let go": "The device gives the memory back.",
    "is there": "It returns all that is there.",
    "the same of, that of": "The same of a shared buffer.",
    "starts with of": "Of a moved-from object nothing is left.",
    "so many": "Creates a queue for so many receives.",
    "also for even": "The pages stay also after a failure.",
    "possessive without a noun": "The memory is the program's.",
    "question for a noun": "How many requests the queue takes.",
    "then at the end": "The queue pair is destroyed then.",
    "vague verb": "The requests are on their way.",
    "old or odd phrase": "The channel connects anew.",
}
GOOD = [
    "Signal every k-th request (k >= 1).",
    "Returns an error that says why.",
    "What happens if the peer dies?",
    "The granted capacities, which are at least those requested.",
    "The caller must call `whoever(somebody, anew)`.",
    "This rank is connected to an earlier channel: call mend().",
]


def run(files, *arguments):
    """The exit code and the output for a folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (pathlib.Path(folder) / name).write_text(text)
        done = subprocess.run([sys.executable, PROGRAM, *arguments, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.replace(folder + "/", ""), done.stderr


class PlainEnglish(unittest.TestCase):
    def test_each_pattern_finds_its_sentence(self):
        for name, sentence in BAD.items():
            status, output, _ = run({"page.md": f"A good line.\n\n{sentence}\n"}, "--max", "0")
            self.assertEqual((status, output.splitlines()[0]), (1, f"page.md:3: {name}: {sentence}"))

    def test_good_sentences_are_not_found(self):
        for sentence in GOOD:
            status, output, _ = run({"page.md": sentence + "\n"}, "--max", "0")
            self.assertEqual(status, 0, output)

    def test_each_kind_of_prose_is_read(self):
        sentence = BAD["starts with what"]
        for kind, name, text in [
            ("doc comment", "a.hpp", f"/// {sentence}\nint a;\n"),
            ("comment", "a.hpp", f"// {sentence}\nint a;\n"),
            ("comment", "a.py", f"# {sentence}\na = 1\n"),
            ("message", "a.cpp", f'auto a = "{sentence}";\n'),
            ("test name", "a.cpp", f'TEST_CASE("{sentence}", "[a]") {{}}\n'),
            ("markdown", "a.md", f"- {sentence}\n"),
        ]:
            self.assertEqual(run({name: text}, "--max", "0", "--kind", kind)[0], 1, (kind, name))
            # A limit cannot be checked if the text contains no prose of the requested kind.
            other = "comment" if kind != "comment" else "message"
            self.assertEqual(run({name: text}, "--max", "0", "--kind", other)[0], 2, (kind, name))

    def test_sentences_of_several_lines_are_found(self):
        status, output, _ = run({"a.hpp": "/// A good line. It blocks\n/// until what they gave it is consumed.\n"}, "--max", "0")
        self.assertEqual(status, 1)
        self.assertIn("a.hpp:2: what without a noun: It blocks until what they gave it is consumed.", output)

    def test_limits(self):
        text = {"a.md": BAD["somebody"] + " " + "The good words are nine, with the number in. " * 5}  # 51 words
        for limit, status in [(("--max", "1"), 0), (("--max", "0"), 1), (("--max-rate", "19"), 1), (("--max-rate", "20"), 0)]:
            self.assertEqual(run(text, *limit)[0], status, limit)

    def test_nothing_to_read_is_an_error(self):
        self.assertEqual(run({}, "--max", "0")[0], 2)
        status, _, complaint = run({"a.md": "A good line.\n"}, "--max", "0", "no such file")
        self.assertEqual((status, "no such file" in complaint), (2, True))


if __name__ == "__main__":
    unittest.main()
