#!/usr/bin/env python3
"""Writes modules.safetensors: what modules and learning-rate schedules of PyTorch compute, in f64.

usage: write_modules.py FILE

Needs PyTorch 1.13 or later. For each case NAME the file has NAME/state.*, NAME/x0.. (inputs), NAME/y0.. (results),
NAME/w0.. (weights of a sum of the results), and the gradients of that sum: NAME/dx0.. and NAME/grad.*.
NAME/after.* are the buffers after the call. Schedules are NAME/rates.
"""
import json
import struct
import sys

import torch
from torch import nn

CODES = {torch.float64: "F64", torch.int64: "I64", torch.bool: "BOOL"}
values = {}


def keep(name, tensor):
    values[name] = tensor.detach().clone().contiguous()


def case(name, module, inputs, call=None, train=True):
    torch.manual_seed(len(values))
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) * 0.5)
        for buffer_name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand(buffer.shape, dtype=torch.float64) + 0.5)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        with torch.no_grad():
            module.weight[module.padding_idx] = 0
    module.train(train)
    xs = []
    for i, shape in enumerate(inputs):
        x = shape if torch.is_tensor(shape) else torch.randn(shape, dtype=torch.float64)
        if x.is_floating_point():
            x.requires_grad_(True)
        keep(f"{name}/x{i}", x)
        xs.append(x)
    for key, tensor in module.state_dict().items():
        keep(f"{name}/state.{key}", tensor)
    results = (call or (lambda m, *a: m(*a)))(module, *xs)
    results = [results] if torch.is_tensor(results) else list(results)
    total = 0
    for i, y in enumerate(results):
        w = torch.randn(y.shape, dtype=torch.float64)
        keep(f"{name}/y{i}", y)
        keep(f"{name}/w{i}", w)
        total = total + (y * w).sum()
    if not total.requires_grad:
        return
    total.backward()
    for i, x in enumerate(xs):
        if x.grad is not None:
            keep(f"{name}/dx{i}", x.grad)
    for key, parameter in module.named_parameters():
        if parameter.grad is not None:
            keep(f"{name}/grad.{key}", parameter.grad)
    for key, buffer in module.named_buffers():
        keep(f"{name}/after.{key}", buffer)


def flat(module, *args):
    """Results of recurrent modules in one list."""
    output, state = module(*args)
    return [output, *state] if isinstance(state, tuple) else [output, state]


def schedule(name, make, steps=24, rate=0.1):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=rate)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    keep(f"{name}/rates", torch.tensor(rates, dtype=torch.float64))


def plateau(name):
    losses = [5.0, 4.0, 4.0, 3.99999, 4.0, 3.0, 3.5, 3.2, 3.1, 3.0, 3.0, 2.9, 2.95, 3.0, 2.9, 2.9, 2.9]
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, cooldown=1, min_lr=0.01)
    rates = []
    for loss in losses:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    keep(f"{name}/losses", torch.tensor(losses, dtype=torch.float64))
    keep(f"{name}/rates", torch.tensor(rates, dtype=torch.float64))


def modules():
    case("linear", nn.Linear(4, 3), [(2, 4)])
    case("linear_no_bias", nn.Linear(4, 3, bias=False), [(2, 3, 4)])
    case("embedding", nn.Embedding(6, 3, padding_idx=2), [torch.tensor([[0, 2, 5], [2, 1, 0]])])
    case("conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), [(2, 4, 7)])
    case("conv2d", nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 1)), [(2, 2, 6, 5)])
    case("conv2d_same", nn.Conv2d(2, 3, 3, padding="same", bias=False), [(1, 2, 4, 5)])
    case("conv3d", nn.Conv3d(2, 2, 2), [(1, 2, 3, 3, 4)])
    case("conv_transpose1d", nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), [(2, 4, 4)])
    case("conv_transpose2d", nn.ConvTranspose2d(2, 3, (2, 3), stride=2, dilation=(1, 2)), [(1, 2, 3, 3)])
    case("conv_transpose3d", nn.ConvTranspose3d(1, 2, 2, bias=False), [(1, 1, 2, 3, 2)])
    case("batch_norm", nn.BatchNorm2d(3), [(4, 3, 2, 2)])
    case("batch_norm_eval", nn.BatchNorm1d(3, eps=1e-3), [(4, 3)], train=False)
    case("instance_norm", nn.InstanceNorm1d(3, affine=True, track_running_stats=True), [(2, 3, 5)])
    case("instance_norm_eval", nn.InstanceNorm1d(3, affine=True, track_running_stats=True), [(2, 3, 5)], train=False)
    case("group_norm", nn.GroupNorm(2, 4), [(2, 4, 3)])
    case("layer_norm", nn.LayerNorm([3, 4]), [(2, 3, 4)])
    attention = nn.MultiheadAttention(6, 2, batch_first=True)
    case("attention", attention, [(2, 3, 6), (2, 5, 6), (2, 5, 6)], lambda m, *a: m(*a, need_weights=False)[0])
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)  # true: left out
    case("attention_causal", nn.MultiheadAttention(4, 2, bias=False, batch_first=True), [(2, 4, 4)],
         lambda m, x: m(x, x, x, need_weights=False, attn_mask=hidden)[0])
    case("rnn", nn.RNN(3, 4, num_layers=2, bidirectional=True), [(5, 2, 3), (4, 2, 4)], flat)
    case("gru", nn.GRU(3, 4, num_layers=2, bidirectional=True), [(5, 2, 3), (4, 2, 4)], flat)
    case("gru_plain", nn.GRU(3, 2, bias=False), [(4, 3)], flat)
    case("lstm", nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), [(2, 5, 3), (4, 2, 4), (4, 2, 4)],
         lambda m, x, h, c: flat(m, x, (h, c)))
    case("lstm_plain", nn.LSTM(3, 2), [(4, 2, 3)], flat)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3), nn.GELU())
    case("sequential", net, [(3, 1, 4, 4)])


def schedules():
    lr = torch.optim.lr_scheduler
    schedule("step", lambda o: lr.StepLR(o, 5, gamma=0.5))
    schedule("multi_step", lambda o: lr.MultiStepLR(o, [3, 10, 11], gamma=0.3))
    schedule("exponential", lambda o: lr.ExponentialLR(o, 0.9))
    schedule("linear", lambda o: lr.LinearLR(o, 0.25, 1.0, total_iters=8))
    schedule("polynomial", lambda o: lr.PolynomialLR(o, total_iters=15, power=2.0))
    schedule("cosine", lambda o: lr.CosineAnnealingLR(o, 20, eta_min=0.01), steps=21)
    schedule("warm_restarts", lambda o: lr.CosineAnnealingWarmRestarts(o, 4, T_mult=2, eta_min=0.01))
    schedule("one_cycle", lambda o: lr.OneCycleLR(o, 0.5, total_steps=24))
    schedule("warmup_cosine", lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, 1.0, total_iters=5), lr.CosineAnnealingLR(o, 18)], [5]), steps=22)
    plateau("plateau")


def write(path):
    header, at = {}, 0
    for name in sorted(values):
        data = values[name]
        size = data.numel() * data.element_size()
        header[name] = {"dtype": CODES[data.dtype], "shape": list(data.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(values):
            file.write(values[name].numpy().tobytes())


def main():
    modules()
    schedules()
    write(sys.argv[1])


if __name__ == "__main__":
    main()
