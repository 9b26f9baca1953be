"""The rows of bench/kinds.cpp in the other engines: one class for each engine, a method for each kind of row.

A row that an engine has no method for is one that it has not got.
"""

import numpy as np


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
    return table
