#!/usr/bin/env python3
"""Prints the results of the benchmark binaries as one table: eager and compiled times and the limit of the machine.

usage: bench_table.py [--json FILE] RESULT.json ...

The limit of a kernel is the time that its memory traffic takes at the rate of copy_64MiB, or its arithmetic at the peak of
its dtype, whichever is longer, with the same number of threads in the same run. Traffic counts each input and output once.
"""
import argparse
import json
import math
import re
import sys

MIB = 2**20
COPY_BYTES = 2 * 64 * MIB  # read and written
# name: (bytes moved, operations of the matrix products, their peak if it is not fma_peak)
WORK = {
    "chain10_cheap_16M": (2 * 64 * MIB, 0),
    "chain10_math_16M": (2 * 64 * MIB, 0),
    "sum_chain10_16M": (64 * MIB, 0),
    "sumsq_16M": (64 * MIB, 0),
    "softmax_4096x1024": (2 * 16 * MIB, 0),
    "layer_norm_4096x1024": (2 * 16 * MIB, 0),
    "rms_norm_4096x1024": (2 * 16 * MIB, 0),
    "matmul_1024": (3 * 4 * MIB, 2 * 1024**3),
    "matmul_1024_bf16": (3 * 2 * MIB, 2 * 1024**3, "bf16_peak"),
    "matmul_1024_int8": (6 * MIB, 2 * 1024**3, "int8_peak"),
    "matmul_32x64": (3 * 64 * 32 * 32 * 4, 64 * 2 * 32**3),
    "linear_64x1024x4096": (4 * (64 * 1024 + 1024 * 4096 + 64 * 4096), 2 * 64 * 1024 * 4096),
    "mlp_gelu_512x1024x4096": (4 * (512 * 1024 + 1024 * 4096 + 512 * 4096), 2 * 512 * 1024 * 4096),
    "adam_16M": (7 * 64 * MIB, 0),  # reads parameter, gradient and two moments; writes all but the gradient
    # Every entry reads a row of the dense matrix, which is far larger than the core's private cache.
    "csr_matmul_64Kx16x64": (2**16 * (16 * (12 + 64 * 4) + 64 * 4), 0),
    "grid_sample_8x3x256x256": (8 * 2**16 * (2 * 4 + 2 * 3 * 4), 0),
    "embedding_bag_2048x32x64": (2048 * (32 * (8 + 64 * 4) + 64 * 4), 0),
    "dct_100x1000": (100 * 1000 * 2 * 4, 0),
    "ldl_256": (0, 256**3 / 3 * 2),
    "quantized_linear_512x1024x4096": (512 * 1024 + 1024 * 4096 + 512 * 4096, 2 * 512 * 1024 * 4096, "int8_peak"),
    "attention_8x8x512x64": (4 * 8 * MIB, 2 * 2 * 64 * 512 * 512 * 64),
    "conv_relu_16x64x56x56": (2 * 4 * 16 * 64 * 56 * 56, 2 * 16 * 64 * 64 * 9 * 56 * 56),
    "conv_relu_1x256x14x14": (2 * 4 * 256 * 14 * 14, 2 * 256 * 256 * 9 * 14 * 14),
    "max_pool_16x64x56x56": (5 * 16 * 64 * 56 * 56, 0),
    "sum_3Mx3": (4 * 3 * 3 * MIB, 0),
    "sum_512Kx12": (4 * 12 * 2**19, 0),
    "max_128Kx40": (4 * 40 * 2**17, 0),
    "transpose_4096": (2 * 64 * MIB, 0),
    "permute_add_48x512x640": (3 * 4 * 48 * 512 * 640, 0),
    "histogram_6M": (12 * 6_000_000, 0),
    "gather_rows_50000x64": (2 * 4 * 64 * 50_000, 0),
    "scatter_rows_50000x64": (4 * 64 * (2 * 60_000 + 50_000), 0),
    "cumulative_sum_0_3000x2000": (2 * 4 * 6_000_000, 0),
    "cumulative_sum_1_3000x2000": (2 * 4 * 6_000_000, 0),
    "cumulative_sum_8M": (2 * 4 * 8_000_000, 0),
    "top_50_of_400x20000": (4 * 400 * 20_000, 0),
    "low_pass_50x16384": (2 * 4 * 50 * 16_384, 0),
    "softmax_0_4096x1024": (2 * 16 * MIB, 0),
    "remainder_1M": (3 * 4 * MIB, 0),
    "attention_bf16_8x8x512x64": (4 * 4 * MIB, 2 * 2 * 64 * 512 * 512 * 64, "bf16_peak"),
}
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# The suffixes that Google Benchmark appends to a name.
OWN_SUFFIX = re.compile(r"/(real_time|process_time|manual_time|iterations:\d+|repeats:\d+|min_time:[\d.]+|min_warmup_time:[\d.]+)")


def read(files):
    """{name: best wall time in ns}, {name: counters of that run} and the errors of benchmarks that did not run."""
    times, counters, errors = {}, {}, []
    for file in files:
        with open(file, encoding="utf-8") as stream:
            report = json.load(stream)
        for row in report["benchmarks"]:
            name = OWN_SUFFIX.sub("", row.get("run_name", row["name"]))
            if row.get("error_occurred"):
                errors.append(f"{name}: {row.get('error_message', 'failed')}")
            elif row.get("run_type", "iteration") == "iteration":
                time = row["real_time"] * UNITS[row["time_unit"]]
                if time < times.get(name, float("inf")):
                    times[name], counters[name] = time, row
    return times, counters, errors


def text(nanoseconds):
    """Three digits and a unit."""
    if nanoseconds is None:
        return "-"
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)):
        if nanoseconds >= scale or unit == "ns":
            value = nanoseconds / scale
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def limits(times, counters, threads):
    """Bytes per ns, or None where the benchmark did not run, and {peak: operations per ns}."""
    copy = times.get(f"copy_64MiB/threads:{threads}")
    rates = {}
    for peak in ("fma_peak", "bf16_peak", "int8_peak"):
        row = counters.get(f"{peak}/threads:{threads}", {})
        rate = next((row[key] for key in ("flops", "FLOP/s", "items_per_second") if key in row), None)
        if rate:
            rates[peak] = rate / 1e9
    return COPY_BYTES / copy if copy else None, rates


def limit(name, bytes_per_ns, rates):
    if name not in WORK:
        return None
    moved, operations, peak = (*WORK[name], "fma_peak")[:3]
    least = [moved / bytes_per_ns] if bytes_per_ns else []
    if operations and peak in rates:
        least.append(operations / rates[peak])
    elif operations:
        return None
    return max(least) if least else None


def kernel_rows(times, counters):
    """One dict per kernel and thread count, in the order in which they ran."""
    rows = []
    for full in times:
        match = re.fullmatch(r"(.+)/(eager|compiled)/threads:(\d+)", full)
        if not match:
            continue
        name, threads = match[1], int(match[3])
        if any(row["name"] == name and row["threads"] == threads for row in rows):
            continue
        rows.append({"name": name, "threads": threads,
                     "eager_ns": times.get(f"{name}/eager/threads:{threads}"),
                     "compiled_ns": times.get(f"{name}/compiled/threads:{threads}"),
                     "limit_ns": limit(name, *limits(times, counters, threads))})
    order = {name: position for position, name in enumerate(dict.fromkeys(row["name"] for row in rows))}
    return sorted(rows, key=lambda row: (order[row["name"]], row["threads"]))


def exported_rows(counters):
    """The best run of each exported program, and of the compiled function that ran in turns with it."""
    rows = []
    for full, row in counters.items():
        match = re.fullmatch(r"(.+)/exported/threads:(\d+)", full)
        if match:
            compiled = row["compiled"] * 1e9
            rows.append({"name": match[1], "threads": int(match[2]), "compiled_ns": compiled,
                         "exported_ns": row["ratio"] * compiled, "ratio": row["ratio"]})
    return rows


def print_table(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("results", nargs="+")
    arguments = parser.parse_args()
    times, counters, errors = read(arguments.results)

    kernels, exported = kernel_rows(times, counters), exported_rows(counters)
    unsupported = [error for error in errors if ": not supported: " in error]
    errors = [error for error in errors if error not in unsupported]
    single = {name: time for name, time in times.items()
              if not re.search(r"/(eager|compiled|exported)/threads:\d+$", name)}
    if single:
        print_table(["benchmark", "time"], [[name, text(time)] for name, time in single.items()])
    for threads in (1, 2):
        bytes_per_ns, rates = limits(times, counters, threads)
        if bytes_per_ns or rates:
            shown = [f"{bytes_per_ns:.1f} GB/s copied"] if bytes_per_ns else []
            shown += [f"{peak} {rate:.0f} Gop/s" for peak, rate in rates.items()]
            print(f"machine, {threads} thread{'s' if threads > 1 else ''}: {', '.join(shown)}")
    if kernels:
        print()
        print_table(["kernel", "threads", "eager", "compiled", "eager/compiled", "limit", "compiled/limit"],
                    [[row["name"], str(row["threads"]), text(row["eager_ns"]), text(row["compiled_ns"]),
                      ratio(row["eager_ns"], row["compiled_ns"]), text(row["limit_ns"]),
                      ratio(row["compiled_ns"], row["limit_ns"])] for row in kernels])
    if exported:
        print()
        print_table(["exported program", "threads", "compiled", "exported", "exported/compiled"],
                    [[row["name"], str(row["threads"]), text(row["compiled_ns"]), text(row["exported_ns"]),
                      f"{row['ratio']:.2f}"] for row in exported])
        mean = math.exp(sum(math.log(row["ratio"]) for row in exported) / len(exported))
        print(f"exported/compiled: geometric mean {mean:.2f} of {len(exported)}")
    for error in [*unsupported, *errors]:
        print("did not run:", error)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump({"times_ns": times, "kernels": kernels, "exported": exported, "errors": errors}, stream, indent=1)
            stream.write("\n")
    return 0 if times and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
