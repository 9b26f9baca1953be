"""Runs scripts/thorough.sh over made-up tests: its table and its exit status must say what they said."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


def thorough(*arguments, test="exit 0"):
    """Exit status and lines, where scripts/test.sh is this text."""
    with tempfile.TemporaryDirectory() as name:
        scripts = pathlib.Path(name) / "scripts"
        scripts.mkdir()
        shutil.copy(SCRIPTS / "thorough.sh", scripts)
        for script, text in {"test.sh": test, "setup.sh": "", "build.sh": "exit 1"}.items():
            (scripts / script).write_text(f"#!/usr/bin/env bash\n{text}\n")
            (scripts / script).chmod(0o755)
        result = subprocess.run([scripts / "thorough.sh", *arguments], capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.splitlines()


class Thorough(unittest.TestCase):
    def test_every_part_of_the_list_is_a_part(self):
        status, parts = thorough("--list")
        self.assertEqual(status, 0)
        self.assertGreater(len(parts), 5)
        presets = [p for p in parts if not p.startswith(("programs", "numerics", "fuzz"))]
        self.assertEqual(thorough(*presets)[0], 0)

    def test_shards_and_presets_are_passed_on(self):
        for part, options in {"asan-1": "--asan --shard 1/", "tsan-2": "--tsan --shard 2/", "clang": "--clang"}.items():
            with self.subTest(part):
                test = f'[[ "$*" == "{options}"* ]] && echo "3 passed, 0 failed"'
                status, lines = thorough(part, test=test)
                self.assertEqual(status, 0)
                self.assertRegex(lines[-1], rf"^{part} +passed +\d+ min  3 passed, 0 failed$")

    def test_what_fails_is_told_and_the_rest_still_runs(self):
        status, lines = thorough("debug", "clang", test='echo "1 passed, 1 failed"; [ "$1" = --clang ]')
        self.assertEqual(status, 1)
        self.assertRegex(lines[-2], r"^debug +FAILED .* 1 passed, 1 failed$")
        self.assertRegex(lines[-1], r"^clang +passed ")

    def test_a_build_that_fails_is_a_failure(self):
        self.assertEqual(thorough("programs")[0], 1)

    def test_a_part_that_does_not_exist(self):
        self.assertEqual(thorough("asan-99"), (2, []))


if __name__ == "__main__":
    unittest.main()
