"""The rows of bench/user_kinds.cpp in the other engines. A row is a method of its own name, without the sizes.

Methods of UserKinds use what NumPy, PyTorch and JAX have in common; engines replace what they have a better way for. JAX
has no 64-bit types by default, so it leaves out rows that need them.
"""

import numpy as np


class UserKinds:
    f32 = np.float32

    def __init__(self, xp):
        self.xp = xp

    def group_means(self, keys, values):
        order = self.argsort(keys)
        keys, values = keys[order], values[order]
        sums = self.segment_sum(values, keys, 2500)
        return sums / self.at_least(self.segment_sum(self.xp.ones_like(values), keys, 2500), 1)

    def at_least(self, x, low):
        return self.xp.maximum(x, self.f32(low))

    def masked_attention(self, q, k, v, mask):
        scores = self.xp.where(mask > 60, self.xp.matmul(q, self.xp.swapaxes(k, -1, -2)) * 0.15, self.f32(-1e9))
        return self.xp.matmul(self.softmax(scores, -1), v)

    def softmax(self, x, axis):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))

    def gated(self, x, w, u):
        w, u = w * 0.1, u * 0.1
        h = self.xp.zeros((40, 70), dtype=self.xp.float32)
        for t in range(30):
            a, b = x[t] @ w, h @ u
            r, z = self.sigmoid(a[:, :70] + b[:, :70]), self.sigmoid(a[:, 70:140] + b[:, 70:140])
            h = (1 - z) * self.xp.tanh(a[:, 140:] + r * b[:, 140:]) + z * h
        return h

    def roll_laplacian(self, x):
        roll = self.xp.roll
        return roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1) - x * 4

    def pad_concat(self, x, y):
        return self.xp.concatenate([self.pad(x, 3, 2), self.pad(y, 1, 4), self.pad(x * 2, 0, 0)[:, : x.shape[1]]], 0)

    def flip_scale(self, x):
        return self.xp.flip(x, (2,)) * 2 + 1

    def turned_scale(self, x):
        return x.swapaxes(0, 2) * 2 + 1

    def reversed_sums(self, x):
        return self.xp.flip(self.xp.cumsum(self.xp.flip(x, (1,)), 1), (1,))

    def tile(self, x):
        return self.xp.tile(x, (3, 4, 5))

    def repeat(self, x):
        return self.xp.repeat(x, 3, 1)

    def mix_i16(self, x, y):
        return self.xp.clip((x >> 1) + (y >> 2), -9000, 9000)

    def hash_i64(self, x):
        x = x * 2654435761
        x = x ^ (x >> 15)
        x = x * 97 + 12345
        return (x ^ (x >> 9)) % 1000

    def count_masks(self, x, y):
        return (((x > 0) & (y < 0.5)) | ~(x + y < 1)).sum()

    def masked_mean(self, x):
        mask = x > 0.3
        return self.xp.where(mask, x, self.f32(0)).sum(1) / mask.sum(1)

    def rescale_i8(self, x):
        return self.xp.clip(self.xp.round((self.float(x) - 3) * 0.7 + 0.5), -128, 127).astype(np.int8)

    def i32(self, x):
        return x.astype(self.xp.int32)

    def u8(self, x):
        return x.astype(self.xp.uint8)

    def blend_u8(self, x):
        y = self.i32(x)
        return self.u8((y[0] * 77 + y[1] * 178) // 255)

    def smooth_u8(self, x):
        y = self.i32(x)
        return self.u8((y[:, :-2] + y[:, 1:-1] * 2 + y[:, 2:]) >> 2)

    def gray_u8(self, x):
        y = self.i32(x)
        return self.u8((y[:, :, 0] * 77 + y[:, :, 1] * 150 + y[:, :, 2] * 29) >> 8)

    def lengths(self, x):
        return self.xp.sqrt(x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1] + x[:, 2] * x[:, 2])

    def angles(self, t, f):
        return self.xp.sin(t[:, None] * f)

    def limit_u8(self, x):
        return self.xp.minimum(x, x[:, :1])

    def turned_i16(self, x):
        return self.dense(x.swapaxes(0, 1))

    def reversed_axes(self, x):
        return self.dense(x.swapaxes(0, 2))

    def columns_over_norm(self, x):
        return x / self.xp.sqrt((x * x).sum(0))

    def quarter_turn(self, x):
        return self.dense(self.xp.flip(x.T, (0,)))

    def sum_transposed(self, x):
        return x.T.sum()

    def transposed_max_i16(self, x):
        return self.max(x.T, 1)

    def every_third(self, x):
        return x[:, 1::3].sum(1)

    def flipped_rows(self, x):
        return self.xp.flip(x, (1,)).sum(1)

    def even_columns(self, x):
        return self.dense(x[:, ::2])

    def row_sums(self, x):
        return x.sum(1)

    byte_sums = row_sums
    byte_row_sums = row_sums

    def transposed_sums(self, x):
        return x.mT.sum(1)

    def plane_sums(self, x):
        return x.mT.sum(2)

    def column_squares(self, x):
        return (x * x).sum(0)

    def standardize_features(self, x):
        return (x - x.mean(0)) / self.std(x, (0,))

    def standardize_vector(self, x):
        return (x - x.mean()) / self.std(x, (0,))

    def sort_triples(self, x):
        return self.sort(x)

    def argsort_rows(self, x):
        return self.argsort(x)

    def unit_vectors(self, x):
        return x / self.xp.sqrt((x * x).sum(1)[:, None])

    def crop_colors(self, x, color):
        return (x[:, 10:-10, 10:-10] - color) * 0.5

    def flip_where(self, x, chosen):
        return self.xp.where(chosen > 0, self.xp.flip(x, (2,)), x)

    def stretched_u8(self, x):
        return self.xp.broadcast_to(x[:, :1], (1500, 1500)) + 7

    def enlarge(self, x):
        return self.twice(self.twice(x, 0), 1)

    def twice(self, x, axis):
        return self.xp.repeat(x, 2, axis)

    def segment_sums(self, at, x):
        return self.segment_sum(x, at, 64)

    def tone_curve(self, table, at):
        return table[self.whole(at)]

    palette = tone_curve

    def life(self, x):
        roll, x = self.xp.roll, x & 1
        for _ in range(4):
            count = sum(roll(roll(x, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
            x = self.u8((count == 3) | ((count == 2) & (x == 1)))
        return x

    def shortest_paths(self, x):
        x = self.xp.abs(x)
        for k in range(60):
            x = self.xp.minimum(x, x[:, k : k + 1] + x[k : k + 1])
        return x

    def hsv(self, x):
        least, where = self.xp.minimum, self.xp.where
        red, green, blue = x[:, 0], x[:, 1], x[:, 2]
        most = self.xp.maximum(self.xp.maximum(red, green), blue)
        range = most - least(least(red, green), blue) + 1e-6
        hue = where(most == green, 2 + (blue - red) / range, 4 + (red - green) / range)
        hue = where(most == red, (green - blue) / range, hue)
        return self.xp.stack([hue / 6, range / (most + 1e-6), most], 1)

    def rotary(self, x, re, im):
        x, y, re, im = x[..., 0::2], x[..., 1::2], re[:, None], im[:, None]
        return self.xp.stack([x * re - y * im, y * re + x * im], -1).reshape(4, 400, 12, 64)

    def float(self, x):
        return x.astype(self.xp.float32)

    def complex(self, re, im):
        return re + np.complex64(1j) * im

    def julia(self, a, b):
        c = self.complex(a * 0.1, b * 0.1)
        z = c
        for _ in range(12):
            z = z * z * 0.5 + c
        return self.xp.abs(z)

    def phase_shift(self, x, angle):
        z = self.xp.fft.fft(x) * self.xp.exp(self.complex(angle * 0, angle))
        return self.xp.fft.ifft(z).real

    def fft2_odd(self, x):
        return self.xp.abs(self.xp.fft.fft2(x))

    def rfft(self, x):
        return self.xp.abs(self.xp.fft.rfft(x))

    def solve(self, a, b):
        return self.xp.linalg.solve(a + self.xp.eye(3, dtype=self.xp.float32) * 5, b)

    def inv(self, x):
        return self.xp.linalg.inv(x + self.xp.eye(7, dtype=self.xp.float32) * 9)

    def eigenvalues(self, x):
        return self.xp.linalg.eigvalsh(x + self.xp.swapaxes(x, -1, -2))

    def log_determinants(self, x):
        squares = x @ self.xp.swapaxes(x, -1, -2) + self.xp.eye(24, dtype=self.xp.float32) * 24
        return self.xp.log(self.xp.einsum("bii->bi", self.xp.linalg.cholesky(squares))).sum(-1)

    def short_softmax(self, x):
        return self.softmax(x, -1)

    def waves(self, x):
        return self.xp.sin(x * 40) * 2 + self.xp.cos(x)

    def waves_f64(self, x):
        return self.waves(x)

    def scattered_i64(self, x):
        return x * 6364136223846793005 % 1009

    def places_above(self, x):
        return self.xp.nonzero(x > 1)[0]

    def quadratic_forms(self, x, m):
        return self.xp.einsum("bi,bij,bj->b", x, m, x)

    def matvec(self, m, x):
        return self.xp.einsum("bij,bj->bi", m, x)

    def small_products(self, x, y):
        return self.xp.matmul(x, y)

    def sum_of_outer(self, x):
        return (x[:, :, None] * x[:, None, :]).sum(0)

    def covariances(self, x):
        x = x - x.mean(1)[:, None]
        return self.xp.matmul(self.xp.swapaxes(x, -1, -2), x) / 59

    def wave_step(self, x, y):
        around = (x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1] + x[1:-1, 1:-1, :-2]
                  + x[1:-1, 1:-1, 2:])
        center = x[1:-1, 1:-1, 1:-1]
        return center * 2 - y[1:-1, 1:-1, 1:-1] + (around - center * 6) * 0.1

    def wave(self, start):
        now, before = self.copy(start), self.copy(start)
        for i in range(6):
            x, y = (before, now) if i % 2 else (now, before)
            y[1:-1, 1:-1, 1:-1] = self.wave_step(x, y)
        return now

    def copy(self, x):
        return x.copy()

    dense = copy

    def ragged(self, x):
        parts, start = [], 0
        for i in range(40):
            length = 17 + i * 37 % 83
            parts.append(self.max(self.softmax(x[start : start + length], 0) * 3, 0))
            start += length
        return self.xp.stack(parts)

    def max(self, x, axis):
        return x.max(axis)

    def mean_of_views(self, x):
        return x[:, ::2, 1::3].mean((0, 2)) + self.xp.flip(x, (1,)).sum((0, 2))[:100]

    def bins(self, x):
        return self.xp.clip(self.xp.floor(x * 8 + 24), 0, 47).astype(np.int64)

    def histogram_2d(self, x, y):
        return self.xp.bincount(self.bins(x) * 48 + self.bins(y), minlength=48 * 48)

    def whole(self, x):
        return x.astype(np.int64)

    def bilinear(self, image, y, x):
        y, x = self.xp.clip(y * 150 + 300, 0, 597.5), self.xp.clip(x * 150 + 300, 0, 697.5)
        fy, fx = self.xp.floor(y), self.xp.floor(x)
        wy, wx = y - fy, x - fx
        at, flat = self.whole(fy) * 700 + self.whole(fx), image.reshape(-1)
        return (flat[at] * (1 - wy) * (1 - wx) + flat[at + 1] * (1 - wy) * wx + flat[at + 700] * wy * (1 - wx)
                + flat[at + 701] * wy * wx)

    def image_to_planes(self, x):
        return self.xp.ascontiguousarray(((self.float(x) / 255 - 0.45) / 0.22).transpose(0, 3, 1, 2))

    def permute(self, x):
        return self.xp.ascontiguousarray(x.transpose(2, 0, 3, 1))

    def horner_f64(self, x):
        y = x * 0.01 + 0.3
        for i in range(8):
            y = y * x + 0.1 * i
        return self.xp.exp(y * 1e-3).sum(1)

    def batch_statistics(self, x):
        mean = x.mean((0, 2, 3))[:, None, None]
        var = ((x - mean) ** 2).mean((0, 2, 3))[:, None, None]
        return self.at_least((x - mean) / self.xp.sqrt(var + 1e-5), 0)

    def window_max(self, x):
        y = x[:, :4996]
        for i in range(1, 5):
            y = self.xp.maximum(y, x[:, i : 4996 + i])
        return y

    def windows(self, x, side):
        i = np.arange(side)
        rows, columns = (np.arange(n - side + 1)[:, None] + i for n in x.shape)
        return x[rows[:, None, :, None], columns[None, :, None, :]]

    def dilate(self, x):
        return self.xp.amax(self.windows(x, 3), (2, 3))

    def local_contrast(self, x):
        w = self.windows(x, 5)
        return self.std(w, (2, 3)) / (self.xp.abs(w.mean((2, 3))) + 1)

    def std(self, x, axes):
        return x.std(axes)

    def kmeans(self, x, centers):
        nearest = ((x[:, None] - centers) ** 2).sum(-1).argmin(-1)
        counts = self.segment_sum(self.xp.ones_like(x[:, 0]), nearest, 30)
        return self.segment_sum(x, nearest, 30) / self.at_least(counts, 1)[:, None]

    def logsumexp(self, x):
        top = x.max(0)
        return np.log(np.exp(x - top).sum(0)) + top

    def forward_algorithm(self, x, m):
        at = x[0]
        for t in range(1, 60):
            at = self.logsumexp(at[:, None] + m) + x[t]
        return self.logsumexp(at)

    def follow_scan(self, x):
        def step(level, x):
            kept = self.xp.where(x > level, np.float32(0.6), np.float32(0.95))
            level = kept * level + (1 - kept) * x
            return level, level

        return self.scan(step, self.xp.zeros(40, np.float32), abs(x))

    def prey_scan(self, x, y):
        change = lambda a, b: (a * (1 - b), b * (a - np.float32(1.5)))
        dt = np.float32(0.01)

        def step(state, _):
            a, b = state
            da, db = change(a, b)
            ea, eb = change(a + dt * da, b + dt * db)
            a = a + dt / 2 * (da + ea)
            return (a, b + dt / 2 * (db + eb)), a

        return self.scan(step, (self.xp.exp(x * 0.1), self.xp.exp(y * 0.1)), self.xp.zeros(800))

    def recurrent_scan(self, x, u):
        u = u * np.float32(0.1)

        def step(h, x):
            h = self.xp.tanh(x + h @ u)
            return h, h

        return self.scan(step, self.xp.zeros((9, 64), np.float32), x)

    def unpack_bits(self, x):
        return (x[:, None] >> self.xp.arange(8, dtype=self.xp.uint8)) & 1

    def sort(self, x):
        return self.xp.sort(x)

    sort_i16 = sort_u8 = sort_f64 = sort

    def argsort(self, x):
        return self.xp.argsort(x, kind="stable")

    argsort_i64 = argsort

    def median(self, x):
        return self.xp.median(x, 1)

    def searchsorted(self, x, values):
        return self.xp.searchsorted(self.sort(x), values)

    def cumprod(self, x):
        return self.xp.cumprod(x * 0.01 + 1, 1)

    def cumsum_columns(self, x):
        return self.xp.cumsum(x, 1)

    def cumsum_i32(self, x):
        return self.xp.cumsum(x, 1)

    def take_columns(self, x, at):
        return x[:, at]

    def take_along(self, x, at):
        return self.xp.take_along_axis(x, at, 1)

    def distances(self, x, y):
        return self.xp.sqrt(((x[:, None] - y) ** 2).sum(-1))

    def max_middle(self, x):
        return self.max(x, 1)

    def half_gelu(self, x):
        return x * self.sigmoid(x * 1.7) + 0.1

    def one_hot(self, x):
        return (x[:, None] == self.xp.arange(45)).astype(np.float32)


class NumpyUserKinds(UserKinds):
    def __init__(self, engine):
        super().__init__(np)

    def scan(self, step, state, xs):
        results = []
        for x in xs:
            state, result = step(state, x)
            results.append(result)
        return np.stack(results)

    def windows(self, x, side):
        return np.lib.stride_tricks.sliding_window_view(x, (side, side))

    def segment_sum(self, x, segments, count):
        if x.ndim == 1:
            return np.bincount(segments, x, count).astype(np.float32)
        sums = np.zeros((count, *x.shape[1:]), np.float32)
        np.add.at(sums, segments, x)
        return sums

    def pad(self, x, before, after):
        return np.pad(x, ((0, 0), (before, after)))[:, : x.shape[1] + 5] if before or after else x

    def embedding_gradient(self, table, at):
        gradient = np.zeros_like(table)
        np.add.at(gradient, at, 1 - np.tanh(table[at]) ** 2)
        return gradient

    def cross_entropy_gradient(self, x, target):
        p = self.softmax(x, 1)
        p[np.arange(len(x)), target] -= 1
        return p / np.float32(len(x))

    def scatter_max(self, at, x):
        result = np.full(7000, -9, np.float32)
        np.maximum.at(result, at, x)
        return result

    def uniform(self):
        return np.float32((np.random.default_rng().random(4_000_000, np.float32) < 2).sum())

    def normal(self):
        return np.float32((np.random.default_rng().standard_normal(3_000_000, np.float32) < 50).sum())


class TorchUserKinds(UserKinds):
    f32 = float
    follow_scan = prey_scan = recurrent_scan = None  # torch.compile unrolls such loops

    def __init__(self, engine):
        super().__init__(engine.torch)
        self.torch, self.e = engine.torch, engine
        self.sigmoid, self.functional = self.torch.sigmoid, self.torch.nn.functional
        self.complex = self.torch.complex

    def at_least(self, x, low):
        return self.torch.clamp_min(x, low)

    def softmax(self, x, axis):
        return self.torch.softmax(x, axis)

    def pad_concat(self, x, y):
        pad = self.functional.pad
        return self.torch.cat([pad(x, (0, 0, 3, 2)), pad(y, (0, 0, 1, 4)), x * 2], 0)

    def windows(self, x, side):
        return x.unfold(0, side, 1).unfold(1, side, 1)

    def places_above(self, x):
        return self.torch.nonzero(x > 1)[:, 0]

    def std(self, x, axes):
        return x.std(axes, correction=0)

    def segment_sum(self, x, segments, count):
        return self.torch.zeros((count, *x.shape[1:])).index_add(0, segments, x)

    def with_gradient(self, value, x, others):
        """The gradient with respect to x: rows run without autograd, so it is of copies."""
        with self.torch.inference_mode(False), self.torch.enable_grad():
            x, others = x.clone().requires_grad_(True), [other.clone() for other in others]
            return self.torch.autograd.grad(value(x, *others), x)[0]

    def embedding_gradient(self, table, at):
        return self.with_gradient(lambda t, at: self.torch.tanh(self.functional.embedding(at, t)).sum(), table, [at])

    def cross_entropy_gradient(self, x, target):
        return self.with_gradient(lambda x, target: self.functional.cross_entropy(x, target), x, [target])

    def mlp_gradient(self, x, y, w, u):
        def loss(w, u, x, y):
            return ((self.torch.tanh(x @ (w * 0.1)) @ (u * 0.1) - y) ** 2).mean()

        return self.with_gradient(loss, w, [u, x, y])

    def repeat(self, x):
        return self.torch.repeat_interleave(x, 3, 1)

    def twice(self, x, axis):
        return self.torch.repeat_interleave(x, 2, axis)

    def masked_mean(self, x):
        mask = x > 0.3
        return self.torch.where(mask, x, 0).sum(1) / mask.sum(1)

    def rescale_i8(self, x):
        return self.torch.clamp(self.torch.round((x.float() - 3) * 0.7 + 0.5), -128, 127).to(self.torch.int8)

    def i32(self, x):
        return x.int()

    def u8(self, x):
        return x.to(self.torch.uint8)

    def float(self, x):
        return x.float()

    def whole(self, x):
        return x.long()

    def copy(self, x):
        return x.clone()

    def dense(self, x):
        return x.contiguous()

    def max(self, x, axis):
        return self.torch.amax(x, axis)

    def bins(self, x):
        return self.torch.clamp(self.torch.floor(x * 8 + 24), 0, 47).long()

    def scatter_max(self, at, x):
        return self.torch.full((7000,), -9.0).scatter_reduce(0, at, x, "amax")

    def image_to_planes(self, x):
        return ((x.float() / 255 - 0.45) / 0.22).permute(0, 3, 1, 2).contiguous()

    def permute(self, x):
        return x.permute(2, 0, 3, 1).contiguous()

    def logsumexp(self, x):
        return self.torch.logsumexp(x, 0)

    def sort(self, x):
        return self.torch.sort(x)[0]

    sort_i16 = sort_u8 = sort_f64 = sort

    def argsort(self, x):
        return self.torch.argsort(x, stable=True)

    argsort_i64 = argsort

    def median(self, x):
        return self.torch.median(x, 1)[0]

    def topk_indices(self, x):
        return self.torch.topk(x, 5)[1]

    def top_33(self, x):
        return self.torch.topk(x, 33)[1]

    def take_along(self, x, at):
        return self.torch.take_along_dim(x, at, 1)

    def one_hot(self, x):
        return self.functional.one_hot(x, 45).float()

    def depthwise_5x5(self, x, w):
        return self.functional.conv2d(x, w, None, 1, 2, 1, 64)

    def blur(self, x, w):
        return self.functional.conv2d(x, w, None, 1, (3, 0))

    def conv1d(self, x, w):
        return self.functional.conv1d(x, w, None, 1, 2)

    def uniform(self):
        return (self.torch.rand(4_000_000) < 2).float().sum()

    def normal(self):
        return (self.torch.randn(3_000_000) < 50).float().sum()

    def adam(self, inputs):
        """A step over 120 parameters; inputs: values, then gradients."""
        values = [x.clone().requires_grad_(True) for x in inputs[:120]]
        for value, gradient in zip(values, inputs[120:]):
            value.grad = gradient
        optimizer = self.torch.optim.Adam(values, lr=1e-3, fused=True)

        def run():
            optimizer.step()
            return []

        return run


class JaxUserKinds(UserKinds):
    hash_i64 = sort_f64 = argsort_i64 = horner_f64 = waves_f64 = scattered_i64 = None
    places_above = None  # a size that the data decide

    def argsort(self, x):
        return self.xp.argsort(x, stable=True)

    def __init__(self, engine):
        super().__init__(engine.jnp)
        self.jax, self.sigmoid = engine.jax, engine.jax.nn.sigmoid
        self.softmax, self.complex = engine.jax.nn.softmax, engine.jax.lax.complex

    def scan(self, step, state, xs):
        return self.jax.lax.scan(step, state, xs)[1]

    def segment_sum(self, x, segments, count):
        return self.jax.ops.segment_sum(x, segments, count)

    def pad_concat(self, x, y):
        pad = lambda x, a, b: self.xp.pad(x, ((a, b), (0, 0)))
        return self.xp.concatenate([pad(x, 3, 2), pad(y, 1, 4), x * 2], 0)

    def embedding_gradient(self, table, at):
        return self.jax.grad(lambda t: self.xp.tanh(t[at]).sum())(table)

    def cross_entropy_gradient(self, x, target):
        picked = lambda x: -self.xp.take_along_axis(self.jax.nn.log_softmax(x), target[:, None], 1).mean()
        return self.jax.grad(picked)(x)

    def mlp_gradient(self, x, y, w, u):
        loss = lambda w, u: ((self.xp.tanh(x @ (w * 0.1)) @ (u * 0.1) - y) ** 2).mean()
        return self.jax.grad(loss)(w, u)

    def wave(self, start):
        now = before = start
        for i in range(6):
            x, y = (before, now) if i % 2 else (now, before)
            y = y.at[1:-1, 1:-1, 1:-1].set(self.wave_step(x, y))
            before, now = (x, y) if i % 2 else (y, x)
        return now

    def histogram_2d(self, x, y):
        return self.xp.bincount(self.bins(x) * 48 + self.bins(y), length=48 * 48)

    def scatter_max(self, at, x):
        return self.xp.full(7000, -9.0).at[at].max(x)

    def image_to_planes(self, x):
        return ((self.float(x) / 255 - 0.45) / 0.22).transpose(0, 3, 1, 2)

    def permute(self, x):
        return x.transpose(2, 0, 3, 1) + 0

    def logsumexp(self, x):
        return self.jax.nn.logsumexp(x, 0)

    def topk_indices(self, x):
        return self.jax.lax.top_k(x, 5)[1]

    def top_33(self, x):
        return self.jax.lax.top_k(x, 33)[1]

    def one_hot(self, x):
        return self.jax.nn.one_hot(x, 45)

    def convolution(self, x, w, pads, groups=1):
        return self.jax.lax.conv_general_dilated(x, w, (1,) * len(pads), pads, feature_group_count=groups)

    def depthwise_5x5(self, x, w):
        return self.convolution(x, w, ((2, 2), (2, 2)), 64)

    def blur(self, x, w):
        return self.convolution(x, w, ((3, 3), (0, 0)))

    def conv1d(self, x, w):
        return self.convolution(x, w, ((2, 2),))

    def uniform(self):
        return (self.jax.random.uniform(self.jax.random.key(0), (4_000_000,)) < 2).astype(self.xp.float32).sum()

    def normal(self):
        return (self.jax.random.normal(self.jax.random.key(0), (3_000_000,)) < 50).astype(self.xp.float32).sum()

    def adam(self, inputs):
        jnp = self.xp

        def step(values, gradients, means, squares, rate, scale):
            means = [m * 0.9 + g * 0.1 for m, g in zip(means, gradients)]
            squares = [s * 0.999 + g * g * 0.001 for s, g in zip(squares, gradients)]
            values = [v - m * rate / (jnp.sqrt(s * scale) + 1e-8) for v, m, s in zip(values, means, squares)]
            return values, means, squares

        compiled = self.jax.jit(step, donate_argnums=(0, 2, 3))
        gradients = inputs[120:]
        state = [[x + 0 for x in inputs[:120]], *([x * 0 for x in gradients] for _ in range(2)), 0]

        def run():
            state[3] += 1
            rate, scale = 1e-3 / (1 - 0.9 ** state[3]), 1 / (1 - 0.999 ** state[3])
            state[:3] = compiled(state[0], gradients, state[1], state[2], rate, scale)
            return []

        return run


ROWS = ["group_means_400K", "one_hot_70Kx45", "embedding_gradient_20Kx48", "cross_entropy_gradient_3000x900",
        "masked_attention_10x300x44", "gated_30_steps", "roll_laplacian_900x1100", "pad_concat_900x1300", "tile_70x31x17",
        "flip_scale_100x130x150", "turned_scale_150x130x100", "reversed_sums_2000x1500",
        "repeat_3000x170", "mix_i16_5M", "hash_i64_2M", "count_masks_5M", "masked_mean_3000x1100", "rescale_i8_7M",
        "blend_u8_2x1300x1700", "smooth_u8_1300x1700",
        "gray_u8_900x1100x4", "lengths_600Kx3", "angles_130Kx10", "limit_u8_800Kx5",
        "life_1500x1500", "shortest_paths_240", "hsv_700Kx3", "rotary_4x400x12x64",
        "turned_i16_2048", "reversed_axes_8x128x1024", "tone_curve_6M", "palette_900K",
        "columns_over_norm_1024x1024", "quarter_turn_2048x2048", "max_middle_256x256x64", "enlarge_1024x1024",
        "every_third_20000x330", "flipped_rows_20000x330", "even_columns_2000x2000", "row_sums_40Kx100",
        "transposed_sums_1100x1300", "plane_sums_5000x21x21", "byte_sums_2000x1700", "sort_triples_160Kx3",
        "argsort_rows_70Kx7", "column_squares_10Kx100", "standardize_features_100Kx10", "standardize_vector_1M",
        "segment_sums_65536x32", "sum_transposed_1024x1024", "transposed_max_i16_1024", "stretched_u8_1500x1500",
        "julia_300K", "phase_shift_80x1009", "fft2_odd_8x135x147", "rfft_300K", "solve_40Kx3x3", "inv_9Kx7x7",
        "eigenvalues_9Kx5x5", "log_determinants_900x24x24", "short_softmax_31Kx32", "waves_2M", "waves_f64_700K",
        "scattered_i64_900K", "places_above_2M",
        "quadratic_forms_50Kx7", "matvec_6000x30x30", "small_products_20Kx6x5", "sum_of_outer_60Kx11",
        "covariances_700x60x9", "wave_6_steps_60x70x80", "ragged_40_parts", "mean_of_views_90x200x330",
        "histogram_2d_2M", "bilinear_500K", "scatter_max_600K", "image_to_planes_20x170x190", "permute_40x130x37x3",
        "mlp_gradient_90x200x300", "horner_f64_900x1100", "batch_statistics_32x40x27x27", "window_max_300x5000",
        "dilate_700x900", "local_contrast_500x700",
        "kmeans_20Kx30x9", "forward_algorithm_60x50", "follow_scan_3000x40", "prey_scan_800x350",
        "recurrent_scan_200x9x64", "unpack_bits_900K", "sort_i16_3M", "sort_u8_900x5000",
        "sort_f64_700K", "argsort_i64_500K", "median_30Kx61", "topk_indices_4000x700", "top_33_2000x515",
        "unit_vectors_300Kx3", "crop_colors_12x230x240x3", "flip_where_16x170x160x3", "byte_row_sums_50Kx32",
        "searchsorted_600K",
        "cumprod_500x4000", "cumsum_columns_70Kx30", "cumsum_i32_900x6000", "depthwise_5x5_6x64x41x41",
        "blur_3x900x1100", "conv1d_16x40x2000", "take_columns_3000x700", "take_along_300Kx5", "distances_1100x900x5",
        "max_middle_60x3000x7", "uniform_4M", "normal_3M", "half_gelu_5M"]


def rows(kinds):
    """{row: function of its inputs}: the method whose name the row begins with; the longest one."""
    names = [name for name in dir(kinds) if not name.startswith("_") and callable(getattr(kinds, name))]
    table = {}
    for row in ROWS:
        fitting = [name for name in names if row == name or row.startswith(name + "_")]
        if fitting:
            table[row] = getattr(kinds, max(fitting, key=len))
    return table
