"""Runs scripts/count_tests.py over made-up results: what it counts must be what is in them."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/count_tests.py"
GOOD = '<testcase name="adds" classname="Sum" result="completed"/>'
BAD = '<testcase name="carries" classname="Sum" result="completed"><failure message="no"/></testcase>'
SKIPPED = '<testcase name="gpu" classname="Sum" result="skipped"><skipped/></testcase>'


def count(tests, results, shards=None):
    """Exit status and printed lines for ctest's {name: status} and GoogleTest's {name: cases}."""
    environment = {name: value for name, value in os.environ.items() if name != "GTEST_TOTAL_SHARDS"}
    if shards is not None:
        environment["GTEST_TOTAL_SHARDS"] = str(shards)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for test, cases in results.items():
            (root / f"{test}.xml").write_text(f'<testsuites><testsuite name="Sum">{cases}</testsuite></testsuites>')
        junit = "".join(f'<testcase name="{test}" status="{status}"/>' for test, status in tests.items())
        (root / "ctest.xml").write_text(f"<testsuite>{junit}</testsuite>")
        result = subprocess.run([sys.executable, SCRIPT, root / "ctest.xml", root], capture_output=True, text=True,
                                check=False, env=environment)
        return result.returncode, result.stdout.splitlines()


class CountTests(unittest.TestCase):
    def test_cases_of_a_binary_count_one_by_one(self):
        self.assertEqual(count({"ir": "run", "layers": "run"}, {"ir": GOOD + GOOD}), (0, ["3 passed, 0 failed"]))

    def test_failures_are_named(self):
        self.assertEqual(count({"ir": "fail", "layers": "fail"}, {"ir": GOOD + BAD}),
                         (1, ["failed: ir: Sum.carries", "failed: layers", "1 passed, 2 failed"]))

    def test_a_binary_that_died_is_a_failure(self):
        self.assertEqual(count({"ir": "fail"}, {}), (1, ["failed: ir", "0 passed, 1 failed"]))

    def test_a_binary_that_died_after_its_cases_is_a_failure(self):
        self.assertEqual(count({"ir": "fail"}, {"ir": GOOD}), (1, ["failed: ir", "1 passed, 1 failed"]))

    def test_skipped_is_neither(self):
        self.assertEqual(count({"ir": "run"}, {"ir": GOOD + SKIPPED}), (0, ["1 skipped", "1 passed, 0 failed"]))

    def test_a_filter_that_selects_nothing_is_a_failure(self):
        self.assertEqual(count({"ir": "run", "layers": "run"}, {"ir": ""}),
                         (1, ["failed: ir: no test was selected", "1 passed, 1 failed"]))

    def test_a_shard_may_be_empty(self):
        self.assertEqual(count({"ir": "run"}, {"ir": ""}, shards=4), (0, ["1 passed, 0 failed"]))

    def test_nothing_passed_is_no_success(self):
        self.assertEqual(count({}, {}), (1, ["0 passed, 0 failed"]))


if __name__ == "__main__":
    unittest.main()
