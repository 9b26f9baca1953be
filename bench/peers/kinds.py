"""The rows of bench/kinds.cpp and loop_kinds.cpp in the other engines: one class for each engine, a method for each kind of row.

A row that an engine has no method for is one that it has not got.
"""

import numpy as np
import user_kinds


class NumpyKinds:
    def __init__(self, engine):
        self.e = engine

    def sum_short(self, x):
        return x.sum(1)

    def max_short(self, x):
        return x.max(1)

    def var(self, x):
        return x.var(1)

    def normalize(self, x):
        return x / np.sqrt(np.sum(x * x, 1, keepdims=True))

    def softmax_0(self, x):
        e = np.exp(x - x.max(0))
        return e / e.sum(0)

    def pair_forces(self, x):
        apart = x[None] - x[:, None]
        square = np.sum(apart * apart, -1, keepdims=True) + np.float32(0.01)
        return np.sum(apart / (square * np.sqrt(square)), 1)

    def nearest(self, x):
        apart = x[:, None] - x[:48]
        return np.argmin(np.sum(apart * apart, -1), -1)

    def solve(self, x):
        return np.linalg.solve(x, x)

    def inv(self, x):
        return np.linalg.inv(x)

    def det(self, x):
        return np.linalg.det(x)

    def cholesky(self, x):
        return np.linalg.cholesky(x)

    def rotate(self, x):
        return np.matmul(x[:, :3], np.swapaxes(x[:, 3:], -1, -2))

    def transpose(self, x):
        return np.ascontiguousarray(x.T)

    def permute_add(self, x, y):
        return np.swapaxes(x, 1, 2) + y

    def histogram(self, bins, x):
        return np.bincount(bins, x, 200).astype(np.float32)

    def gather(self, x, rows):
        return x[rows]

    def scatter(self, rows, x):
        sums = np.zeros((60000, 64), np.float32)
        np.add.at(sums, rows[:, 0], x)
        return sums

    def cumsum_0(self, x):
        return np.cumsum(x, 0)

    def cumsum_1(self, x):
        return np.cumsum(x, 1)

    def top(self, x):
        return np.sort(np.partition(x, -50, -1)[:, -50:], -1)[:, ::-1]

    def low_pass(self, x):
        spectrum = np.fft.rfft(x)
        return np.fft.irfft(spectrum * (np.arange(spectrum.shape[-1]) < 1000), x.shape[-1]).astype(np.float32)

    def fft(self, x):
        return np.abs(np.fft.fft(x))

    def remainder(self, x, y):
        return np.remainder(x, y)


class TorchKinds(NumpyKinds):
    def __init__(self, engine):
        super().__init__(engine)
        self.torch = engine.torch
        self.solve, self.inv, self.det = self.torch.linalg.solve, self.torch.linalg.inv, self.torch.linalg.det
        self.cholesky = self.torch.linalg.cholesky

    def max_short(self, x):
        return self.torch.amax(x, 1)

    def var(self, x):
        return self.torch.var(x, 1, correction=0)

    def normalize(self, x):
        return x / self.torch.sqrt(self.torch.sum(x * x, 1, keepdim=True))

    def softmax_0(self, x):
        return self.torch.softmax(x, 0)

    def pair_forces(self, x):
        apart = x[None] - x[:, None]
        square = self.torch.sum(apart * apart, -1, keepdim=True) + 0.01
        return self.torch.sum(apart / (square * self.torch.sqrt(square)), 1)

    def nearest(self, x):
        apart = x[:, None] - x[:48]
        return self.torch.argmin(self.torch.sum(apart * apart, -1), -1)

    def rotate(self, x):
        return self.torch.matmul(x[:, :3], x[:, 3:].mT)

    def transpose(self, x):
        return x.T.contiguous()

    def permute_add(self, x, y):
        return x.transpose(1, 2) + y

    def histogram(self, bins, x):
        return self.torch.zeros(200).scatter_add(0, bins, x)

    def scatter(self, rows, x):
        return self.torch.zeros(60000, 64).index_add(0, rows[:, 0], x)

    def cumsum_0(self, x):
        return self.torch.cumsum(x, 0)

    def cumsum_1(self, x):
        return self.torch.cumsum(x, 1)

    def top(self, x):
        return self.torch.topk(x, 50)[0]

    def low_pass(self, x):
        spectrum = self.torch.fft.rfft(x)
        return self.torch.fft.irfft(spectrum * (self.torch.arange(spectrum.shape[-1]) < 1000), x.shape[-1])

    def fft(self, x):
        return self.torch.abs(self.torch.fft.fft(x))

    def depthwise_stride_2(self, x, w):
        return self.torch.nn.functional.conv2d(x, w, None, 2, 1, 1, 96)

    def remainder(self, x, y):
        return self.torch.remainder(x, y)

    def attention_bf16(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v)


class JaxKinds(NumpyKinds):
    def __init__(self, engine):
        super().__init__(engine)
        self.jax, self.jnp = engine.jax, engine.jnp

    def normalize(self, x):
        return x / self.jnp.sqrt(self.jnp.sum(x * x, 1, keepdims=True))

    def softmax_0(self, x):
        return self.jax.nn.softmax(x, 0)

    def pair_forces(self, x):
        jnp = self.jnp
        apart = x[None] - x[:, None]
        square = jnp.sum(apart * apart, -1, keepdims=True) + 0.01
        return jnp.sum(apart / (square * jnp.sqrt(square)), 1)

    def nearest(self, x):
        apart = x[:, None] - x[:48]
        return self.jnp.argmin(self.jnp.sum(apart * apart, -1), -1)

    def solve(self, x):
        return self.jnp.linalg.solve(x, x)

    def inv(self, x):
        return self.jnp.linalg.inv(x)

    def det(self, x):
        return self.jnp.linalg.det(x)

    def cholesky(self, x):
        return self.jnp.linalg.cholesky(x)

    def rotate(self, x):
        return self.jnp.matmul(x[:, :3], self.jnp.swapaxes(x[:, 3:], -1, -2))

    def transpose(self, x):
        return x.T + 0

    def permute_add(self, x, y):
        return self.jnp.swapaxes(x, 1, 2) + y

    def histogram(self, bins, x):
        return self.jnp.zeros(200).at[bins].add(x)

    def scatter(self, rows, x):
        return self.jnp.zeros((60000, 64)).at[rows[:, 0]].add(x)

    def cumsum_0(self, x):
        return self.jnp.cumsum(x, 0)

    def cumsum_1(self, x):
        return self.jnp.cumsum(x, 1)

    def top(self, x):
        return self.jax.lax.top_k(x, 50)[0]

    def low_pass(self, x):
        spectrum = self.jnp.fft.rfft(x)
        return self.jnp.fft.irfft(spectrum * (self.jnp.arange(spectrum.shape[-1]) < 1000), x.shape[-1])

    def fft(self, x):
        return self.jnp.abs(self.jnp.fft.fft(x))

    def depthwise_stride_2(self, x, w):
        return self.jax.lax.conv_general_dilated(x, w, (2, 2), ((1, 1), (1, 1)), feature_group_count=96)

    def remainder(self, x, y):
        return self.jnp.remainder(x, y)

    def attention_bf16(self, q, k, v):
        scores = self.jnp.matmul(q, self.jnp.swapaxes(k, -1, -2), preferred_element_type=self.jnp.float32) / 8
        return self.jnp.matmul(self.jax.nn.softmax(scores, -1).astype(q.dtype), v)


class LoopKinds:
    """The rows of bench/loop_kinds.cpp over a namespace that is much like NumPy; engines differ in a few names."""

    def __init__(self, xp):
        self.xp = xp

    def sort(self, x):
        return self.xp.sort(x)

    def sort_0(self, x):
        return self.xp.sort(x, 0)

    def argsort(self, x):
        return self.xp.argsort(x, kind="stable")

    def bytes_where(self, x):
        return self.xp.where(x > 100, x * 3, x)

    def sum_short(self, x):
        return x.sum(1)

    def mean_short(self, x):
        return x.mean(1)

    def max_short(self, x):
        return x.max(1)

    def min_short(self, x):
        return x.min(1)

    def argmax(self, x):
        return x.argmax(1)

    def sum_abs(self, x):
        return self.xp.abs(x).sum(1)

    def mean_0(self, x):
        return (x.T * 2).mean(0)

    def complex_multiply(self, a, b):
        return a * b

    def complex_divide(self, a, b):
        return a / b

    def complex_exp(self, a, b):
        return self.xp.exp(a)

    def complex_log(self, a, b):
        return self.xp.log(a)

    def complex_angle(self, a, b):
        return self.xp.angle(a)

    def complex_power(self, a, b):
        return (a * self.xp.conj(b)).real + self.xp.abs(a) ** 2

    def complex_sum(self, a, b):
        return self.xp.sum(a * b)

    def spectra(self, x):
        return self.xp.abs(self.xp.fft.rfft(x * self.xp.cos(self.xp.arange(512) * 0.01))) ** 2

    def fft2(self, x):
        return self.xp.abs(self.xp.fft.fft2(x))

    def filter(self, x, h):
        return self.xp.fft.irfft(self.xp.fft.rfft(x) * self.xp.fft.rfft(h), 6000)

    def escape(self, a, b):
        x, y = a * 0.5, b * 0.5
        cx, cy = x, y
        for _ in range(40):
            inside = x * x + y * y < 4
            following = x * x - y * y + cx
            y, x = self.xp.where(inside, x * y * 2 + cy, y), self.xp.where(inside, following, x)
        return x * x + y * y

    def shifted_exp(self, x, y):
        return self.xp.exp(x - y)

    def inner(self, x):
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return x[1:-1, 1:-1] * 0.2 + around * 0.2

    def diffuse(self, start):
        x = self.copy(start)
        for _ in range(16):
            x[1:-1, 1:-1] = self.inner(x)
        return x

    def copy(self, x):
        return x.copy()

    def sigmoid(self, x):
        return 1 / (1 + self.xp.exp(-x))

    def lstm(self, x, w, u, bias):
        w, u = w * 0.1, u * 0.1
        h, c = self.xp.zeros((48, 96), dtype=self.xp.float32), self.xp.zeros((48, 96), dtype=self.xp.float32)
        for t in range(24):
            gates = x[t] @ w + h @ u + bias
            i, f, g, o = (gates[:, 96 * k : 96 * k + 96] for k in range(4))
            c = self.sigmoid(f) * c + self.sigmoid(i) * self.xp.tanh(g)
            h = self.sigmoid(o) * self.xp.tanh(c)
        return h

    def rotate(self, m, x):
        return self.xp.matmul(m, x)

    def matvec(self, m, x):
        return self.xp.matmul(m, x[..., None])

    def take(self, x, at):
        return x[at]

    def take_along(self, x, at):
        return self.xp.take_along_axis(x, at, 1)

    def softmax_1(self, x):
        e = self.xp.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def cumulative_max(self, x):
        return self.xp.maximum.accumulate(x, 1)

    def nearest(self, x, centers):
        apart = x[:, None] - centers
        return (apart * apart).sum(-1).argmin(-1)

    def permute_add(self, x, y):
        return x.transpose(0, 2, 1, 3) * 2 + y

    def transpose_multiply(self, x, y):
        return x.T * y


class NumpyLoopKinds(LoopKinds):
    def __init__(self, engine):
        super().__init__(np)

    def index_add(self, at, x):
        sums = np.zeros((20000, 8), np.float32)
        np.add.at(sums, at, x)
        return sums

    def count(self, bins):
        return np.bincount(bins, minlength=500).astype(np.float32)

    def causal_attention(self, q, k, v):
        n = q.shape[-2]
        scores = np.where(np.tri(n, dtype=bool), q @ np.swapaxes(k, -1, -2) * np.float32(0.125), np.float32(-1e9))
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


class TorchLoopKinds(LoopKinds):
    def __init__(self, engine):
        super().__init__(engine.torch)
        self.sigmoid = engine.torch.sigmoid

    def sort(self, x):
        return self.xp.sort(x)[0]

    def sort_0(self, x):
        return self.xp.sort(x, 0)[0]

    def argsort(self, x):
        return self.xp.argsort(x, stable=True)

    def max_short(self, x):
        return self.xp.amax(x, 1)

    def min_short(self, x):
        return self.xp.amin(x, 1)

    def copy(self, x):
        return x.clone()

    def take_along(self, x, at):
        return self.xp.take_along_dim(x, at, 1)

    def softmax_1(self, x):
        return self.xp.softmax(x, 1)

    def cumulative_max(self, x):
        return self.xp.cummax(x, 1)[0]

    def permute_add(self, x, y):
        return x.permute(0, 2, 1, 3) * 2 + y

    def index_add(self, at, x):
        return self.xp.zeros(20000, 8).index_add(0, at, x)

    def count(self, bins):
        return self.xp.bincount(bins, minlength=500).float()

    def causal_attention(self, q, k, v):
        return self.xp.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def likelihood(self, x, y, p):
        torch = self.xp

        def value(p):
            square = ((x[:, None] - x) ** 2).sum(-1)
            kernel = torch.exp(square * -0.5 / torch.exp(p[0])) * torch.exp(p[1])
            kernel = kernel + torch.eye(len(x)) * (torch.exp(p[2]) + 0.1)
            factor = torch.linalg.cholesky(kernel)
            alpha = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
            return (alpha**2).sum() * 0.5 + torch.log(torch.diagonal(factor)).sum()

        with torch.inference_mode(False), torch.enable_grad():
            x, y, p = x.clone(), y.clone(), p.clone().requires_grad_(True)
            result = value(p)
            return result.detach(), torch.autograd.grad(result, p)[0]


class JaxLoopKinds(LoopKinds):
    def __init__(self, engine):
        super().__init__(engine.jnp)
        self.jax = engine.jax
        self.sigmoid = engine.jax.nn.sigmoid

    def argsort(self, x):
        return self.xp.argsort(x, stable=True)

    def diffuse(self, x):
        for _ in range(16):
            x = x.at[1:-1, 1:-1].set(self.inner(x))
        return x

    def softmax_1(self, x):
        return self.jax.nn.softmax(x, 1)

    def cumulative_max(self, x):
        return self.jax.lax.cummax(x, 1)

    def index_add(self, at, x):
        return self.xp.zeros((20000, 8)).at[at].add(x)

    def count(self, bins):
        return self.xp.zeros(500).at[bins].add(1.0)

    def causal_attention(self, q, k, v):
        n = q.shape[-2]
        scores = self.xp.where(self.xp.tri(n, dtype=bool), q @ self.xp.swapaxes(k, -1, -2) * 0.125, -1e9)
        return self.jax.nn.softmax(scores, -1) @ v

    def likelihood(self, x, y, p):
        jnp = self.xp

        def value(p):
            square = ((x[:, None] - x) ** 2).sum(-1)
            kernel = jnp.exp(square * -0.5 / jnp.exp(p[0])) * jnp.exp(p[1]) + jnp.eye(len(x)) * (jnp.exp(p[2]) + 0.1)
            factor = jnp.linalg.cholesky(kernel)
            alpha = self.jax.scipy.linalg.solve_triangular(factor, y[:, None], lower=True)
            return (alpha**2).sum() * 0.5 + jnp.log(jnp.diagonal(factor)).sum()

        return self.jax.value_and_grad(value)(p)


LOOP_METHODS = {
    "sort_1000x4000": "sort", "sort_3M": "sort", "sort_80Kx40": "sort", "sort_0_3000x1000": "sort_0",
    "argsort_400x3000": "argsort", "argsort_1M": "argsort", "sort_integers_1M": "sort", "bytes_where_12M": "bytes_where",
    "sum_200Kx16": "sum_short", "mean_150Kx28": "mean_short", "sum_60Kx64": "sum_short", "max_300Kx10": "max_short",
    "min_40Kx100": "min_short", "argmax_100Kx30": "argmax", "sum_abs_100Kx40": "sum_abs", "mean_0_3000x900": "mean_0",
    "complex_multiply_1M": "complex_multiply", "complex_divide_1M": "complex_divide", "complex_exp_1M": "complex_exp",
    "complex_log_1M": "complex_log", "complex_angle_1M": "complex_angle", "complex_power_1M": "complex_power",
    "complex_sum_2M": "complex_sum", "spectra_2000x512": "spectra", "fft2_12x200x240": "fft2",
    "filter_60x6000": "filter", "escape_40_steps_1M": "escape", "diffuse_16_sweeps_900": "diffuse",
    "shifted_exp_400Kx10": "shifted_exp",
    "lstm_24_steps": "lstm", "causal_attention_4x8x400x64": "causal_attention", "likelihood_400": "likelihood",
    "rotate_200Kx4": "rotate", "matvec_3000x48x40": "matvec", "take_half_200000x32": "take",
    "take_along_1_2000x1500": "take_along", "index_add_300000x8": "index_add", "count_4M": "count",
    "softmax_1_40x300x500": "softmax_1", "cumulative_max_2000x2500": "cumulative_max",
    "nearest_30000x70x12": "nearest", "permute_add_300x80x3x64": "permute_add",
    "transpose_multiply_2000x3000": "transpose_multiply",
}

METHODS = {
    "sum_3Mx3": "sum_short", "sum_512Kx12": "sum_short", "max_128Kx40": "max_short", "var_1Mx3": "var",
    "var_200Kx16": "var", "normalize_1Mx3": "normalize", "pair_forces_1500": "pair_forces",
    "nearest_40000x48x14": "nearest", "solve_100Kx4x4": "solve", "inv_100Kx4x4": "inv", "det_100Kx4x4": "det",
    "cholesky_100Kx4x4": "cholesky", "solve_10Kx16x16": "solve", "cholesky_10Kx16x16": "cholesky",
    "rotate_100Kx3": "rotate", "transpose_4096": "transpose", "permute_add_48x512x640": "permute_add",
    "histogram_6M": "histogram", "gather_rows_50000x64": "gather", "scatter_rows_50000x64": "scatter",
    "cumulative_sum_0_3000x2000": "cumsum_0", "cumulative_sum_1_3000x2000": "cumsum_1", "cumulative_sum_8M": "cumsum_0",
    "top_50_of_400x20000": "top", "low_pass_50x16384": "low_pass", "fft_100x1000": "fft",
    "depthwise_stride_2_8x96x56x56": "depthwise_stride_2", "softmax_0_4096x1024": "softmax_0",
    "remainder_1M": "remainder", "attention_bf16_8x8x512x64": "attention_bf16",
}


def rows(engine, kinds):
    """{row: function of its inputs}, of what the engine can do."""
    table = {row: getattr(kinds, method) for row, method in METHODS.items() if hasattr(kinds, method)}
    table["softmax_200Kx16"] = engine.softmax
    table["layer_norm_50Kx64"] = engine.layer_norm
    table["matmul_100Kx4x4"] = lambda x: engine.matmul(x, x)
    of_class = {NumpyKinds: NumpyLoopKinds, TorchKinds: TorchLoopKinds, JaxKinds: JaxLoopKinds}[type(kinds)]
    loops = of_class(engine)
    table |= {row: getattr(loops, method) for row, method in LOOP_METHODS.items() if hasattr(loops, method)}
    return table | user_kinds.rows(of_users(engine, kinds))


def of_users(engine, kinds):
    """The rows of bench/user_kinds.cpp."""
    return {NumpyKinds: user_kinds.NumpyUserKinds, TorchKinds: user_kinds.TorchUserKinds,
            JaxKinds: user_kinds.JaxUserKinds}[type(kinds)](engine)
