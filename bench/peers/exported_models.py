#!/usr/bin/env python3
"""Exported programs beside ONNX Runtime and AOTInductor: from the start of a process to its first result.

usage: exported_models.py BUILD [--folder FOLDER] [--models resnet50,decoder] [--runs N] [--without-inductor]

Takes the models of onnx_models.py. "first" is the time of processors from the start of the process to the first result;
of the peers, which run in Python here, from the end of its imports. All on one thread. Sizes are those of what has to be
shipped: the program or model, and the libraries. Needs torch, onnx, onnxscript and onnxruntime.
"""
import argparse
import pathlib
import sys

import onnx_models

INDUCTOR = """
import json, sys, time
import numpy, torch
torch.set_num_threads(1)
inputs = [torch.from_numpy(numpy.load(path)) for path in sys.argv[3:]]
start = time.process_time()
with torch.inference_mode():
    run = torch._inductor.aoti_load_package(sys.argv[1])
    load = time.process_time() - start
    result = run(*inputs)
    first, best = time.process_time() - start, 1e9
    for _ in range(int(sys.argv[2])):
        start = time.process_time()
        result = run(*inputs)
        best = min(best, time.process_time() - start)
peak = next(float(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"load_ms": load * 1e3, "first_ms": first * 1e3, "run_ms": best * 1e3, "peak_mib": peak,
                  "sum": float(result.double().abs().sum())}))
"""


def mib(*files):
    return sum(pathlib.Path(f).stat().st_size for f in files) / 2**20


def best_of(command, environment=None):
    return onnx_models.best_of([onnx_models.measure(command, environment or {}) for _ in range(3)])


def ours(build, folder, name, runs):
    import numpy
    inputs = sorted(folder.glob(f"{name}.*.npy"))
    program = folder / f"{name}.fermata"
    named = [f"{p.name.split('.')[1]}={p}" for p in inputs]
    onnx_models.measure([build / "bin/fermata_model_worker", folder / f"{name}.onnx", *named, "--runs", "1", "--export", program], {})
    arguments = []
    for p in inputs:
        x = numpy.load(p)
        x.tofile(p.with_suffix(".raw"))
        arguments.append(f"{'i64' if x.dtype == numpy.int64 else 'f32'}:{','.join(map(str, x.shape))}:{p.with_suffix('.raw')}")
    figures = best_of([build / "bin/fermata_program_worker", program, runs, *arguments], {"FERMATA_NUM_THREADS": "1"})
    libraries = [(build / "lib" / f).resolve() for f in ("libfermata_run.so", "libfermata_xsmm.so") if (build / "lib" / f).exists()]
    return figures, mib(program), mib(*libraries)


def runtime(folder, name, runs):
    import onnxruntime
    named = [f"{p.name.split('.')[1]}={p}" for p in sorted(folder.glob(f"{name}.*.npy"))]
    figures = best_of([sys.executable, "-c", onnx_models.RUNTIME, folder / f"{name}.onnx", "1", runs, *named])
    figures["first_ms"] += figures["load_ms"]
    capi = pathlib.Path(onnxruntime.__file__).parent / "capi"
    return figures, mib(folder / f"{name}.onnx"), mib(*capi.glob("onnxruntime_pybind11_state*.so"))


def inductor(folder, name, runs):
    import torch
    package = folder / f"{name}.pt2"
    make, inputs = onnx_models.models()[name]
    if not package.exists():
        with torch.no_grad():
            exported = torch.export.export(make().eval(), tuple(inputs.values()))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
    paths = sorted(folder.glob(f"{name}.*.npy"))
    figures = best_of([sys.executable, "-c", INDUCTOR, package, runs, *paths])
    return figures, mib(package), mib(*(pathlib.Path(torch.__file__).parent / "lib").glob("libtorch_cpu.so*"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--folder", default="/tmp/fermata_onnx_models")
    parser.add_argument("--models", default="resnet50,decoder")
    parser.add_argument("--runs", default="5")
    parser.add_argument("--without-inductor", action="store_true")
    options = parser.parse_args()
    folder, build = pathlib.Path(options.folder), pathlib.Path(options.build)
    folder.mkdir(parents=True, exist_ok=True)
    onnx_models.write_models(folder, options.models.split(","))
    print(f"{'model':<10} {'engine':<14} {'first ms':>9} {'run ms':>9} {'peak MiB':>9} {'model MiB':>10} {'library MiB':>12}", flush=True)
    for name in options.models.split(","):
        rows = {"fermata run": lambda: ours(build, folder, name, options.runs),
                "onnxruntime": lambda: runtime(folder, name, options.runs)}
        if not options.without_inductor:
            rows["AOTInductor"] = lambda: inductor(folder, name, options.runs)
        for engine, measure in rows.items():
            try:
                f, model, libraries = measure()
            except Exception as error:
                print(f"{name:<10} {engine:<14} failed: {str(error).splitlines()[-1][:120]}", flush=True)
                continue
            print(f"{name:<10} {engine:<14} {f['first_ms']:>9.1f} {f['run_ms']:>9.3f} {f['peak_mib']:>9.1f} {model:>10.1f} "
                  f"{libraries:>12.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
