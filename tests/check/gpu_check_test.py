"""Runs scripts/gpu-check.sh over made-up programs: what its report and its exit status say must be what they said."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/gpu-check.sh"
DEVICE = "CUDA driver   libcuda.so.1, for CUDA 13.0\nNVRTC         13.0\nCUDA device 0 a device, sm_90"
NO_DEVICE = "CUDA driver   none: libcuda.so.1 was not found"


def check(doctor, tests=0, without=()):
    """Exit status and report, where the doctor says this and the tests end with that."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        programs = {
            "fermata": f"cat << 'END'\nfermata 0.1.0\n{doctor}\nsomething else\nEND",
            "fermata_codegen_cuda_test": f'''if [ "$1" = --gtest_list_tests ]; then
  printf 'Running main()\\nSome.\\n  First\\nModes/Other.  # TypeParam = int\\n  Second/eager  # GetParam() = 1\\n'
  exit 0
fi
echo "the tests ran on $FERMATA_CUDA_EXECUTOR with $*"
case "$*" in *First) echo '[  SKIPPED ] 1 test'; exit 0;; esac
exit {tests}''',
            "fermata_gpu_bench": 'echo "benchmarks: $* ${FERMATA_CUDA_FUSE_PRODUCTS:-by cost}"',
        }
        for program, text in programs.items():
            if program in without:
                continue
            path = folder / "bin" / program
            path.write_text(f"#!/usr/bin/env bash\n{text}\n")
            path.chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FERMATA_")}
        result = subprocess.run([SCRIPT, folder, folder / "report.txt"], capture_output=True, text=True, check=False,
                                env=environment)
        report = folder / "report.txt"
        return result.returncode, report.read_text() if report.exists() else result.stderr


class GpuCheck(unittest.TestCase):
    def test_with_a_device_tests_and_benchmarks_run_on_it(self):
        status, report = check(DEVICE)
        self.assertEqual(status, 0)
        for line in ("fermata 0.1.0", "CUDA device 0 a device, sm_90", "      1 passed", "      1 skipped",
                     "skipped  Some.First", "benchmarks:  by cost", "benchmarks: attention always", "benchmarks: attention never", "gpu-check: all tests passed"):
            self.assertIn(line + "\n", report)
        self.assertNotIn("something else", report)

    def test_failed_tests_are_said_and_benchmarks_run_all_the_same(self):
        status, report = check(DEVICE, tests=1)
        self.assertEqual(status, 1)
        self.assertIn("gpu-check: TESTS FAILED, see ", report)
        self.assertIn("FAILED   Modes/Other.Second/eager (exit status 1)\n", report)
        self.assertIn("the tests ran on none with --gtest_filter=Modes/Other.Second/eager\n", report)
        self.assertIn("benchmarks:  by cost\n", report)

    def test_without_a_device_the_report_says_what_was_skipped(self):
        status, report = check(NO_DEVICE)
        self.assertEqual(status, 77)
        self.assertIn("the tests ran on none with --gtest_filter=CudaWithoutDevice*:CudaCompile.CodeIsKeptOnDisk\n", report)
        self.assertIn("skipped: all other tests", report)
        self.assertTrue(report.endswith("gpu-check: NO DEVICE\n"))
        self.assertNotIn("benchmarks: ", report.replace("skipped: benchmarks", ""))

    def test_without_a_device_tests_may_still_fail(self):
        status, report = check(NO_DEVICE, tests=1)
        self.assertEqual(status, 1)
        self.assertIn("gpu-check: NO DEVICE, AND TESTS FAILED", report)

    def test_a_build_without_a_program_is_refused(self):
        status, said = check(DEVICE, without=("fermata_gpu_bench",))
        self.assertEqual(status, 2)
        self.assertIn("fermata_gpu_bench is missing", said)


if __name__ == "__main__":
    unittest.main()
