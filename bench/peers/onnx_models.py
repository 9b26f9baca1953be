#!/usr/bin/env python3
"""Models in ONNX files: this engine beside ONNX Runtime, each in processes of its own.

usage: onnx_models.py BUILD [--folder FOLDER] [--models resnet50,decoder,...] [--threads N] [--runs N] [--processes N]

Writes the models once with PyTorch's exporter (random weights). A row gives the time to load, to the first result from
the start of the process (with an empty and with a full cache of kernels), the best of the runs after it, and the most
memory. Results are compared. Needs torch, onnx, onnxscript and onnxruntime.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

RUNTIME = """
import json, sys, time
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(sys.argv[2]), 1
inputs = {a.split("=", 1)[0]: numpy.load(a.split("=", 1)[1]) for a in sys.argv[4:]}
start = time.process_time()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
load = time.process_time() - start
start = time.process_time()
results = session.run(None, inputs)
first, best = time.process_time() - start, 1e9
for _ in range(int(sys.argv[3])):
    start = time.process_time()
    results = session.run(None, inputs)
    best = min(best, time.process_time() - start)
total = sum(float(numpy.abs(r.astype("float64")).sum()) for r in results)
peak = next(float(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"load_ms": load * 1e3, "first_ms": first * 1e3, "run_ms": best * 1e3,
                  "peak_mib": peak, "sum": total}))
"""


def models():
    """{name: (module, inputs by name)}; made only when one is wanted."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(1)

    class Bottleneck(nn.Module):
        def __init__(self, inputs, middle, stride):
            super().__init__()
            outputs = 4 * middle
            self.body = nn.Sequential(
                nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
                nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
                nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
            self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) \
                if stride != 1 or inputs != outputs else nn.Identity()

        def forward(self, x):
            return F.relu(self.body(x) + self.side(x))

    def resnet50():
        parts, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for count, middle, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
            for i in range(count):
                parts.append(Bottleneck(inputs, middle, stride if i == 0 else 1))
                inputs = 4 * middle
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))

    class Separable(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            middle = 6 * inputs
            self.adds = stride == 1 and inputs == outputs
            self.body = nn.Sequential(
                nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU6(),
                nn.Conv2d(middle, middle, 3, stride, 1, groups=middle, bias=False), nn.BatchNorm2d(middle), nn.ReLU6(),
                nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            return x + self.body(x) if self.adds else self.body(x)

    def mobilenet():
        parts, inputs = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
        for outputs, count, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2)):
            for i in range(count):
                parts.append(Separable(inputs, outputs, stride if i == 0 else 1))
                inputs = outputs
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000))

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x, causal):
            n, length, width = x.shape
            q, k, v = (p.view(n, length, self.heads, width // self.heads).transpose(1, 2)
                       for p in self.qkv(self.first(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Language(nn.Module):
        def __init__(self, words, width, heads, layers, causal):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
            self.blocks, self.norm = nn.ModuleList([Block(width, heads) for _ in range(layers)]), nn.LayerNorm(width)
            self.head, self.causal = nn.Linear(width, words if causal else width), causal

        def forward(self, ids):
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x, self.causal)
            return self.head(self.norm(x))

    image, ids = torch.randn(1, 3, 224, 224), torch.randint(0, 1000, (1, 64))
    return {"resnet50": (resnet50, {"image": image}), "mobilenet": (mobilenet, {"image": image}),
            "bert": (lambda: Language(1000, 384, 6, 6, False), {"ids": ids}),
            "decoder": (lambda: Language(1000, 256, 4, 4, True), {"ids": ids})}


def write_models(folder, wanted):
    missing = [name for name in wanted if not (folder / f"{name}.onnx").exists()]
    if not missing:
        return
    import numpy
    import torch
    all_models = models()
    for name in missing:
        make, inputs = all_models[name]
        for key, x in inputs.items():
            numpy.save(folder / f"{name}.{key}.npy", x.numpy())
        torch.onnx.export(make().eval(), tuple(inputs.values()), folder / f"{name}.onnx", input_names=list(inputs),
                          output_names=["result"], opset_version=18, dynamo=False)


def measure(command, environment):
    """The figures that a process prints."""
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr[-2000:])
    return json.loads(result.stdout.splitlines()[-1])


def best_of(measured):
    return {key: min(m[key] for m in measured) for key in measured[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--folder", default="/tmp/fermata_onnx_models")
    parser.add_argument("--models", default="resnet50,mobilenet,bert,decoder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = options.models.split(",")
    write_models(folder, wanted)
    worker = pathlib.Path(options.build) / "bin/fermata_model_worker"
    print(f"{'model':<10} {'engine':<22} {'load ms':>9} {'first ms':>9} {'run ms':>9} {'peak MiB':>9}", flush=True)
    for number, name in enumerate(wanted):
        print(f"onnx_models: {name}, {number + 1} of {len(wanted)}", file=sys.stderr, flush=True)
        inputs = [f"{p.name.split('.')[1]}={p}" for p in sorted(folder.glob(f"{name}.*.npy"))]
        model, threads, runs = str(folder / f"{name}.onnx"), str(options.threads), str(options.runs)
        cache = tempfile.mkdtemp()
        ours = {"FERMATA_CACHE_DIR": cache, "FERMATA_NUM_THREADS": threads}
        cold = measure([worker, model, *inputs, "--runs", "1"], ours)
        rows = {"fermata, no cache": cold}
        measured = {"fermata": [], "onnxruntime": []}
        for _ in range(options.processes):
            measured["fermata"].append(measure([worker, model, *inputs, "--runs", runs], ours))
            measured["onnxruntime"].append(measure([sys.executable, "-c", RUNTIME, model, threads, runs, *inputs], {}))
        shutil.rmtree(cache)
        rows |= {engine: best_of(all_of) for engine, all_of in measured.items()}
        for engine, f in rows.items():
            run = "" if engine == "fermata, no cache" else f"{f['run_ms']:.3f}"
            print(f"{name:<10} {engine:<22} {f['load_ms']:>9.1f} {f['first_ms']:>9.1f} {run:>9} {f['peak_mib']:>9.1f}",
                  flush=True)
        sums = [rows["fermata"]["sum"], rows["onnxruntime"]["sum"]]
        if abs(sums[0] - sums[1]) > 1e-3 * abs(sums[1]):
            print(f"{name}: the results differ: {sums}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
