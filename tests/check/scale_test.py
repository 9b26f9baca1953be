"""Runs bench/scale.py over made-up programs and measurements: formulas, fits, and steps that are near or far."""
import os
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


def check(step, compute, of_slowest, sharded=None):
    """scale.py --check with programs that print what they are told to, on two processors."""
    times = (f"a step takes {step} ms, 0.2 ms of it in collectives; without transfers {compute} ms, {of_slowest} ms where "
             "ranks wait for the slowest between collectives")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        programs = {"mpirun": 'while [ "${1#/}" = "$1" ]; do shift; done; exec "$@"',
                    "bin/fermata_collectives": f"cat <<'END'\n{collectives(1.0, 0.0001)}\nEND",
                    "bin/examples/sharded": sharded or f"cat <<'END'\n{EXPLAINED}{times}\nEND"}
        for name, text in programs.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(f"#!/bin/sh\n{text}\n")
            (path / name).chmod(0o755)
        result = subprocess.run([sys.executable, SCRIPT, "--check", folder, "--processors", "2"], capture_output=True, text=True,
                                check=False, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        return result.returncode, result.stdout + result.stderr


class Scale(unittest.TestCase):
    def test_a_fit_finds_the_formula_again(self):
        status, text = scale("--measured", "table.txt")
        self.assertEqual(status, 0, text)
        self.assertIn("2 ranks: latency 1.00 us, 10.00 GB/s fit all_reduce best", text)
        self.assertEqual({line.split()[-2] for line in text.splitlines()[2:]} - {"0", "-0"}, set(), text)

    def test_steps_near_the_prediction(self):
        # 2 us and 1 MB at 10 GB/s; of the reduce_scatter 1 us and a half of 16384 B: 103.8 us.
        status, text = check(step=1.25, compute=1.0, of_slowest=1.1)
        self.assertEqual(status, 0, text)
        rows = [line.split() for line in text.splitlines()]
        self.assertEqual([row[0] for row in rows[1:]], ["data=2", "model=2", "data=2,model=2", "data=4"])
        self.assertEqual(rows[1][1:], ["2", "1.000", "0.100", "0.104", "1.204", "1.250", "-3.7", "%"])
        self.assertEqual(rows[3][3], "0.000", "ranks that share processors do not wait idly")

    def test_steps_far_from_it_fail(self):
        status, text = check(step=1.5, compute=1.0, of_slowest=1.1)
        self.assertEqual(status, 1, text)
        self.assertIn("-19.7 %", text)

    def test_a_program_that_fails_is_shown(self):
        status, text = check(step=1.3, compute=1.0, of_slowest=1.1, sharded="echo no luck; exit 3")
        self.assertEqual(status, 1, text)
        self.assertIn("no luck", text)

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

    def test_waiting_grows_with_the_ranks(self):
        status, text = scale("explained.txt", "--compute-ms", "1", "--waiting-ms", "0.1", "--latency-us", "0",
                             "--gigabytes-per-second", "1e9")
        self.assertEqual(status, 0, text)
        rows = {line.split()[0]: float(line.split()[1]) for line in text.splitlines()[2:]}
        # The largest of n normal deviates: 0.59 of them of 2 by this formula, 1.43 of 8, 3.6 of 4096.
        self.assertAlmostEqual(rows["8"], 1.24, delta=0.01, msg=text)
        self.assertAlmostEqual(rows["4096"], 1.61, delta=0.01, msg=text)

    def test_what_is_missing_is_said(self):
        self.assertEqual(scale("explained.txt")[0], 2)
        self.assertIn("no collectives in it", scale("explained.txt", "--compute-ms", "1", explained="nothing\n")[1])
        self.assertIn("no table of collectives", scale("--measured", "table.txt", table="nothing\n")[1])


if __name__ == "__main__":
    unittest.main()
