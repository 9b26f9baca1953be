"""Another engine as a process that times what it is told to; the commands are those of worker.cpp.

  worker.py ENGINE FOLDER THREADS        ENGINE: numpy, torch, inductor (torch.compile), jax; for the networks of images
                                         onnxruntime, openvino (in f32) and openvino_default
"""

import math
import os
import sys
import time

ENGINE, FOLDER, THREADS = sys.argv[1], sys.argv[2], int(sys.argv[3])

# Before the libraries load. XLA and BLAS libraries take as many threads as there are processors they may run on.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)
# Code of torch.compile is for a number of threads; a folder that is kept saves compiling it again.
CACHE = os.environ.get("TORCHINDUCTOR_CACHE_DIR", FOLDER)
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(CACHE, f"inductor_{THREADS}")
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])

import numpy as np

MODELS = ("gpt2_small_training_128", "gpt2_small_decoding_512", "resnet50_inference", "resnet50_inference_16",
          "resnet50_inference_bf16", "resnet50_inference_16_bf16", "mobilenet_v2_inference", "mobilenet_v2_inference_16",
          "mobilenet_v2_inference_bf16")


def load(path):
    return np.load(os.path.join(FOLDER, path))


class Numpy:
    """NumPy: one operation at a time, threads only in its BLAS."""

    def __init__(self):
        self.version = "numpy " + np.__version__

    abs, exp, tanh, sqrt, square = np.abs, np.exp, np.tanh, np.sqrt, np.square
    maximum, minimum, matmul = np.maximum, np.minimum, np.matmul

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))

    def sum(self, x, axis=None):
        return np.sum(x, axis=axis, keepdims=axis is not None)

    def mean(self, x, axis):
        return np.mean(x, axis=axis, keepdims=True)

    def max(self, x, axis):
        return np.max(x, axis=axis, keepdims=True)

    def log(self, x):
        return np.log(x)

    def softmax(self, x):
        e = np.exp(x - self.max(x, -1))
        return e / self.sum(e, -1)

    def layer_norm(self, x):
        centered = x - self.mean(x, -1)
        return centered / np.sqrt(self.mean(centered * centered, -1) + 1e-5)

    def rms_norm(self, x):
        return x / np.sqrt(self.mean(x * x, -1) + 1e-5)

    def transposed(self, x):
        return np.swapaxes(x, -1, -2)

    def cumsum(self, x, axis):
        return np.cumsum(x, axis)

    def sort(self, x, axis):
        return np.sort(x, axis)

    def spectrum(self, x):
        return np.abs(np.fft.rfft(x))

    def float(self, x):
        return x.astype(np.float32)

    def take(self, x, positions):
        return x[positions]

    def scatter(self, x, positions, count):
        sums = np.zeros((count, *x.shape[1:]), x.dtype)
        np.add.at(sums, positions, x)
        return sums

    def tensor(self, x):
        return x

    def numpy(self, x):
        return np.asarray(x)

    def prepared(self, function, inputs):
        return lambda: function(*inputs)

    def wait(self, results):
        pass


class Torch(Numpy):
    """PyTorch, one kernel per call, without autograd where nothing is trained."""

    def __init__(self, compiled=False):
        import torch

        self.torch, self.compiled = torch, compiled
        torch.set_num_threads(THREADS)
        self.version = ("torch.compile " if compiled else "torch ") + torch.__version__
        for name in ("abs", "exp", "tanh", "sqrt", "square", "matmul", "sigmoid", "log"):
            setattr(self, name, getattr(torch, name))

    def maximum(self, x, y):
        return self.torch.maximum(x, y) if self.torch.is_tensor(y) else self.torch.clamp_min(x, y)

    def minimum(self, x, y):
        return self.torch.minimum(x, y) if self.torch.is_tensor(y) else self.torch.clamp_max(x, y)

    def sum(self, x, axis=None):
        return self.torch.sum(x) if axis is None else self.torch.sum(x, axis, keepdim=True)

    def mean(self, x, axis):
        return self.torch.mean(x, axis, keepdim=True)

    def max(self, x, axis):
        return self.torch.amax(x, axis, keepdim=True)

    def softmax(self, x):
        return self.torch.softmax(x, -1)

    def layer_norm(self, x):
        return self.torch.nn.functional.layer_norm(x, x.shape[-1:])

    def rms_norm(self, x):
        return self.torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5)

    def gelu(self, x):
        return self.torch.nn.functional.gelu(x)

    def attention(self, q, k, v, bias=None):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def conv_relu(self, x, w, b):
        return self.torch.relu(self.torch.nn.functional.conv2d(x, w, b, 1, 1))

    def max_pool(self, x):
        return self.torch.nn.functional.max_pool2d(x, 2)

    def transposed(self, x):
        return x.mT

    def cumsum(self, x, axis):
        return self.torch.cumsum(x, axis)

    def sort(self, x, axis):
        return self.torch.sort(x, axis)[0]

    def spectrum(self, x):
        return self.torch.fft.rfft(x).abs()

    def float(self, x):
        return x.float()

    def scatter(self, x, positions, count):
        return self.torch.zeros((count, *x.shape[1:])).index_add(0, positions, x)

    def depthwise(self, x, w):
        return self.torch.nn.functional.conv2d(x, w, None, 1, 1, 1, x.shape[1])

    def tensor(self, x):
        return self.torch.from_numpy(x)

    def numpy(self, x):
        return x.detach().numpy()

    def prepared(self, function, inputs):
        function = self.torch.compile(function, dynamic=False) if self.compiled else function

        def run():
            with self.torch.inference_mode():
                return function(*inputs)

        return run


class Jax(Numpy):
    """JAX: every row is one function under jit."""

    def __init__(self):
        import jax
        import jax.numpy as jnp

        self.jax, self.jnp, self.version = jax, jnp, "jax " + jax.__version__
        for name in ("abs", "exp", "tanh", "sqrt", "square", "maximum", "minimum", "matmul", "log"):
            setattr(self, name, getattr(jnp, name))
        self.sigmoid = jax.nn.sigmoid

    def sum(self, x, axis=None):
        return self.jnp.sum(x, axis=axis, keepdims=axis is not None)

    def mean(self, x, axis):
        return self.jnp.mean(x, axis=axis, keepdims=True)

    def max(self, x, axis):
        return self.jnp.max(x, axis=axis, keepdims=True)

    def softmax(self, x):
        return self.jax.nn.softmax(x, -1)

    def layer_norm(self, x):
        centered = x - self.mean(x, -1)
        return centered / self.sqrt(self.mean(centered * centered, -1) + 1e-5)

    def rms_norm(self, x):
        return x / self.sqrt(self.mean(x * x, -1) + 1e-5)

    def gelu(self, x):
        return self.jax.nn.gelu(x, approximate=False)

    def attention(self, q, k, v, bias=None):
        scores = self.matmul(q, self.transposed(k)) / math.sqrt(q.shape[-1])
        return self.matmul(self.softmax(scores if bias is None else scores + bias), v)

    def conv_relu(self, x, w, b):
        y = self.jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))
        return self.maximum(y + b[:, None, None], 0)

    def max_pool(self, x):
        return self.jax.lax.reduce_window(x, -self.jnp.inf, self.jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def transposed(self, x):
        return self.jnp.swapaxes(x, -1, -2)

    def cumsum(self, x, axis):
        return self.jnp.cumsum(x, axis)

    def sort(self, x, axis):
        return self.jnp.sort(x, axis)

    def spectrum(self, x):
        return self.jnp.abs(self.jnp.fft.rfft(x))

    def float(self, x):
        return x.astype(self.jnp.float32)

    def scatter(self, x, positions, count):
        return self.jnp.zeros((count, *x.shape[1:])).at[positions].add(x)

    def depthwise(self, x, w):
        return self.jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)), feature_group_count=x.shape[1])

    def tensor(self, x):
        return self.jax.device_put(x)

    def prepared(self, function, inputs):
        function = self.jax.jit(function)
        return lambda: function(*inputs)

    def wait(self, results):
        self.jax.block_until_ready(results)


def rows(e):
    """Each row as a function of its inputs; a missing one is a row that the engine has not got."""

    def cheap(x):
        return e.abs(e.maximum(((((x + 0.5) * x - 1.5) * x + 0.25) * x - 0.75), 0.1) * -2)

    def softmax_by_hand(x):
        y = e.exp(x - e.max(x, -1))
        return y / e.sum(y, -1)

    def layer_norm_by_hand(x):
        centered = x - e.mean(x, -1)
        return centered / e.sqrt(e.mean(centered * centered, -1) + 1e-5)

    def peak_norm(x):
        peak = e.max(e.abs(x), -1)
        return x / (peak + e.log(e.sum(e.exp(e.abs(x) - peak), -1)))

    table = {
        "chain10_cheap_16M": cheap,
        "chain10_math_16M": lambda x: e.sqrt(e.abs(e.sigmoid(e.exp(e.tanh(x * 1.01 + 0.5) * -2) + 0.1) - x)),
        "sum_chain10_16M": lambda x: e.sum(cheap(x)),
        "sumsq_16M": lambda x: e.sum(x * x),
        "softmax_4096x1024": e.softmax,
        "softmax_by_hand_4096x1024": softmax_by_hand,
        "layer_norm_4096x1024": e.layer_norm,
        "layer_norm_by_hand_4096x1024": layer_norm_by_hand,
        "rms_norm_4096x1024": e.rms_norm,
        "peak_norm_4096x1024": peak_norm,
        "matmul_1024": e.matmul,
        "matmul_32x64": lambda *m: [e.matmul(m[i], m[i + 1]) for i in range(0, len(m), 2)],
        "linear_64x1024x4096": lambda x, w, b: e.matmul(x, w.T) + b,
    }
    if hasattr(e, "gelu"):
        table["mlp_gelu_512x1024x4096"] = lambda x, w, b: e.gelu(e.matmul(x, w) + b)
        table["attention_8x8x512x64"] = e.attention
        table["attention_bias_8x8x512x64"] = e.attention
        table["conv_relu_16x64x56x56"] = e.conv_relu
        table["conv_relu_1x256x14x14"] = e.conv_relu
        table["max_pool_16x64x56x56"] = e.max_pool
    import kinds

    of_engine = kinds.TorchKinds if isinstance(e, Torch) else kinds.JaxKinds if isinstance(e, Jax) else kinds.NumpyKinds
    return table | kinds.rows(e, of_engine(e))


def adam(e):
    """One step of Adam over four arrays: value, gradient, mean, mean of squares."""
    if isinstance(e, Torch):
        torch = e.torch
        value, gradient = (torch.from_numpy(load(f"adam_16M.{i}.npy")) for i in range(2))
        value.requires_grad_(True)
        value.grad = gradient
        optimizer = torch.optim.Adam([value], lr=1e-3, fused=True)

        def run():
            optimizer.step()
            return [value]

        return run
    if isinstance(e, Jax):
        jax, jnp = e.jax, e.jnp
        value, gradient, mean, square = (e.tensor(load(f"adam_16M.{i}.npy")) for i in range(4))

        def step(value, gradient, mean, square, steps):
            mean = mean * 0.9 + gradient * 0.1
            square = square * 0.999 + gradient * gradient * 0.001
            rate = 1e-3 / (1 - 0.9**steps)
            return value - mean * rate / (jnp.sqrt(square / (1 - 0.999**steps)) + 1e-8), mean, square

        compiled = jax.jit(step, donate_argnums=(0, 2, 3))
        state = [value, mean, square, 0]

        def run():
            state[3] += 1
            state[0], state[1], state[2] = compiled(state[0], gradient, state[1], state[2], float(state[3]))
            return [state[0]]

        return run
    return None


def small_adam(e, row):
    import user_kinds

    if isinstance(e, Torch):
        return user_kinds.TorchUserKinds(e).adam(inputs_of(e, row))
    return user_kinds.JaxUserKinds(e).adam(inputs_of(e, row)) if isinstance(e, Jax) else None


def random_program(e, path):
    """The steps of a random program (random_program.h) as a function, and its inputs."""
    inputs, steps, outputs = [], [], []
    for line in open(path):
        op, name, *operands = line.split()
        if op == "input":
            inputs.append((name, operands[1], e.tensor(load(operands[0]))))
        elif op == "output":
            outputs.append(name)
        else:
            steps.append((op, name, operands))

    def function(*given):
        values = {}
        for (name, view, _), x in zip(inputs, given):  # views are part of the program: XLA has no arrays with strides
            values[name] = e.transposed(x) if view == "transposed" else x[..., ::2] if view == "alternate" else x
        for op, name, operands in steps:
            if op in ("sum", "mean", "max", "cumsum", "sort"):
                values[name] = getattr(e, op)(values[operands[0]], int(operands[1]))
                continue
            if op == "scatter":
                values[name] = e.scatter(values[operands[0]], values[operands[1]], int(operands[2]))
                continue
            x, *rest = [values[o] if o in values else float(o) for o in operands]
            if op == "add":
                values[name] = x + rest[0]
            elif op == "subtract":
                values[name] = x - rest[0]
            elif op == "multiply":
                values[name] = x * rest[0]
            else:
                values[name] = getattr(e, "transposed" if op == "transpose" else op)(x, *rest)
        return [values[o] for o in outputs]

    return function, [x for _, _, x in inputs]


class OnnxEngine:
    """Networks of images from ONNX files, which PyTorch writes once for all engines. Rows of bf16 are left to those that
    choose their own precision."""

    def prepared_row(self, row):
        import torch
        import torch_models

        if torch_models.network_of(row) is None or (row.endswith("_bf16") and not self.chooses_precision):
            return None
        inputs = [torch.from_numpy(x) for x in inputs_of(self, row)]
        path = os.path.join(FOLDER, f"{row}.network.onnx")
        if not os.path.exists(path):
            torch_models.write_onnx(row, inputs, path)
        return self.prepared(path, inputs[0].numpy())

    def tensor(self, x):
        return x

    def numpy(self, x):
        return x

    def wait(self, results):
        pass


class OnnxRuntime(OnnxEngine):
    chooses_precision = False

    def __init__(self):
        import onnxruntime

        self.runtime = onnxruntime
        self.version = "onnxruntime " + onnxruntime.__version__

    def prepared(self, path, images):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        session = self.runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"images": images})


class OpenVino(OnnxEngine):
    """With a precision that is asked for, or the one that it chooses for the processor."""

    def __init__(self, precision):
        import openvino

        self.core, self.precision = openvino.Core(), precision
        self.chooses_precision = precision is None
        self.version = "openvino " + openvino.__version__.split("-")[0] + (" in f32" if precision else "")

    def prepared(self, path, images):
        hints = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(THREADS)}
        if self.precision:
            hints["INFERENCE_PRECISION_HINT"] = self.precision
        request = self.core.compile_model(path, "CPU", hints).create_infer_request()

        def run():
            request.infer({0: images}, share_inputs=True)
            return [request.get_output_tensor(0).data]

        return run


def inputs_of(e, row):
    inputs = []
    while os.path.exists(os.path.join(FOLDER, f"{row}.{len(inputs)}.npy")):
        inputs.append(e.tensor(load(f"{row}.{len(inputs)}.npy")))
    return inputs


def prepare(e, row):
    if row == "adam_16M":
        return adam(e)
    if row == "adam_120_parameters":
        return small_adam(e, row)
    path = os.path.join(FOLDER, row + ".txt")
    if os.path.exists(path):
        function, inputs = random_program(e, path)
        return e.prepared(function, inputs)
    if isinstance(e, OnnxEngine):
        return e.prepared_row(row)
    if isinstance(e, Torch) and row in MODELS:
        import torch_models

        return torch_models.prepare(e, row, inputs_of(e, row))
    function = rows(e).get(row)
    return None if function is None else e.prepared(function, inputs_of(e, row))


class Worker:
    def __init__(self):
        self.engine = {"numpy": Numpy, "torch": Torch, "inductor": lambda: Torch(True), "jax": Jax,
                       "onnxruntime": OnnxRuntime, "openvino": lambda: OpenVino("f32"),
                       "openvino_default": lambda: OpenVino(None)}[ENGINE]()
        self.run = None

    def once(self):
        results = self.run()
        self.engine.wait(results)
        return results

    def answer(self, command, argument):
        if command == "version":
            return "ok " + self.engine.version
        if command == "load":
            self.run = None
            try:
                open("/proc/self/clear_refs", "w").write("5")
            except OSError:
                pass
            self.run = prepare(self.engine, argument)
            if self.run is None:
                return "error the engine has no such row"
            results = self.once()
            results = results if isinstance(results, (list, tuple)) else [results]
            for i, r in enumerate(results):
                np.save(os.path.join(FOLDER, f"{argument}.{ENGINE}.{i}.npy"), np.array(self.engine.numpy(r)))
            self.once()
            return f"ok {len(results)}"
        if command == "time":
            times, begin = [], time.perf_counter()
            while True:
                start = time.perf_counter()
                self.once()
                times.append((time.perf_counter() - start) * 1e3)
                if time.perf_counter() - begin >= float(argument):
                    return "ok " + " ".join(f"{t:.6f}" for t in times)
        if command == "peak":
            for line in open("/proc/self/status"):
                if line.startswith("VmHWM:"):
                    return f"ok {int(line.split()[1]) // 1024}"
        return "error no such command"


def main():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    try:
        worker = Worker()
    except ImportError as error:
        print("error", error, file=answers, flush=True)
        return
    print("ok", worker.engine.version, file=answers, flush=True)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        try:
            answer = worker.answer(command, argument)
        except Exception as error:  # reported, and the engine goes on
            answer = "error " + f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        print(answer, file=answers, flush=True)


main()
