#!/usr/bin/env python3
"""Writes networks.safetensors: losses, bags, attention and optimizers of PyTorch, with gradients.

usage: write_networks.py FILE

Needs PyTorch 2.9 or later. Each case NAME has inputs NAME/x0.., results NAME/y0.., and the gradient of the sum of the
first result for the first input, NAME/g. Optimizers are the parameters after each of five steps with the gradient
x * x + step.
"""
import sys

import torch
from torch.nn import functional as F
from write_modules import keep, write

REAL = torch.float64


def case(name, inputs, function):
    first = inputs[0].clone().requires_grad_(inputs[0].is_floating_point())
    y = function(first, *inputs[1:])
    for k, x in enumerate(inputs):
        keep(f"{name}/x{k}", x)
    keep(f"{name}/y0", y)
    if first.requires_grad:
        (g,) = torch.autograd.grad(torch.where(torch.isfinite(y), y, 0).sum(), first)
        keep(f"{name}/g", g)


def losses():
    x, labels = torch.randn(5, 4, dtype=REAL), torch.tensor([0, 3, 1, 1, 2])
    weight = torch.rand(4, dtype=REAL)
    case("multi_margin", (x, labels), lambda a, t: F.multi_margin_loss(a, t, reduction="none"))
    case("multi_margin_2", (x, labels, weight), lambda a, t, w: F.multi_margin_loss(a, t, 2, 0.7, w))
    many = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [2, -1, -1, -1], [1, 2, -1, 0]])
    case("multilabel_margin", (x, many), lambda a, t: F.multilabel_margin_loss(a, t, reduction="none"))
    targets = torch.rand(5, 4, dtype=REAL)
    case("multilabel_soft_margin", (x, targets, weight), lambda a, t, w: F.multilabel_soft_margin_loss(a, t, w, reduction="none"))
    # PyTorch's gradient is right where log_softmax comes before.
    logits = torch.randn(7, 4, 5, dtype=REAL)
    labels = torch.tensor([[1, 2, 2], [3, 3, 4], [4, 1, 0], [2, 2, 2]])
    steps, lengths = torch.tensor([7, 5, 6, 4]), torch.tensor([3, 2, 1, 3])
    for reduction in ("none", "mean", "sum"):
        given = torch.tensor([7, 5, 6, 6]) if reduction == "none" else steps
        case(f"ctc_{reduction}", (logits, labels, given, lengths),
             lambda a, t, i, n: F.ctc_loss(a.log_softmax(2), t, i, n, reduction=reduction, zero_infinity=reduction != "none"))
    case("ctc_blank", (logits, torch.tensor([[1, 2, 0], [3, 3, 1], [2, 1, 0], [2, 0, 2]]), torch.tensor([7, 7, 6, 6]), lengths),
         lambda a, t, i, n: F.ctc_loss(a.log_softmax(2), t, i, n, blank=4, reduction="none"))
    case("ctc_empty", (logits, labels, steps, torch.tensor([0, 1, 0, 1])), lambda a, t, i, n: F.ctc_loss(a.log_softmax(2), t, i, n, reduction="none"))


def bags():
    table, index = torch.randn(6, 3, dtype=REAL), torch.tensor([0, 5, 2, 2, 1, 4, 3])
    offsets = torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        case(f"bag_{mode}", (table, index, offsets), lambda t, i, o: F.embedding_bag(i, t, o, mode=mode))
        case(f"bag_{mode}_padding", (table, index, offsets), lambda t, i, o: F.embedding_bag(i, t, o, mode=mode, padding_idx=2))
        case(f"bag_{mode}_matrix", (table, index[:6].reshape(2, 3)), lambda t, i: F.embedding_bag(i, t, mode=mode, padding_idx=4))
    case("bag_weights", (table, index, torch.tensor([0, 2, 2, 7]), torch.randn(7, dtype=REAL)),
         lambda t, i, o, w: F.embedding_bag(i, t, o, mode="sum", per_sample_weights=w, include_last_offset=True))


def optimizers():
    o = torch.optim
    for name, make in (
            ("rmsprop", lambda p: o.RMSprop(p, lr=0.01, weight_decay=0.1)),
            ("rmsprop_centered", lambda p: o.RMSprop(p, lr=0.01, momentum=0.9, centered=True)),
            ("adagrad", lambda p: o.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.2)),
            ("adadelta", lambda p: o.Adadelta(p, lr=0.5, weight_decay=0.1)),
            ("adamax", lambda p: o.Adamax(p, lr=0.01, weight_decay=0.1)),
            ("nadam", lambda p: o.NAdam(p, lr=0.01, weight_decay=0.1)),
            ("nadam_decoupled", lambda p: o.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)),
            ("radam", lambda p: o.RAdam(p, lr=0.01, betas=(0.9, 0.9), weight_decay=0.1)),
            ("radam_decoupled", lambda p: o.RAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, maximize=True))):
        x = torch.randn(3, 4, dtype=REAL).requires_grad_(True)
        keep(f"optim_{name}/x0", x)
        optimizer = make([x])
        for step in range(1, 9):
            x.grad = (x * x + step).detach()
            optimizer.step()
            keep(f"optim_{name}/y{step}", x)
    for name, search in (("fixed", None), ("wolfe", "strong_wolfe")):
        x = torch.tensor([-1.2, 1.0, 0.5, 2.0], dtype=REAL).requires_grad_(True)
        optimizer = o.LBFGS([x], lr=1 if search else 0.01, history_size=3, max_iter=10, line_search_fn=search)

        def loss():
            optimizer.zero_grad()
            y = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            y.backward()
            return y
        keep(f"lbfgs_{name}/x0", x)
        for step in range(1, 4):
            optimizer.step(loss)
            keep(f"lbfgs_{name}/y{step}", x)


def main():
    torch.manual_seed(0)
    losses()
    bags()
    optimizers()
    write(sys.argv[1])


if __name__ == "__main__":
    main()
