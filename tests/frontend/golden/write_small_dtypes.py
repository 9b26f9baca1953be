#!/usr/bin/env python3
"""Writes tests/frontend/golden/small_dtypes.txt: what ml_dtypes makes of numbers of 8 bits and fewer.

  pip install numpy ml_dtypes   # 0.6.0
  python3 tests/frontend/golden/write_small_dtypes.py

Lines `decode DTYPE` list the f32 bits of every bit pattern. Lines `encode DTYPE` list pairs of f32 bits and codes: every
number of the dtype, the middle between each two, the f32 beside both, and numbers out of range. Lines `halves DTYPE` have
the CRC-32 of the codes of all 65536 numbers of f16, NaN as one code.
"""
import pathlib
import zlib

import ml_dtypes
import numpy as np

FLOATS = {
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f4e2m1fn": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}


def bits(x):
    return np.asarray(x, np.float32).view(np.uint32)


def encoded(x, dtype):
    return np.asarray(x).astype(dtype).view(np.uint8)


lines = []
for name, dtype in FLOATS.items():
    codes = np.arange(16 if name.startswith("f4") else 256, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float32)
    lines.append(f"decode {name} " + " ".join("nan" if np.isnan(v) else f"{bits(v):08x}" for v in values))
    finite = np.unique(values[np.isfinite(values)])
    middle = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    numbers = np.concatenate([finite, middle]).astype(np.float32)
    big = np.abs(finite).max()
    beyond = np.float32([big * 1.03, big * 1.0625, big * 1.125, big * 1.25, big * 2, 1e6, 3e38, np.inf, 1e-20, 1e-45, 0])
    numbers = np.concatenate([numbers, np.nextafter(numbers, np.float32(np.inf)),
                              np.nextafter(numbers, np.float32(-np.inf)), beyond, -beyond])
    pairs = zip(bits(numbers), encoded(numbers, dtype))
    lines.append(f"encode {name} " + " ".join(f"{b:08x}:{c:02x}" for b, c in pairs))
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    codes = encoded(halves, dtype).copy()
    codes[np.isnan(halves)] = encoded(np.float32([np.nan]), dtype)[0]
    lines.append(f"halves {name} {zlib.crc32(codes.tobytes()):08x}")
for name, dtype in INTEGERS.items():
    codes = np.arange(4 if name.endswith("2") else 16, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float32)
    lines.append(f"decode {name} " + " ".join(f"{bits(v):08x}" for v in values))
    numbers = np.arange(-40, 41, dtype=np.int32)
    wrapped = numbers.astype(dtype).astype(np.int32)
    lines.append(f"wrap {name} " + " ".join(str(v) for v in wrapped))
target = pathlib.Path(__file__).parent / "small_dtypes.txt"
target.write_text("\n".join(lines) + "\n")
