#!/usr/bin/env python3
"""Writes arrays.npz and arrays_compressed.npz with NumPy.

usage: write_arrays.py FOLDER
"""
import pathlib
import sys

import numpy as np


def main():
    arrays = {
        "floats": np.arange(6, dtype=np.float32).reshape(2, 3) / 2,
        "columns": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "big_endian": np.array([1, 2, 3], dtype=">u4"),
        "scalar": np.array(True),
        "many": np.ones(10000, dtype=np.int8),
    }
    folder = pathlib.Path(sys.argv[1])
    np.savez(folder / "arrays.npz", **arrays)
    np.savez_compressed(folder / "arrays_compressed.npz", **arrays)


if __name__ == "__main__":
    main()
