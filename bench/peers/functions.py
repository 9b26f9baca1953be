#!/usr/bin/env python3
"""The functions of the coverage table beside NumPy and SciPy, at sizes that users have.

    bench/peers/functions.py [--worker build/release/bin/fermata_functions] [--elements N] [--dtype f32] [--below RATIO]
                             [NAME ...]

Prints the calls for which NumPy's time divided by ours (the best of both modes) is below RATIO (1.0), one thread each.
Needs numpy, scipy and ml_dtypes.
"""
import argparse
import math
import os
import pathlib
import subprocess
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import golden

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8}


def expressions():
    return {name: expression for path in golden.ROWS.glob("*.def")
            for name, _, _, _, expression in golden.ROW.findall(path.read_text()) if expression}


def inputs_of(text, dtype):
    given = [golden.sample(one, k) for k, one in enumerate(text.split())]
    complex_dtype = np.complex64 if dtype == np.float32 else np.complex128
    kinds = [one.split("[")[0].split("(")[0] for one in text.split()]
    return [x.astype(complex_dtype) if kind == "complex" else x if kind in ("boolean", "index") else x.astype(dtype)
            for x, kind in zip(given, kinds)]


def best_time(run, at_most=0.3):
    best, start = math.inf, time.perf_counter()
    for turn in range(20):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
        if time.perf_counter() - start > at_most:
            break
    return 1e6 * best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", default=ROOT / "build/release/bin/fermata_functions")
    parser.add_argument("--elements", default="200000")
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--below", type=float, default=1.0)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known = expressions()
    worker = subprocess.run([arguments.worker, "--all", "--elements", arguments.elements, "--dtype", arguments.dtype,
                             *arguments.names], stdout=subprocess.PIPE, text=True, check=True,
                            env={**os.environ, "FERMATA_NUM_THREADS": "1"})
    ratios = []
    for line in worker.stdout.splitlines():
        if line.startswith("#"):
            print(line)
            continue
        name, inputs, eager, compiled, function, _ = line.split("\t")
        if name not in known:
            continue
        ours = np.nanmin([float(eager), float(compiled), float(function)])
        names = {**vars(golden), **dict(zip("xyz", inputs_of(inputs, DTYPES[arguments.dtype])))}
        try:
            with np.errstate(all="ignore"):
                theirs = best_time(lambda: eval(known[name], names))  # an expression of a file of this repository
        except Exception as error:
            print(f"# {name} {inputs}: {error}", file=sys.stderr)
            continue
        ratios.append((theirs / ours, name, inputs, theirs, ours))
    for ratio, name, inputs, theirs, ours in sorted(ratios):
        if ratio < arguments.below:
            print(f"{ratio:.2f}\t{name}\t{inputs}\t{theirs:.1f} / {ours:.1f} us")
    mean = math.exp(sum(math.log(r[0]) for r in ratios) / len(ratios)) if ratios else math.nan
    print(f"# NumPy's time by ours: {mean:.2f} in the geometric mean of {len(ratios)} calls, "
          f"{sum(r[0] < 1 for r in ratios)} below 1")


if __name__ == "__main__":
    main()
