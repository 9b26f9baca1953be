#!/usr/bin/env python3
"""Writes images.safetensors: what PyTorch, torchvision and ONNX's reference give for samples of images and for pools.

usage: write_images.py FILE

Needs torch, torchvision and onnx. Each case NAME has inputs NAME/x0.., options where they are numbers, NAME/o, and
results NAME/y0...
"""
import sys

import onnx.backend.test.case.node.nonmaxsuppression
import onnx.backend.test.case.node.roialign
import torch
import torchvision
from onnx import helper
from onnx.backend.test.case.node import collect_testcases
from torch.nn import functional as F
from write_modules import keep, write

REAL = torch.float64


def case(name, inputs, results, options=()):
    for k, x in enumerate(inputs):
        keep(f"{name}/x{k}", torch.as_tensor(x))
    for k, y in enumerate(results):
        keep(f"{name}/y{k}", torch.as_tensor(y))
    if options:
        keep(f"{name}/o", torch.tensor(options, dtype=REAL))


def grids():
    for axes, sizes, places in ((2, (5, 4), (3, 6)), (3, (3, 4, 5), (2, 3, 2))):
        x, grid = torch.randn(2, 3, *sizes, dtype=REAL), torch.randn(2, *places, axes, dtype=REAL) * 1.2
        for m, mode in enumerate(("nearest", "bilinear", "bicubic")[:4 - axes + 1]):
            for p, padding in enumerate(("zeros", "border", "reflection")):
                for corners in (False, True):
                    y = F.grid_sample(x, grid, mode, padding, corners)
                    case(f"grid_sample{axes}d_{mode}_{padding}_{corners}", (x, grid), (y,), (m, p, corners))
        theta = torch.randn(2, axes, axes + 1, dtype=REAL)
        case(f"affine_grid{axes}d", (theta,), [F.affine_grid(theta, (2, 3, *sizes), c) for c in (False, True)])


def regions():
    x = torch.randn(2, 3, 7, 9, dtype=REAL)
    boxes = torch.tensor([[0, 0, 0, 4, 3], [1, -2.5, 1.2, 7.7, 9.1], [1, 3, 3, 3.5, 3.25], [0, 6, 5, 12, 11]], dtype=REAL)
    for ratio in (0, 2):
        for aligned in (False, True):
            y = torchvision.ops.roi_align(x, boxes, (3, 2), 0.75, ratio, aligned)
            case(f"roi_align_{ratio}_{aligned}", (x, boxes), (y,), (ratio, aligned))
    for test in collect_testcases("RoiAlign"):
        if test.name != "test_roialign_mode_max":
            continue
        (x, rois, index), (y,) = test.data_sets[0]
        case("roi_align_max", (torch.tensor(x, dtype=REAL), torch.tensor(rois, dtype=REAL), index),
             (torch.tensor(y, dtype=REAL),))


def deformed():
    for name, groups, offsets, stride, padding, dilation, masked in (
            ("plain", 1, 1, 1, 0, 1, False), ("groups", 2, 4, (2, 1), (1, 2), (1, 2), True), ("mixed", 4, 2, 1, 1, 1, True)):
        x, weight = torch.randn(2, 8, 6, 7, dtype=REAL), torch.randn(4, 8 // groups, 3, 2, dtype=REAL)
        pair = lambda v: v if isinstance(v, tuple) else (v, v)
        size = [(n + 2 * p - (k - 1) * d - 1) // s + 1
                for n, p, k, d, s in zip((6, 7), pair(padding), (3, 2), pair(dilation), pair(stride))]
        offset = torch.randn(2, offsets * 6 * 2, *size, dtype=REAL) * 1.5
        mask = torch.rand(2, offsets * 6, *size, dtype=REAL) if masked else None
        bias = torch.randn(4, dtype=REAL)
        y = torchvision.ops.deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask)
        case(f"deform_conv_{name}", (x, weight, offset, bias) + ((mask,) if masked else ()), (y,),
             (groups, *pair(stride), *pair(padding), *pair(dilation)))


def suppressed():
    corner = torch.rand(60, 2, dtype=REAL) * 10
    boxes, scores = torch.cat([corner, corner + torch.rand(60, 2, dtype=REAL) * 5], 1), torch.rand(60, dtype=REAL)
    for threshold in (0.1, 0.5):
        case(f"nms_{threshold}", (boxes, scores), (torchvision.ops.nms(boxes, scores, threshold),), (threshold,))
    for test in collect_testcases("NonMaxSuppression"):
        node = test.model.graph.node[0]
        center = any(a.name == "center_point_box" and helper.get_attribute_value(a) for a in node.attribute)
        values = dict(zip((i.name for i in test.model.graph.input), test.data_sets[0][0]))
        number = lambda k: float(values[node.input[k]].ravel()[0]) if len(node.input) > k and node.input[k] else 0.0
        if len(node.input) < 5:
            continue
        case(test.name.removeprefix("test_"), [torch.tensor(values[node.input[k]], dtype=REAL) for k in (0, 1)],
             (test.data_sets[0][1][0],), (number(2), number(3), number(4), center))


def pools():
    for axes, size in ((1, (11,)), (2, (7, 8)), (3, (5, 6, 5))):
        x = torch.randn(2, 3, *size, dtype=REAL)
        pool, unpool = getattr(F, f"max_pool{axes}d"), getattr(F, f"max_unpool{axes}d")
        y, index = pool(x, 3, 2, 1, return_indices=True)
        case(f"max_pool{axes}d", (x,), (y, index))
        y, index = pool(x, 2, 2, return_indices=True)
        case(f"max_unpool{axes}d", (y, index), (unpool(y, index, 2, 2, output_size=size),))
        adaptive = getattr(F, f"adaptive_max_pool{axes}d")
        case(f"adaptive{axes}d", (x,), (*adaptive(x, 3, return_indices=True), getattr(F, f"adaptive_avg_pool{axes}d")(x, 3)))
        norm = getattr(F, f"lp_pool{axes}d")
        case(f"lp_pool{axes}d", (x.abs(),), (norm(x.abs(), 2, 2), norm(x.abs(), 3, 3, 2, True)))
        if axes > 1:
            samples = torch.rand(2, 3, axes, dtype=REAL)
            y, index = getattr(F, f"fractional_max_pool{axes}d")(x, 2, 3, _random_samples=samples, return_indices=True)
            case(f"fractional{axes}d", (x, samples), (y, index))


def main():
    torch.manual_seed(0)
    grids()
    regions()
    deformed()
    suppressed()
    pools()
    write(sys.argv[1])


if __name__ == "__main__":
    main()
