#!/usr/bin/env python3
"""All-reduce of two ranks on one machine, beside other libraries, in one run.

usage: build/peers/bin/python bench/distributed/peers.py [--ranks N] [--largest BYTES] [--build build/release]

MPI's blocking call and ours by fermata_collectives; PyTorch by gloo; MLX by its ring over TCP and by MPI. f32 sums, one
thread a rank; what mpirun starts is bound to a processor, others choose theirs, as they have threads for TCP.
Microseconds, the least of several rounds on the first rank; a column of what is not installed is empty.
bench/peers/requirements.txt names the packages.
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

SIZES = [4 * 4**k for k in range(13)]  # bytes: 4 to 64 MiB
PEERS = {"PyTorch, gloo": "torch", "MLX, ring": "mlx-ring", "MLX, MPI": "mlx-mpi"}
ROUNDS = 9


def least(call, size, meet):
    calls = max(3, min(1000, 500_000 // (size // 4 + 1000)))
    times = []
    for _ in range(ROUNDS):
        meet()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    return min(times)


def work_torch(largest):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in (s for s in SIZES if s <= largest):
        x = torch.zeros(size // 4)
        us = least(lambda x=x: dist.all_reduce(x), size, dist.barrier)
        if dist.get_rank() == 0:
            print(f"row {size} {us:.2f}", flush=True)
    dist.destroy_process_group()


def work_mlx(backend, largest):
    import mlx.core as mx
    group = mx.distributed.init(strict=True, backend=backend)
    mx.set_default_device(mx.cpu)
    for size in (s for s in SIZES if s <= largest):
        x = mx.zeros(size // 4)
        mx.eval(x)
        us = least(lambda x=x: mx.eval(mx.distributed.all_sum(x, group=group)), size,
                   lambda: mx.eval(mx.distributed.all_sum(mx.zeros(1), group=group)))
        if group.rank() == 0:
            print(f"row {size} {us:.2f}", flush=True)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def mpirun(ranks):
    return ["mpirun", "-n", str(ranks), "--bind-to", "core"]


def environment(**more):
    return {**os.environ, "FERMATA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


def run_peer(worker, ranks, largest):
    """Microseconds by size; empty where the peer does not run here."""
    command = [sys.executable, __file__, "--worker", worker, "--largest", str(largest)]
    if worker == "mlx-mpi":
        commands = [(mpirun(ranks) + command, environment())]
    else:
        ports = free_ports(ranks)
        hosts = pathlib.Path(f"/tmp/fermata_peers_{os.getpid()}.json")
        hosts.write_text(json.dumps([[f"127.0.0.1:{p}"] for p in ports]))
        commands = [(command, environment(RANK=str(r), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[0]),
                                 MLX_RANK=str(r), MLX_HOSTFILE=str(hosts))) for r in range(ranks)]
    processes = [subprocess.Popen(c, env=e, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                 for c, e in commands]
    rows = {}
    for process in processes:
        text, _ = process.communicate(timeout=600)
        rows.update({int(s): float(us) for s, us in re.findall(r"row (\d+) ([\d.]+)", text)})
    return rows


def run_ours(build, ranks, largest):
    """Columns by name, of microseconds by size."""
    program = pathlib.Path(build) / "bin/fermata_collectives"
    text = subprocess.run(mpirun(ranks) + [program, str(largest)], env=environment(), capture_output=True, text=True,
                          check=True).stdout
    columns = {"MPI": {}, "eager": {}, "compiled": {}}
    for line in text.splitlines():
        if line.lstrip().startswith("bytes"):
            break
        if match := re.match(r" *(\d+) +([\d.]+) +[\d.]+ +([\d.]+) +([\d.]+)$", line):
            for name, value in zip(columns, match.groups()[1:]):
                columns[name][int(match.group(1))] = float(value)
    return columns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--worker", choices=PEERS.values(), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work_torch(given.largest) if given.worker == "torch" else work_mlx(given.worker[4:], given.largest)
    columns = run_ours(given.build, given.ranks, given.largest)
    columns.update({name: run_peer(worker, given.ranks, given.largest) for name, worker in PEERS.items()})
    print("| bytes | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for size in (s for s in SIZES if s <= given.largest):
        cells = [f"{rows[size]:.3g}" if size in rows and rows[size] < 1000 else f"{rows[size]:.0f}" if size in rows else ""
                 for rows in columns.values()]
        print(f"| {size} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
