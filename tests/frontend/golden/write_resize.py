#!/usr/bin/env python3
"""Writes resize.txt: what ONNX's reference and PyTorch give for resize().

Needs onnx and torch; the tests read the file only. Each line: a name, the fields of ResizeOptions in their order
(enumerations as numbers, lists and tensors with their lengths and shapes before them), x and the result.
"""
import pathlib

import numpy as np
import onnx
import onnx.backend.test.case.node.resize
import torch
from onnx.backend.test.case.node import collect_testcases

MODES = ["nearest", "linear", "cubic"]
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_half_pixel_for_nn", "tf_crop_and_resize"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
ASPECT_RATIOS = ["stretch", "not_larger", "not_smaller"]


def listed(numbers):
    return f"{len(numbers)} {' '.join(map(str, numbers))}".rstrip()


def tensor(a):
    a = np.asarray(a, np.float64)
    return f"{listed(a.shape)} {' '.join(f'{v:.9g}' for v in a.ravel())}"


def line(name, size, scale, axes, mode, coordinates, nearest, a, antialias, exclude, aspect, roi, outside, x, y):
    return (f"{name} {listed(size)} {listed(scale)} {listed(axes)} {mode} {coordinates} {nearest} {a} {antialias} "
            f"{exclude} {aspect} {listed(roi)} {outside} {tensor(x)} {tensor(y)}")


def onnx_lines():
    for case in collect_testcases("Resize"):
        if not case.name.startswith("test_resize"):
            continue
        node = case.model.graph.node[0]
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        text = lambda name, default: given[name].decode() if name in given else default
        inputs, outputs = case.data_sets[0]
        values = dict(zip((i.name for i in case.model.graph.input), inputs))
        operand = lambda k: values[node.input[k]].ravel().tolist() if len(node.input) > k and node.input[k] else []
        coordinates = text("coordinate_transformation_mode", "half_pixel")
        yield line(case.name.removeprefix("test_resize_"), operand(3), operand(2), list(given.get("axes", [])),
                   MODES.index(text("mode", "nearest")), COORDINATES.index(coordinates),
                   NEAREST.index(text("nearest_mode", "round_prefer_floor")), given.get("cubic_coeff_a", -0.75),
                   given.get("antialias", 0), given.get("exclude_outside", 0),
                   ASPECT_RATIOS.index(text("keep_aspect_ratio_policy", "stretch")),
                   operand(1) if coordinates == "tf_crop_and_resize" else [], given.get("extrapolation_value", 0.0),
                   values[node.input[0]], outputs[0])


def torch_lines():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 7, 9, dtype=torch.float64)
    for name, mode in (("bilinear", 1), ("bicubic", 2)):
        for size in ((3, 4), (12, 5), (7, 2), (1, 1)):
            for corners in (False, True):
                y = torch.nn.functional.interpolate(x, size=size, mode=name, align_corners=corners)
                yield line(f"torch_{name}", size, [], [2, 3], mode, 3 if corners else 0, 0, -0.75, 0, 0, 0, [], 0, x, y)
            y = torch.nn.functional.interpolate(x, size=size, mode=name, antialias=True)
            yield line(f"torch_antialias_{name}", size, [], [2, 3], mode, 0, 0, -0.5, 1, 1, 0, [], 0, x, y)


def main():
    path = pathlib.Path(__file__).with_name("resize.txt")
    path.write_text("\n".join([*onnx_lines(), *torch_lines()]) + "\n")


if __name__ == "__main__":
    main()
