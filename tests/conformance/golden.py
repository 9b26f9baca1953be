#!/usr/bin/env python3
"""Writes golden/*.txt: what NumPy gives for the rows of frontend/coverage/*.def that say how to ask it.

Needs numpy 2, scipy and ml_dtypes. The tests read the files only; run this after a row has been added or changed:
    tests/conformance/golden.py
Each line: function, number of the result, dtype kind (b, i, f, c), sizes, values as hexadecimal floats.
"""
import math
import pathlib
import re

import ml_dtypes as md
import numpy as np
import scipy.fft as sf
import scipy.linalg as sl
import scipy.signal.windows as sw
import scipy.special as sp

HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE.parents[1] / "frontend" / "coverage"
ROW = re.compile(r'^FERMATA_STANDARD\((\w+), (\w+), "([^"]*)", (.*), "([^"]*)"\)$', re.M)
GOLDEN_RATIO = 0.6180339887498949


def fraction(i, k):
    return math.modf(float(7 * i + 3 * k + 1) * GOLDEN_RATIO)[0]


def scattered(i, k):
    return ((i * i * i * 7 + i * 131 + k * 977 + 13) * 2654435761 % 2 ** 32) / 2 ** 32


def spd(values, shape):
    """a a^T / 4 + 2: symmetric and positive definite."""
    a = values.reshape(shape)
    return a @ np.swapaxes(a, -1, -2) / 4 + 2 * np.eye(shape[-1])


def sample(text, k):
    """The input of the coverage table (frontend/coverage/samples.cpp)."""
    domain, limit, sizes = re.fullmatch(r"(\w+)(?:\((\d+)\))?\[([\d,]*)\]", text).groups()
    shape = tuple(int(s) for s in sizes.split(",") if s)
    count = math.prod(shape)
    u = np.array([fraction(i, k) for i in range(2 * count if domain == "complex" else count)], np.float64)
    values = {
        "any": lambda: -2 + 4 * u,
        "complex": lambda: (-2 + 4 * u).view(np.complex128),
        "spd": lambda: spd(-2 + 4 * u, shape),
        "scattered": lambda: np.array([-2 + 4 * scattered(i, k) for i in range(count)], np.float64),
        "unit": lambda: -0.9 + 1.8 * u,
        "positive": lambda: 0.3 + 2 * u,
        "above_one": lambda: 1.1 + 2 * u,
        "boolean": lambda: u >= 0.5,
        "truth": lambda: u >= 0.5,
        "integer": lambda: np.floor(-3 + 7 * u).astype(np.int64),
        "index": lambda: np.floor(int(limit) * u).astype(np.int64),
    }[domain]()
    return values.reshape(shape)


def put(x, at, values):
    y = x.copy()
    y[at] = values
    return y


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def rounded(x, dtype, most):
    return np.clip(x, -most, most).astype(dtype).astype(np.float64)


def mx(x, width, dtype, most):
    """Blocks with scales that are powers of two: OCP Microscaling formats 1.0, 6.3."""
    parts = x.reshape(*x.shape[:-1], -1, width)
    scale = 2.0 ** (np.floor(np.log2(np.abs(parts).max(-1))) - math.floor(math.log2(most)))
    return [rounded(parts / scale[..., None], dtype, most).reshape(x.shape), scale]


def dense_mx(x, width):
    values, scale = mx(x, width, md.float4_e2m1fn, 6)
    return values * np.repeat(scale, width, -1)


def conv2d(x, w, stride, padding, groups):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride[0], ::stride[1]]
    parts = []
    for g in range(groups):
        inputs = slice(g * w.shape[1], (g + 1) * w.shape[1])
        outputs = slice(g * w.shape[0] // groups, (g + 1) * w.shape[0] // groups)
        parts.append(np.einsum("nchwij,ocij->nohw", windows[:, inputs], w[outputs]))
    return np.concatenate(parts, 1)


def conv_transpose1d(x, w, stride):
    y = np.zeros((x.shape[0], w.shape[1], (x.shape[2] - 1) * stride + w.shape[2]))
    for t in range(x.shape[2]):
        y[:, :, t * stride:t * stride + w.shape[2]] += np.einsum("nc,cok->nok", x[:, :, t], w)
    return y


def stft(x, frame, hop, window, center):
    x = np.pad(x, ((0, 0), (frame // 2, frame // 2)), "reflect") if center else x
    frames = np.lib.stride_tricks.sliding_window_view(x, frame, 1)[:, ::hop]
    return np.swapaxes(np.fft.rfft(frames * window), 1, 2)


def fold(windows, length, step):
    y = np.zeros((windows.shape[0], length))
    for t in range(windows.shape[1]):
        y[:, t * step:t * step + windows.shape[2]] += windows[:, t]
    return y


def unpool(x, index, length):
    y = np.zeros((*x.shape[:2], length))
    for n, c, i in np.ndindex(x.shape):
        y[n, c, index[n, c, i]] = x[n, c, i]
    return y


def ctc(log_probs, targets):
    """By the list of all alignments."""
    steps, batch, classes = log_probs.shape
    losses = []
    for n in range(batch):
        total = 0.0
        for path in np.ndindex(*[classes] * steps):
            kept = [c for t, c in enumerate(path) if c != 0 and (t == 0 or path[t - 1] != c)]
            if kept == list(targets[n]):
                total += math.exp(sum(log_probs[t, n, c] for t, c in enumerate(path)))
        losses.append(-math.log(total))
    return np.array(losses)


def nadam(x, g):
    now, later = (0.9 * (1 - 0.5 * 0.96 ** (k * 4e-3)) for k in (1, 2))
    moved = (1 - now) / (1 - now) * g + later / (1 - now * later) * 0.1 * g
    return x - 2e-3 * moved / (np.abs(g) + 1e-8)


def muon(x, g):
    m = 0.05 * g
    y = 0.05 * g + 0.95 * m
    y = y / np.sqrt(np.sum(y * y))
    for _ in range(5):
        a = y @ y.T
        y = 3.4445 * y + (-4.775 * a + 2.0315 * a @ a) @ y
    return x * (1 - 1e-3 * 0.1) - 1e-3 * y


def text_of(value):
    return float(value).hex() if math.isfinite(value) else repr(float(value))


def lines_of(name, inputs, expression):
    given = [sample(one, k) for k, one in enumerate(inputs.split())]
    names = dict(zip("xyz", given), np=np, sp=sp, sw=sw, sf=sf, sl=sl, math=math, stft=stft, put=put, softmax=softmax,
                 conv2d=conv2d, conv_transpose1d=conv_transpose1d, fold=fold, unpool=unpool, ctc=ctc, nadam=nadam,
                 muon=muon, rounded=rounded, mx=mx, dense_mx=dense_mx, md=md)
    with np.errstate(all="ignore"):
        result = eval(expression, names)  # an expression of a file of this repository
    results = result if isinstance(result, (list, tuple)) else [result]
    for number, one in enumerate(results):
        one = np.asarray(one)
        kind = {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}[one.dtype.kind]
        flat = one.ravel().astype(np.complex128).view(np.float64) if kind == "c" else one.ravel().astype(np.float64)
        values = " ".join(text_of(v) for v in flat)
        yield f"{name} {number} {kind} [{','.join(map(str, one.shape))}] {values}".rstrip()


def main():
    for path in sorted(ROWS.glob("*.def")):
        lines = []
        for name, _, inputs, _, expression in ROW.findall(path.read_text()):
            if expression:
                lines += lines_of(name, inputs, expression)
        (HERE / "golden" / f"{path.stem}.txt").write_text("\n".join(lines) + "\n")
        print(f"{path.stem}: {len(lines)} results")


if __name__ == "__main__":
    main()
