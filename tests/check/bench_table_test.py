"""Runs scripts/bench_table.py over made-up results: names, best of repetitions, limits and ratios."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/bench_table.py"


def row(name, time, unit="ms", **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": time, "time_unit": unit, **more}


def table(rows):
    """Exit status, printed lines without what separates columns, and the JSON that was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "in.json").write_text(json.dumps({"benchmarks": rows}))
        result = subprocess.run([sys.executable, SCRIPT, "--json", path / "out.json", path / "in.json"],
                                capture_output=True, text=True, check=False)
        written = json.loads((path / "out.json").read_text())
        return result.returncode, [" ".join(line.split()) for line in result.stdout.splitlines() if line], written


class BenchTable(unittest.TestCase):
    def test_memory_bound_kernel_beside_the_copy(self):
        status, lines, written = table([
            row("copy_64MiB/threads:1/real_time", 10.0),
            row("sumsq_16M/eager/threads:1/real_time", 30.0), row("sumsq_16M/compiled/threads:1/real_time", 6.0)])
        self.assertEqual(status, 0)
        self.assertIn("sumsq_16M 1 30.0 ms 6.00 ms 5.00 5.00 ms 1.20", lines)
        self.assertEqual(written["kernels"][0]["limit_ns"], 5e6)

    def test_arithmetic_bound_kernel_beside_the_peak(self):
        _, lines, _ = table([
            row("copy_64MiB/threads:2", 1.0), row("fma_peak/threads:2", 1.0, flops=2 * 1024**3 * 100.0),
            row("matmul_1024/compiled/threads:2", 12.5)])
        self.assertIn("matmul_1024 2 - 12.5 ms - 10.0 ms 1.25", lines)

    def test_exported_programs_beside_compiled_functions(self):
        status, lines, written = table([
            row("topk/exported/threads:1/manual_time", 9.0, compiled=0.004, ratio=2.0),
            row("sort/exported/threads:1/manual_time", 9.0, compiled=0.001, ratio=0.5),
            dict(row("adam/exported/threads:1/manual_time", 0.0), error_occurred=True,
                 error_message="not supported: it writes its inputs")])
        self.assertEqual(status, 0)
        self.assertIn("topk 1 4.00 ms 8.00 ms 2.00", lines)
        self.assertIn("exported/compiled: geometric mean 1.00 of 2", lines)
        self.assertIn("did not run: adam/exported/threads:1: not supported: it writes its inputs", lines)
        self.assertEqual([r["name"] for r in written["exported"]], ["topk", "sort"])

    def test_best_of_repetitions_and_no_aggregates(self):
        _, _, written = table([row("dispatch/noop", 3.0, "ns"), row("dispatch/noop", 2.0, "ns"),
                               dict(row("dispatch/noop", 1.0, "ns"), run_type="aggregate")])
        self.assertEqual(written["times_ns"], {"dispatch/noop": 2.0})

    def test_failures_show_and_fail(self):
        status, lines, _ = table([row("replay/chain10", 1.0),
                                  row("cold/softmax", 0.0, error_occurred=True, error_message="no LLVM")])
        self.assertEqual(status, 1)
        self.assertIn("did not run: cold/softmax: no LLVM", lines)


if __name__ == "__main__":
    unittest.main()
