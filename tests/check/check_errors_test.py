"""Runs scripts/check_errors.py over small trees: it must name each code with two meanings or none, and only those."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/check_errors.py"
PAGE = "# Errors\n\n## FM1301\nOne meaning.\n"
THROW = '// A file.\nthrow ValueError(1301, format_error(1301, "ValueError", "x", {}, where));\n'


def run(page, sources):
    """Exit status and printed lines for a page and {path: text}."""
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in {"docs/errors.md": page, **sources}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.splitlines()


class CheckErrors(unittest.TestCase):
    def test_a_code_with_one_entry(self):
        self.assertEqual(run(PAGE, {"ir/a.cpp": THROW}), (0, ["errors: every code has one meaning"]))

    def test_a_code_with_two_entries(self):
        self.assertEqual(run(PAGE + "\n## FM1301\nAnother.\n", {"ir/a.cpp": THROW}),
                         (1, ["docs/errors.md: FM1301 has 2 entries: a code has one meaning"]))

    def test_a_code_without_an_entry(self):
        self.assertEqual(run("# Errors\n", {"frontend/ops/a.cpp": THROW}),
                         (1, ["frontend/ops/a.cpp:2: FM1301 has no entry in docs/errors.md"]))

    def test_an_entry_without_a_code(self):
        self.assertEqual(run(PAGE, {}), (1, ["docs/errors.md: FM1301 is never thrown"]))

    def test_a_code_of_two_classes(self):
        status, lines = run(PAGE, {"ir/a.cpp": THROW, "ir/b.cpp": "call.fail<ShapeError>(1301, \"ShapeError\", \"x\");\n"})
        self.assertEqual((status, lines), (1, ["ir/b.cpp:1: FM1301 is thrown as ShapeError",
                                               "FM1301 is thrown as ShapeError, ValueError: a code has one meaning"]))


if __name__ == "__main__":
    unittest.main()
