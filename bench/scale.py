#!/usr/bin/env python3
"""Predicts how a partitioned program scales, from what explain() says of it and from measured costs.

usage: scale.py EXPLAIN.txt --compute-ms MS [--waiting-ms MS] [--latency-us US] [--gigabytes-per-second GB] [--overlap SHARE]
       scale.py EXPLAIN.txt --compute-ms MS --measured COLLECTIVES.txt
       scale.py --measured COLLECTIVES.txt
       scale.py --check build/release [--steps N] [--processors N]

EXPLAIN.txt is what `fermata::explain(loss)` printed, or several of them one after another; --largest takes only the
program that has most collectives: a training step, of all that a run has computed. A step takes

  computation    --compute-ms: of a rank, without communication, while the other ranks of its machine compute as well
  waiting        --waiting-ms: ranks do not take equally long between two collectives, and each goes on when the slowest
                 has come. Measured with --waiting-ranks ranks (2); with n it is in proportion to the expected largest of
                 n normal deviates
  transfers      the collectives that explain() lists, each by the formula below, for the latency and bandwidth of the
                 network between two processes. --overlap is the share of those along "data" that runs beside computation

`examples/sharded --times` measures computation and waiting of its step: it trains without transfers as well
(fermata::distributed::WithoutTransfers).

--measured takes what bench/distributed/collectives.cpp printed: latency and bandwidth are those that fit its rows of
all_reduce best, and collectives of as many ranks as it ran with, and of a kind that it lists, take what was measured
for their size, between two sizes in proportion. Without EXPLAIN.txt it prints how far the formula is from each row.

--check measures all this on this machine for the step of examples/sharded on the meshes data 2, model 2, data 2 x model 2
and data 4, and prints what is predicted and what a step takes; it fails where they differ by more than 15 %. Ranks that
share processors take turns at each collective: the computation of a step is that of all of them, and waiting is in it.

Scaling is weak: every process keeps its share of the batch, and what is divided along "model" stays divided by as many
as in the program that was explained. The meshes are: all processes along data; 8 along model; and 8 along model with
collectives along data in two levels (groups of 8 first).

A collective of n processes takes, for a block of b bytes, with latency a and bandwidth w:
  all_reduce      2 log2(n) a + 2 (n - 1) / n b / w
  all_gather      log2(n) a + (n - 1) b / w
  reduce_scatter  log2(n) a + (n - 1) / n b / w
  all_to_all      (n - 1) a + (n - 1) / n b / w
(R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, 2005.)
"""
import argparse
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

MESH = re.compile(r"^partitioned over the mesh (.+)$")
LINE = re.compile(r"^  (all_reduce|all_gather|reduce_scatter|all_to_all) +along (\S+) +of %\d+ +([\d.]+) (B|kB|MB)  ")
TIMES = re.compile(r"a step takes ([\d.]+) ms, ([\d.]+) ms of it in collectives; without transfers ([\d.]+) ms, ([\d.]+) ms where")
TABLE = re.compile(r"^ *(all_reduce|bytes) +(.+?) +microseconds, (\d+) ranks$")
MOST_OFF = 0.15
ROUNDS = 5  # of a training: medians
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6}


def read_collectives(text):
    """The collectives of a text: kind, axis of the mesh, bytes of the block that a process begins with."""
    sizes, found = {}, []
    for line in text.splitlines():
        if match := MESH.match(line):
            sizes = {name: int(size) for name, size in (item.rsplit(" ", 1) for item in match.group(1).split(", "))}
        if match := LINE.match(line):
            kind, axis, amount, unit = match.groups()
            n, wire = sizes[axis], float(amount) * UNITS[unit]
            share = {"all_reduce": 2 * (n - 1) / n, "all_gather": n - 1}.get(kind, (n - 1) / n)
            found.append((kind, axis, wire / share))
    return found


class Measured:
    """What collectives of some number of ranks took, by kind and by bytes that a rank gives."""

    def __init__(self, text):
        self.ranks, self.times, columns = 0, {}, []
        for line in text.splitlines():
            if match := TABLE.match(line):
                first, names, ranks = match.groups()
                self.ranks = int(ranks)
                # Plans are what partitioned programs run as.
                columns = [None, None, None, "all_reduce"] if first == "all_reduce" else names.split()
            elif columns and re.match(r"^[ \d.]+$", line) and len(values := line.split()) == len(columns) + 1:
                for kind, us in zip(columns, values[1:]):
                    if kind:
                        self.times.setdefault(kind, []).append((int(values[0]), float(us) / 1e6))
        if not self.times:
            sys.exit("no table of collectives in it")

    def has(self, kind, n):
        return n == self.ranks and len(self.times.get(kind, [])) > 1

    def seconds(self, kind, block):
        """Between two rows in proportion; beyond the last ones along their line."""
        rows = self.times[kind]
        if block <= rows[0][0]:
            return rows[0][1]
        (b0, t0), (b1, t1) = next((pair for pair in zip(rows, rows[1:]) if block <= pair[1][0]), rows[-2:])
        return t0 + (t1 - t0) * (block - b0) / (b1 - b0)

    def fit(self, kind="all_reduce"):
        """Latency and bytes per second of the formula, with the least sum of squares of relative differences."""
        # time = x * latency + y / bandwidth; both sides divided by the time.
        rows = [(seconds(kind, b, self.ranks, 1.0, math.inf) / t, seconds(kind, b, self.ranks, 0.0, 1.0) / t)
                for b, t in self.times[kind]]
        xx, xy, yy = (sum(f(x, y) for x, y in rows) for f in (lambda x, y: x * x, lambda x, y: x * y, lambda x, y: y * y))
        xs, ys = sum(x for x, _ in rows), sum(y for _, y in rows)
        determinant = xx * yy - xy * xy
        latency, per_byte = (xs * yy - ys * xy) / determinant, (ys * xx - xs * xy) / determinant
        return latency, 1 / per_byte


def seconds(kind, block, n, latency, bandwidth):
    if n == 1:
        return 0.0
    steps, share = math.log2(n), (n - 1) / n
    if kind == "all_reduce":
        return 2 * steps * latency + 2 * share * block / bandwidth
    if kind == "all_gather":
        return steps * latency + (n - 1) * block / bandwidth
    if kind == "reduce_scatter":
        return steps * latency + share * block / bandwidth
    return (n - 1) * latency + share * block / bandwidth


def collective_seconds(kind, block, n, latency, bandwidth, measured):
    if measured is not None and measured.has(kind, n):
        return measured.seconds(kind, block)
    return seconds(kind, block, n, latency, bandwidth)


def largest_of(n):
    """The expected largest of n normal deviates (G. Blom, 1958)."""
    return statistics.NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0


def transfer_seconds(collectives, mesh, levels, latency, bandwidth, measured=None):
    """Of the collectives of a step: those along data, and the others."""
    beside, alone = 0.0, 0.0
    for kind, axis, block in collectives:
        n = mesh.get(axis, 1)
        if levels > 1 and axis == "data" and kind == "all_reduce" and n > 8:
            time = seconds("reduce_scatter", block, 8, latency, bandwidth)
            time += seconds("all_reduce", block / 8, n // 8, latency, bandwidth)
            time += seconds("all_gather", block / 8, 8, latency, bandwidth)
        else:
            time = collective_seconds(kind, block, n, latency, bandwidth, measured)
        if axis == "data":
            beside += time
        else:
            alone += time
    return beside, alone


def off(predicted, measured):
    return predicted / measured - 1


def show_fit(measured):
    latency, bandwidth = measured.fit()
    print(f"{measured.ranks} ranks: latency {1e6 * latency:.2f} us, {bandwidth / 1e9:.2f} GB/s fit all_reduce best")
    print(f"{'bytes':>12} {'measured us':>12} {'formula us':>12} {'off':>8}")
    for block, time in measured.times["all_reduce"]:
        predicted = seconds("all_reduce", block, measured.ranks, latency, bandwidth)
        print(f"{block:>12} {1e6 * time:>12.2f} {1e6 * predicted:>12.2f} {100 * off(predicted, time):>6.0f} %")


def run(command, ranks=1, processors=1, **variables):
    """What a program prints, as so many ranks of this machine."""
    placed = ["--bind-to", "core"] if ranks <= processors else ["--oversubscribe", "--bind-to", "none"]
    started = ["mpirun", "-n", str(ranks), *placed] if ranks > 1 else []
    environment = {**os.environ, "FERMATA_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **variables}
    done = subprocess.run(started + list(map(str, command)), env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def largest_program(text):
    programs = re.split(r"^(?=partitioned over the mesh )", text, flags=re.MULTILINE)
    return max(map(read_collectives, programs), key=len)


def check(build, steps, processors):
    """Predicts and measures steps of examples/sharded; whether all are near."""
    is_near = True
    print(f"{'mesh':>16} {'collectives':>12} {'computation':>12} {'waiting':>9} {'transfers':>10} {'predicted':>10}"
          f" {'measured':>9} {'off':>8}   milliseconds")
    for axes in ({"data": 2}, {"model": 2}, {"data": 2, "model": 2}, {"data": 4}):
        ranks = math.prod(axes.values())
        sharded, mesh = build / "bin/examples/sharded", ",".join(f"{name}={size}" for name, size in axes.items())
        measured = Measured(run([build / "bin/fermata_collectives", 1 << 20, max(axes.values())], ranks, processors))
        collectives = largest_program(run([sharded, 1, "--mesh", mesh, "--simulate"], FERMATA_DUMP="partition"))
        runs = [TIMES.search(run([sharded, steps, "--mesh", mesh, "--times"], ranks, processors)) for _ in range(ROUNDS)]
        step, _, compute, of_slowest = (statistics.median(map(float, column)) for column in zip(*(r.groups() for r in runs)))
        waiting = of_slowest - compute if ranks <= processors else 0.0
        latency, bandwidth = measured.fit()
        transfers = 1e3 * sum(transfer_seconds(collectives, axes, 1, latency, bandwidth, measured))
        predicted = compute + waiting + transfers
        difference = off(predicted, step)
        is_near = is_near and abs(difference) <= MOST_OFF
        print(f"{mesh:>16} {len(collectives):>12} {compute:>12.3f} {waiting:>9.3f} {transfers:>10.3f} {predicted:>10.3f}"
              f" {step:>9.3f} {100 * difference:>+6.1f} %")
    return is_near


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("explained", type=pathlib.Path, nargs="?")
    parser.add_argument("--compute-ms", type=float)
    parser.add_argument("--waiting-ms", type=float, default=0.0)
    parser.add_argument("--waiting-ranks", type=int, default=2)
    parser.add_argument("--latency-us", type=float, default=5.0)
    parser.add_argument("--gigabytes-per-second", type=float, default=10.0)
    parser.add_argument("--overlap", type=float, default=0.0)
    parser.add_argument("--measured", type=pathlib.Path)
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--check", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--processors", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    if given.check:
        return 0 if check(given.check, given.steps, given.processors) else 1
    measured = Measured(given.measured.read_text()) if given.measured else None
    if given.explained is None:
        if measured is None:
            parser.error("needs EXPLAIN.txt, --measured or --check")
        show_fit(measured)
        return 0
    if given.compute_ms is None:
        parser.error("EXPLAIN.txt needs --compute-ms")
    text = given.explained.read_text()
    collectives = largest_program(text) if given.largest else read_collectives(text)
    if not collectives:
        sys.exit(f"{given.explained}: no collectives in it")
    compute = given.compute_ms / 1e3
    latency, bandwidth = measured.fit() if measured else (given.latency_us / 1e6, given.gigabytes_per_second * 1e9)
    print(f"{len(collectives)} collectives; {given.compute_ms} ms of computation in a step")
    print(f"{'processes':>10} {'data':>22} {'data x model 8':>22} {'the same, two levels':>22}")
    for power in range(3, 13):
        n = 1 << power
        row = [({"data": n}, 1), ({"data": n // 8, "model": 8}, 1), ({"data": n // 8, "model": 8}, 2)]
        cells = []
        for mesh, levels in row:
            beside, alone = transfer_seconds(collectives, mesh, levels, latency, bandwidth, measured)
            waiting = given.waiting_ms / 1e3 * largest_of(n) / largest_of(given.waiting_ranks)
            step = compute + waiting + alone + beside - min(beside * given.overlap, compute)
            cells.append(f"{1e3 * step:9.2f} ms {100 * compute / step:5.1f} %")
        print(f"{n:>10} " + " ".join(f"{cell:>22}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
