#!/usr/bin/env python3
"""Runs an exported program by ctypes, without Fermata's engine and without any Python package.

usage: run.py FILE [SIZE]

Inputs are 0, 1, 2 ...; axes that are dynamic have SIZE elements, by default 1. FERMATA_RUN_LIBRARY names
libfermata_run.so where the system does not find it.
"""
import ctypes
import math
import os
import sys

DTYPES = {  # the enumeration fermata_dtype
    0: ("bool", ctypes.c_bool), 1: ("u8", ctypes.c_uint8), 2: ("u16", ctypes.c_uint16), 3: ("u32", ctypes.c_uint32),
    4: ("u64", ctypes.c_uint64), 5: ("i8", ctypes.c_int8), 6: ("i16", ctypes.c_int16), 7: ("i32", ctypes.c_int32),
    8: ("i64", ctypes.c_int64), 11: ("f32", ctypes.c_float), 12: ("f64", ctypes.c_double),
}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("sizes", ctypes.POINTER(ctypes.c_int64))]

    def shape(self):
        return [self.sizes[i] for i in range(self.rank)]


class Program:
    def __init__(self, path):
        self.lib = ctypes.CDLL(os.environ.get("FERMATA_RUN_LIBRARY", "libfermata_run.so"))
        self.lib.fermata_last_error.restype = ctypes.c_char_p
        for name in ("input_name", "output_name"):
            getattr(self.lib, "fermata_program_" + name).restype = ctypes.c_char_p
        for name in ("program_input_count", "program_output_count", "results_count"):
            getattr(self.lib, "fermata_" + name).restype = ctypes.c_size_t
        self.lib.fermata_program_input.restype = self.lib.fermata_results_get.restype = Tensor
        self.handle = ctypes.c_void_p()
        self.check(self.lib.fermata_program_load(path.encode(), ctypes.byref(self.handle)))

    def __del__(self):
        if getattr(self, "handle", None):
            self.lib.fermata_program_free(self.handle)

    def check(self, code):
        if code != 0:
            raise RuntimeError(self.lib.fermata_last_error().decode())

    def inputs(self):
        for i in range(self.lib.fermata_program_input_count(self.handle)):
            index = ctypes.c_size_t(i)
            name = self.lib.fermata_program_input_name(self.handle, index).decode()
            yield name, self.lib.fermata_program_input(self.handle, index)

    def run(self, tensors):
        """(name, dtype, sizes, elements) of each output."""
        inputs = (Tensor * len(tensors))(*tensors)
        results = ctypes.c_void_p()
        self.check(self.lib.fermata_program_run(self.handle, inputs, ctypes.c_size_t(len(tensors)),
                                                ctypes.byref(results)))
        outputs = []
        for i in range(self.lib.fermata_results_count(results)):
            index = ctypes.c_size_t(i)
            tensor = self.lib.fermata_results_get(results, index)
            name, element = DTYPES[tensor.dtype]
            count = math.prod(tensor.shape())
            elements = list((element * count).from_address(tensor.data)) if count else []
            outputs.append((self.lib.fermata_program_output_name(self.handle, index).decode(), name, tensor.shape(),
                            elements))
        self.lib.fermata_results_free(results)
        return outputs


def main():
    program = Program(sys.argv[1])
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    tensors, kept = [], []
    for name, tensor in program.inputs():
        dtype, element = DTYPES[tensor.dtype]
        print(f"{name}: {dtype} [{', '.join('any' if s < 0 else str(s) for s in tensor.shape())}]")
        shape = [size if s < 0 else s for s in tensor.shape()]
        data = (element * math.prod(shape))(*range(math.prod(shape)))
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        kept += [data, sizes]
        tensors.append(Tensor(ctypes.cast(data, ctypes.c_void_p), tensor.dtype, len(shape), sizes))
    for name, dtype, shape, elements in program.run(tensors):
        print(f"{name}: {dtype} {shape}", *(f"{x:.6g}" for x in elements[:8]))


if __name__ == "__main__":
    main()
