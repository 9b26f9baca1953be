#!/usr/bin/env python3
"""Predicts how a partitioned program scales, from what explain() says of it and from measured costs.

usage: scale.py EXPLAIN.txt --compute-ms MS [--latency-us US] [--gigabytes-per-second GB] [--overlap SHARE]

EXPLAIN.txt is what `fermata::explain(loss)` printed, or several of them one after another. --compute-ms is the time of
a step of one process without communication, measured. Latency and bandwidth are those of the network between two
processes; --overlap is the share of the gradients' collectives that runs beside computation.

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


def step_seconds(collectives, mesh, levels, compute, latency, bandwidth, overlap):
    beside, alone = 0.0, 0.0
    for kind, axis, block in collectives:
        n = mesh.get(axis, 1)
        if levels > 1 and axis == "data" and kind == "all_reduce" and n > 8:
            time = seconds("reduce_scatter", block, 8, latency, bandwidth)
            time += seconds("all_reduce", block / 8, n // 8, latency, bandwidth)
            time += seconds("all_gather", block / 8, 8, latency, bandwidth)
        else:
            time = seconds(kind, block, n, latency, bandwidth)
        if axis == "data":
            beside += time
        else:
            alone += time
    hidden = min(beside * overlap, compute)
    return compute + alone + beside - hidden


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("explained", type=pathlib.Path)
    parser.add_argument("--compute-ms", type=float, required=True)
    parser.add_argument("--latency-us", type=float, default=5.0)
    parser.add_argument("--gigabytes-per-second", type=float, default=10.0)
    parser.add_argument("--overlap", type=float, default=0.0)
    given = parser.parse_args()
    collectives = read_collectives(given.explained.read_text())
    if not collectives:
        sys.exit(f"{given.explained}: no collectives in it")
    compute = given.compute_ms / 1e3
    costs = (compute, given.latency_us / 1e6, given.gigabytes_per_second * 1e9, given.overlap)
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


if __name__ == "__main__":
    main()
