#!/usr/bin/env python3
"""Writes the node tests of the Python package onnx: for each a folder with the model, its inputs and its outputs.

usage: onnx_node_tests.py FOLDER
"""
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def message_of(value, kind):
    if isinstance(value, onnx.TensorProto):
        return value
    if kind.HasField("sequence_type"):
        return numpy_helper.from_list(value)
    if kind.HasField("optional_type"):
        return numpy_helper.from_optional(value)
    return numpy_helper.from_array(numpy.asarray(value))


def main():
    for case in collect_testcases(None):
        folder = pathlib.Path(sys.argv[1]) / case.name
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        inputs, outputs = case.data_sets[0]
        for name, values, described in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for i, (value, info) in enumerate(zip(values, described)):
                (data / f"{name}_{i}.pb").write_bytes(message_of(value, info.type).SerializeToString())


if __name__ == "__main__":
    main()
