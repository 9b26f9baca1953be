#!/usr/bin/env python3
"""Predicts how a partitioned program scales, from what explain() says of it and from measured costs.

usage: scale.py EXPLAIN.txt --compute-ms MS [--latency-us US] [--gigabytes-per-second GB] [--overlap SHARE]
       scale.py EXPLAIN.txt --compute-ms MS --measured COLLECTIVES.txt [--step-ms MS [--collectives-ms MS]]
       scale.py --measured COLLECTIVES.txt

EXPLAIN.txt is what `fermata::explain(loss)` printed, or several of them one after another. --compute-ms is the time of
a step of one process without communication, measured. Latency and bandwidth are those of the network between two
processes; --overlap is the share of the gradients' collectives that runs beside computation.

--measured takes what bench/distributed/collectives.cpp printed: latency and bandwidth are those that fit its rows of
all_reduce best, and collectives of as many ranks as it ran with, and of a kind that it lists, take what was measured
for their size, between two sizes in proportion. Without EXPLAIN.txt it prints how far the formula is from each row.
With --step-ms, the time that a step of the explained program takes with all its communication, it prints what is
predicted for it instead, and fails where they differ by more than 15 %; --collectives-ms adds that of its collectives.
--largest takes only the program of EXPLAIN.txt that has most collectives: a training step, of all that a run has computed.

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
import pathlib
import re
import sys

MESH = re.compile(r"^partitioned over the mesh (.+)$")
LINE = re.compile(r"^  (all_reduce|all_gather|reduce_scatter|all_to_all) +along (\S+) +of %\d+ +([\d.]+) (B|kB|MB)  ")
TABLE = re.compile(r"^ *(all_reduce|bytes) +(.+?) +microseconds, (\d+) ranks$")
MOST_OFF = 0.15
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


def step_seconds(collectives, mesh, levels, compute, latency, bandwidth, overlap, measured=None):
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
    hidden = min(beside * overlap, compute)
    return compute + alone + beside - hidden


def off(predicted, measured):
    return predicted / measured - 1


def show_fit(measured):
    latency, bandwidth = measured.fit()
    print(f"{measured.ranks} ranks: latency {1e6 * latency:.2f} us, {bandwidth / 1e9:.2f} GB/s fit all_reduce best")
    print(f"{'bytes':>12} {'measured us':>12} {'formula us':>12} {'off':>8}")
    for block, time in measured.times["all_reduce"]:
        predicted = seconds("all_reduce", block, measured.ranks, latency, bandwidth)
        print(f"{block:>12} {1e6 * time:>12.2f} {1e6 * predicted:>12.2f} {100 * off(predicted, time):>6.0f} %")


def check(collectives, given, costs, measured):
    """Predicts the step of the explained program as it is; whether that is near what was measured."""
    sizes = {axis: measured.ranks for _, axis, _ in collectives}
    compute, latency, bandwidth, overlap = costs
    together = step_seconds(collectives, sizes, 1, 0.0, latency, bandwidth, 0.0, measured)
    step = step_seconds(collectives, sizes, 1, compute, latency, bandwidth, overlap, measured)
    print(f"{len(collectives)} collectives of {measured.ranks} ranks: predicted {1e3 * together:.3f} ms", end="")
    print(f", measured {given.collectives_ms:.3f} ms" if given.collectives_ms else "")
    difference = off(1e3 * step, given.step_ms)
    print(f"step: predicted {1e3 * step:.3f} ms, measured {given.step_ms:.3f} ms: {100 * difference:+.1f} %")
    return abs(difference) <= MOST_OFF


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("explained", type=pathlib.Path, nargs="?")
    parser.add_argument("--compute-ms", type=float)
    parser.add_argument("--latency-us", type=float, default=5.0)
    parser.add_argument("--gigabytes-per-second", type=float, default=10.0)
    parser.add_argument("--overlap", type=float, default=0.0)
    parser.add_argument("--measured", type=pathlib.Path)
    parser.add_argument("--step-ms", type=float)
    parser.add_argument("--collectives-ms", type=float)
    parser.add_argument("--largest", action="store_true")
    given = parser.parse_args()
    measured = Measured(given.measured.read_text()) if given.measured else None
    if given.explained is None:
        if measured is None:
            parser.error("needs EXPLAIN.txt or --measured")
        show_fit(measured)
        return 0
    if given.compute_ms is None or (given.step_ms is not None and measured is None):
        parser.error("EXPLAIN.txt needs --compute-ms, and --step-ms needs --measured")
    text = given.explained.read_text()
    programs = re.split(r"^(?=partitioned over the mesh )", text, flags=re.MULTILINE) if given.largest else [text]
    collectives = max(map(read_collectives, programs), key=len)
    if not collectives:
        sys.exit(f"{given.explained}: no collectives in it")
    compute = given.compute_ms / 1e3
    network = measured.fit() if measured else (given.latency_us / 1e6, given.gigabytes_per_second * 1e9)
    costs = (compute, *network, given.overlap)
    if given.step_ms is not None:
        return 0 if check(collectives, given, costs, measured) else 1
    print(f"{len(collectives)} collectives; {given.compute_ms} ms of computation in a step")
    print(f"{'processes':>10} {'data':>22} {'data x model 8':>22} {'the same, two levels':>22}")
    for power in range(3, 13):
        n = 1 << power
        row = [({"data": n}, 1), ({"data": n // 8, "model": 8}, 1), ({"data": n // 8, "model": 8}, 2)]
        cells = []
        for mesh, levels in row:
            step = step_seconds(collectives, mesh, levels, *costs)
            cells.append(f"{1e3 * step:9.2f} ms {100 * compute / step:5.1f} %")
        print(f"{n:>10} " + " ".join(f"{cell:>22}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
