#!/usr/bin/env python3
"""Times this engine beside NumPy, PyTorch (eager and compiled) and JAX: the same rows, threads and inputs, in one run;
networks of images also beside ONNX Runtime and OpenVINO, in f32 and as it chooses.

  bench/peers/compare.py [--rows REGEX] [--threads 1,2] [--peers numpy,torch,inductor,jax,onnxruntime,openvino,
                         openvino_default] [--random 200] [--models] [--cpu avx2] [--rounds 5] [--seconds 0.3]
                         [--markdown FILE] [--json FILE]

Every engine is a process of its own that is kept (its memory and kernels warm); for each row they take turns, for
--rounds rounds, and the table shows the median of each one's best times of a round. What a peer computes is compared with
what this engine computes; a row where they differ is reported and not timed.

The peers come from the Python package index, into build/peers (set up at the first call; --setup only sets up). They are at
their best as far as that can be configured: as many OpenMP and BLAS threads as are asked for, on as many processors;
freed memory is kept by the allocator instead of being given back; torch.compile and jax.jit have compiled for the sizes before
anything is timed; Adam and attention are the fused ones where a peer has them.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "peers")
OURS = os.path.join(ROOT, "build", "release", "bin", "fermata_peer_worker")
MODELS = ["gpt2_small_training_128", "gpt2_small_decoding_512", "resnet50_inference", "resnet50_inference_16",
          "resnet50_inference_bf16", "resnet50_inference_16_bf16", "mobilenet_v2_inference", "mobilenet_v2_inference_16",
          "mobilenet_v2_inference_bf16"]
PEERS = ["numpy", "torch", "inductor", "jax"]
IMAGE_PEERS = ["onnxruntime", "openvino", "openvino_default"]  # of networks of images only
# What limits all engines to an instruction set: --cpu. ONNX Runtime and OpenVINO have no such variable and are left out.
LIMITS = {
    "avx2": {"FERMATA_CPU": "avx2", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "Haswell",
             "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
    "avx512": {"FERMATA_CPU": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
               "XLA_FLAGS": "--xla_cpu_max_isa=AVX512_BF16"},
}


def setup():
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    requirements = os.path.join(os.path.dirname(os.path.abspath(__file__)), "requirements.txt")
    done = os.path.join(VENV, "done.txt")
    wanted = open(requirements).read()
    if not os.path.exists(done) or open(done).read() != wanted:
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        open(done, "w").write(wanted)
    return python


class Engine:
    """A worker process."""

    def __init__(self, name, command, threads):
        # Without this, glibc returns large blocks to the system and every result pays for its pages anew.
        environment = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:"
                                                      "glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1")
        if name.startswith("fermata"):  # without runs that try another kernel
            environment = {"FERMATA_CALIBRATE": "0"} | dict(os.environ)
        processors = sorted(os.sched_getaffinity(0))[:threads]
        self.name, self.log = name, tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=environment, preexec_fn=lambda: os.sched_setaffinity(0, processors))
        self.version = None

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def answer(self):
        answer = self.process.stdout.readline().strip()
        if not answer:
            answer = "error the process ended"
        kind, _, rest = answer.partition(" ")
        if kind != "ok":
            raise RuntimeError(rest)
        return rest

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def random_shape(r):
    """Sizes of up to some million elements; often with a short last axis."""
    rank = r.choice([1, 2, 2, 2, 3, 3, 4])
    elements = 10 ** r.uniform(2.5, 6.7)
    short = [r.randint(2, 24)] if rank > 1 and r.random() < 0.3 else []
    elements = max(1, elements / math.prod(short))
    shape = []
    for axis in range(rank - len(short)):
        left = rank - len(short) - axis
        size = elements ** (1 / left) * (2 ** r.uniform(-1.5, 1.5) if left > 1 else 1)
        shape.append(max(1, int(size)))
        elements = max(1, elements / shape[-1])
    return shape + short


class RandomProgram:
    """A program of seed `number`: odd sizes, strides, broadcasts, reductions over any axis, and now and then a call of
    another kind: transposes, scatters, scans, sorts, Fourier transforms, bytes, depthwise filters, small matrices."""

    def __init__(self, folder, number):
        import random

        import numpy as np

        self.r, self.folder, self.number = random.Random(number), folder, number
        self.generator = np.random.default_rng(number)
        self.shapes, self.lines = {}, []  # shapes of floats by name
        self.files = 0

    def save(self, array, view):
        import numpy as np

        name = f"x{self.files}"
        self.files += 1
        file = f"random_{self.number}.{name}.npy"
        np.save(os.path.join(self.folder, file), array)
        self.lines.append(f"input {name} {file} {view}")
        return name

    def normal(self, sizes):
        return self.generator.standard_normal(sizes).astype("float32")

    def add_input(self, sizes):
        r, view, stored = self.r, "dense", list(sizes)
        if len(sizes) >= 2 and r.random() < 0.25:
            view, stored = "transposed", sizes[:-2] + [sizes[-1], sizes[-2]]
        elif r.random() < 0.15:
            view, stored = "alternate", sizes[:-1] + [2 * sizes[-1]]
        self.shapes[self.save(self.normal(stored), view)] = list(sizes)

    def add_bytes(self, sizes):
        name = self.save(self.generator.integers(0, 256, sizes, dtype="uint8"), "dense")
        self.call("float", list(sizes), name)

    def call(self, op, sizes, *operands):
        name = f"t{sum(n.startswith('t') for n in self.shapes)}"
        self.lines.append(" ".join([op, name, *map(str, operands)]))
        self.shapes[name] = list(sizes)
        return name

    def operand(self):
        return self.r.choice(list(self.shapes)[-4:])

    def add_pointwise_or_reduction(self):
        r, x = self.r, self.operand()
        sizes, kind = self.shapes[x], r.random()
        if kind < 0.35:
            fitting = [y for y, s in self.shapes.items() if len(s) == len(sizes)
                       and all(a == b or 1 in (a, b) for a, b in zip(s, sizes))]
            y = r.choice(fitting)
            op = r.choice(["add", "subtract", "multiply", "maximum", "minimum"])
            self.call(op, [max(a, b) for a, b in zip(sizes, self.shapes[y])], x, y)
        elif kind < 0.55:
            op = r.choice(["add", "multiply", "maximum", "minimum"])
            self.call(op, sizes, x, f"{r.uniform(-1, 1):.4f}")
        elif kind < 0.85:
            self.call(r.choice(["abs", "tanh", "sigmoid", "tanh", "abs"]), sizes, x)
        else:
            op, axis = r.choice(["mean", "mean", "max", "mean"]), r.randrange(len(sizes))
            self.call(op, [1 if a == axis else s for a, s in enumerate(sizes)], x, axis)

    def add_other_kind(self):
        r, x = self.r, self.operand()
        sizes = self.shapes[x]
        count, rank = math.prod(sizes), len(sizes)
        kinds = ["cumsum", "sort", "spectrum", "take", "scatter", "bytes"]
        if rank >= 2:
            kinds += ["transpose", "transpose"]
        if rank >= 3 and max(sizes[-2:]) <= 64:
            kinds += ["matmul"] * 3
        if rank == 4 and min(sizes[-2:]) >= 3:
            kinds += ["depthwise"] * 4
        kind = r.choice(kinds)
        if kind in ("cumsum", "sort") and count <= 2e6:
            self.call(kind, sizes, x, r.randrange(rank))
        elif kind == "spectrum":
            self.call(kind, sizes[:-1] + [sizes[-1] // 2 + 1], x)
        elif kind in ("take", "scatter") and count <= 4e6:
            to = max(1, int(sizes[0] * r.uniform(0.3, 1.5)))
            end, length = (sizes[0], to) if kind == "take" else (to, sizes[0])
            positions = self.save(self.generator.integers(0, end, length), "dense")
            self.call(kind, [to] + sizes[1:], x, positions, *([to] if kind == "scatter" else []))
        elif kind == "bytes":
            self.add_bytes(sizes)
        elif kind == "transpose":
            self.call(kind, sizes[:-2] + [sizes[-1], sizes[-2]], x)
        elif kind == "matmul":
            y = self.call("transpose", sizes[:-2] + [sizes[-1], sizes[-2]], x)
            self.call(kind, sizes[:-1] + [sizes[-2]], x, y)
        elif kind == "depthwise":
            self.call(kind, sizes, x, self.save(self.normal([sizes[1], 1, 3, 3]), "dense"))

    def write(self):
        r, shape = self.r, random_shape(self.r)
        self.add_input(shape)
        for _ in range(r.randint(0, 2)):
            self.add_input([s if r.random() < 0.6 else 1 for s in shape])
        for _ in range(r.randint(3, 14)):
            if r.random() < 0.2:
                self.add_other_kind()
            else:
                self.add_pointwise_or_reduction()
        last = [n for n in self.shapes if n.startswith("t")]
        for name in sorted({last[-1], r.choice(last)}):
            self.lines.append(f"output {name}")
        with open(os.path.join(self.folder, f"random_{self.number}.txt"), "w") as file:
            file.write("\n".join(self.lines) + "\n")


def write_random_program(folder, number):
    RandomProgram(folder, number).write()


def same(folder, row, engine, count):
    """Empty where the peer's results are ours, to 1e-4 of the largest; to a tenth where either may be of bf16."""
    import numpy as np

    for i in range(count):
        ours = np.load(os.path.join(folder, f"{row}.fermata.{i}.npy"))
        theirs = np.load(os.path.join(folder, f"{row}.{engine}.{i}.npy"))
        largest = float(np.max(np.abs(ours), initial=0.0))
        if ours.shape != theirs.shape and ours.size != theirs.size:
            return f"result {i} has the shape {theirs.shape}, not {ours.shape}"
        differs = float(np.max(np.abs(ours.reshape(-1) - theirs.reshape(-1)), initial=0.0))
        bound = 0.1 if row.endswith("_bf16") or engine == "openvino_default" else 1e-4
        if not differs <= bound * largest + 1e-6:
            return f"result {i} differs by {differs:.3g} among values up to {largest:.3g}"
    return ""


def remove_files(folder, row):
    for file in os.listdir(folder):
        if file.startswith(row + "."):
            os.remove(os.path.join(folder, file))


def measure(row, engines, folder, rounds, seconds):
    """{engine: {"ms": .., "peak_mb": ..} or {"error": ..}} of one row."""
    found, ready = {}, []
    ours = engines[0]
    try:
        ours.ask("load " + row)
        peaks = {ours.name: int(ours.ask("peak"))}  # before anything is loaded a second time
    except RuntimeError as error:
        return {"fermata": {"error": str(error)}}
    try:
        if not row.startswith("random_"):
            ours.ask("inputs " + row)
        count = int(ours.ask("result " + row))
    except RuntimeError as error:  # of a dtype or layout that npy files have not got: peers cannot be given it
        found = {engine.name: {"error": str(error)} for engine in engines if not engine.name.startswith("fermata")}
        engines = [engine for engine in engines if engine.name not in found]
    for engine in engines:
        try:
            if engine is not ours:
                given = engine.ask("load " + row)
                peaks[engine.name] = int(engine.ask("peak"))
            if not engine.name.startswith("fermata"):  # a peer may give fewer: not what it updates in place
                differs = same(folder, row, engine.name, min(count, int(given)))
                if differs:
                    raise RuntimeError(differs)
            ready.append(engine)
        except RuntimeError as error:
            found[engine.name] = {"error": str(error)}
    times = {engine.name: [] for engine in ready}
    for _ in range(rounds):
        for engine in ready:
            times[engine.name].append(min(float(t) for t in engine.ask(f"time {seconds}").split()))
    for engine in ready:
        found[engine.name] = {"ms": statistics.median(times[engine.name]), "peak_mb": peaks[engine.name]}
    remove_files(folder, row)
    return found


def start_engines(peers, python, folder, threads):
    """The processes that can be had, this engine's first."""
    engines = [Engine(name, [OURS, folder, str(threads), mode], threads)
               for name, mode in (("fermata", "compiled"), ("fermata eager", "eager"))]
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
    for name in peers:
        engine = Engine(name, [python, worker, name, folder, str(threads)], threads)
        try:
            engine.version = engine.answer()
            engines.append(engine)
        except RuntimeError as error:
            print(f"compare: without {name}: {error}", file=sys.stderr)
    return engines


def cell(result, ours):
    if result is None or "error" in result:
        return "-"
    return f"{result['ms']:.3g} ({result['ms'] / ours:.2f})"


def is_rival(name, row):
    """Whether a row is won or lost against an engine: what computes in bf16 is no rival of f32."""
    return not name.startswith("fermata") and (name != "openvino_default" or row.endswith("_bf16"))


def table(results, engines, threads):
    lines = [f"| row, {threads} thread{'s' if threads > 1 else ''} | " + " | ".join(engines) + " | best peer / fermata |",
             "|---" * (len(engines) + 2) + "|"]
    for row, found in results.items():
        ours = found.get("fermata", {}).get("ms")
        if ours is None:
            lines.append(f"| `{row}` | failed: {found['fermata']['error']} |")
            continue
        peers = [f["ms"] for name, f in found.items() if "ms" in f and is_rival(name, row)]
        ratio = f"{min(peers) / ours:.2f}" if peers else "-"
        cells = [f"{ours:.3g}"] + [cell(found.get(name), ours) for name in engines[1:]]
        lines.append(f"| `{row}` | " + " | ".join(cells) + f" | {ratio} |")
    for row in filter(results.get, MODELS):
        peaks = {name: f["peak_mb"] for name, f in results[row].items() if "peak_mb" in f}
        lines.append(f"\nPeak memory of `{row}`, MiB: " + ", ".join(f"{name} {mb}" for name, mb in peaks.items()))
    return "\n".join(lines)


def summary(results, engines):
    """Of the random programs: how much longer each peer takes, in the geometric mean, and where this engine is slowest."""
    lines = []
    ratios = {name: [] for name in engines[1:]}
    best = []
    for row, found in results.items():
        ours = found.get("fermata", {}).get("ms")
        if ours is None:
            lines.append(f"{row} failed: {found['fermata']['error']}")
            continue
        times = {name: found[name]["ms"] / ours for name in engines[1:] if "ms" in found.get(name, {})}
        for name, ratio in times.items():
            ratios[name].append(ratio)
        peers = [ratio for name, ratio in times.items() if not name.startswith("fermata")]
        if peers:
            best.append((min(peers), row))
    for name, values in ratios.items():
        if values:
            mean = math.exp(statistics.fmean(math.log(v) for v in values))
            lines.append(f"{name}: {mean:.2f} times as long in the geometric mean of {len(values)}, at best {min(values):.2f}")
    if best:
        best.sort()
        mean = math.exp(statistics.fmean(math.log(v) for v, _ in best))
        lines.append(f"the best peer of each: {mean:.2f} times as long; ahead in {sum(v >= 1 for v, _ in best)} of {len(best)};"
                     f" furthest behind: " + ", ".join(f"{row} {v:.2f}" for v, row in best[:5]))
    return "\n".join(lines)


def processor():
    facts = {}
    for line in open("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    name = facts.get("model name", "unknown processor")
    return f"{name} (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts else name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=".")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default=",".join(PEERS + IMAGE_PEERS))
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="random programs, too")
    parser.add_argument("--models", action="store_true", help="the networks, too: those that --rows names, or all of them")
    parser.add_argument("--cpu", choices=sorted(LIMITS), help="limit all engines to this instruction set")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    parser.add_argument("--setup", action="store_true")
    parser.add_argument("--write-programs", metavar="FOLDER", help="only write the random programs, for fermata_modes")
    options = parser.parse_args()
    python = setup()
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        os.execv(python, [python, *sys.argv])  # for its NumPy
    if options.setup:
        return
    if options.write_programs:
        os.makedirs(options.write_programs, exist_ok=True)
        for number in range(options.random):
            write_random_program(options.write_programs, number)
        return
    if not os.path.exists(OURS):
        sys.exit("compare: build the release preset first (scripts/build.sh release)")
    if options.cpu:
        os.environ.update(LIMITS[options.cpu])
        options.peers = ",".join(p for p in options.peers.split(",") if p not in IMAGE_PEERS)
    rows = [r for r in subprocess.run([OURS, "/", "1", "compiled"], input="rows\n", capture_output=True, text=True,
                                      check=True).stdout.split()[1:] if re.search(options.rows, r)]
    if options.models:
        rows += [r for r in MODELS if re.search(options.rows, r)] or MODELS
    report, data = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for threads in map(int, options.threads.split(",")):
            peers = list(filter(None, options.peers.split(",")))
            engines = start_engines([p for p in peers if p not in IMAGE_PEERS], python, folder, threads)
            names = [engine.name for engine in engines]
            versions = {e.name: e.version for e in engines if e.version}
            results = {}
            for row in rows:
                own = start_engines(peers, python, folder, threads) if row in MODELS else []  # so that peaks are theirs
                results[row] = measure(row, own or engines, folder, options.rounds, options.seconds)
                for engine in own:
                    names += [engine.name] if engine.name not in names else []
                    versions |= {engine.name: engine.version} if engine.version else {}
                    engine.close()
                print(f"compare: {threads} {row}", {k: v.get("ms", v.get("error")) for k, v in results[row].items()},
                      file=sys.stderr, flush=True)
            if results:
                report.append(table(results, names, threads))
            random = {}
            for number in range(options.random):
                write_random_program(folder, number)
                row = f"random_{number}"
                random[row] = measure(row, engines, folder, min(options.rounds, 3), min(options.seconds, 0.03))
                if "error" in random[row]["fermata"]:
                    print(f"compare: {row}", random[row], file=sys.stderr, flush=True)
            if random:
                report.append(f"{len(random)} random programs, {threads} thread{'s' if threads > 1 else ''}:\n\n"
                              + summary(random, names))
            data[threads] = {"rows": results, "random": random,
                             "versions": versions}
            for engine in engines:
                engine.close()
    limit = f", limited to {options.cpu}" if options.cpu else ""
    text = "\n\n".join(report) + f"\n\n{processor()}{limit}; " + ", ".join(data[threads]["versions"].values()) + "\n"
    print(text)
    for path, content in ((options.markdown, text), (options.json, json.dumps(data, indent=1))):
        if path:
            open(path, "w").write(content)


if __name__ == "__main__":
    main()
