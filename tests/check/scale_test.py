"""Runs bench/scale.py over made-up programs and measurements: formulas, fits, and steps that are near or far."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "bench/scale.py"
EXPLAINED = """partitioned over the mesh data 2
  all_reduce     along data     of %18          4 B  the sum of what sum gives on parts
  1 in all, 4 B sent by each process
partitioned over the mesh data 2
  all_reduce     along data     of %57     1.0 MB  the sum of what matmul gives on parts
  reduce_scatter along data     of %58     8192 B  the sum of what matmul gives on parts
  2 in all, 1.0 MB sent by each process
"""


def collectives(latency, per_byte):
    """What fermata_collectives prints where two ranks follow the formulas, in microseconds."""
    rows = [4 * 4**k for k in range(10)]
    lines = ["  all_reduce   MPI  MPI, tested   eager   plan   microseconds, 2 ranks"]
    lines += [f"{b:12d} 1.00 1.00 1.00 {2 * latency + b * per_byte:.4f}" for b in rows]
    lines += ["       bytes   all_gather reduce_scatter   microseconds, 2 ranks"]
    return "\n".join(lines + [f"{b:12d} {latency + b * per_byte:.4f} {latency + b * per_byte / 2:.4f}" for b in rows])


def scale(*arguments, explained=EXPLAINED, table=collectives(1.0, 0.0001)):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "explained.txt").write_text(explained)
        (path / "table.txt").write_text(table)
        result = subprocess.run([sys.executable, SCRIPT] + [str(path / a) if a.endswith(".txt") else a for a in arguments],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr


class Scale(unittest.TestCase):
    def test_a_fit_finds_the_formula_again(self):
        status, text = scale("--measured", "table.txt")
        self.assertEqual(status, 0, text)
        self.assertIn("2 ranks: latency 1.00 us, 10.00 GB/s fit all_reduce best", text)
        self.assertEqual({line.split()[-2] for line in text.splitlines()[2:]} - {"0", "-0"}, set(), text)

    def test_a_step_near_the_prediction(self):
        # 2 us and 1 MB at 10 GB/s; of the reduce_scatter 1 us and a half of 16384 B: 103.8 us.
        status, text = scale("explained.txt", "--largest", "--compute-ms", "1", "--measured", "table.txt", "--step-ms", "1.2",
                             "--collectives-ms", "0.15")
        self.assertEqual(status, 0, text)
        self.assertIn("2 collectives of 2 ranks: predicted 0.104 ms, measured 0.150 ms", text)
        self.assertIn("step: predicted 1.104 ms, measured 1.200 ms: -8.0 %", text)

    def test_a_step_far_from_it_fails(self):
        status, text = scale("explained.txt", "--largest", "--compute-ms", "1", "--measured", "table.txt", "--step-ms", "1.4")
        self.assertEqual(status, 1, text)
        self.assertIn("-21.2 %", text)

    def test_predictions_for_many_processes(self):
        status, text = scale("explained.txt", "--compute-ms", "1", "--latency-us", "0", "--gigabytes-per-second", "10")
        self.assertEqual(status, 0, text)
        self.assertIn("3 collectives; 1.0 ms of computation in a step", text)
        rows = {line.split()[0]: line.split() for line in text.splitlines()[2:]}
        self.assertEqual(list(rows), [str(1 << power) for power in range(3, 13)])
        # Without latency a byte costs 2 (n - 1) / n: 1 MB takes 0.175 ms among 8, and 0.2 among 4096.
        self.assertEqual(rows["8"][1], "1.18", text)
        self.assertEqual(rows["4096"][1], "1.20", text)

    def test_overlap_hides_what_is_along_data(self):
        _, text = scale("explained.txt", "--compute-ms", "1", "--latency-us", "0", "--overlap", "1")
        self.assertIn("1.00 ms 100.0 %", text)

    def test_what_is_missing_is_said(self):
        self.assertEqual(scale("explained.txt")[0], 2)
        self.assertIn("no collectives in it", scale("explained.txt", "--compute-ms", "1", explained="nothing\n")[1])
        self.assertIn("no table of collectives", scale("--measured", "table.txt", table="nothing\n")[1])


if __name__ == "__main__":
    unittest.main()
