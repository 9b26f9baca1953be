#!/usr/bin/env python3
"""The programs of tests/codegen_cuda/gpu_bench.cpp in PyTorch: eager, and by torch.compile.

usage: gpu_bench_torch.py [NAME]

Prints the same lines: name, mode, milliseconds for one run; of programs whose name contains NAME.
"""
import math
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no CUDA device")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
F = torch.nn.functional


def chain10_cheap(x):
    return torch.abs(torch.clamp((((x + 0.5) * x - 1.5) * x + 0.25) * x - 0.75, min=0.1) * -2)


def chain10_math(x):
    return torch.sqrt(torch.abs(torch.sigmoid(torch.exp(torch.tanh(x * 1.01 + 0.5) * -2) + 0.1) - x))


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def calls(x):
    y = x
    for _ in range(100):
        y = torch.sin(y) + x
    return y


def conv2d_gradients(x, weight):
    with torch.enable_grad():
        dx, dw = torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), (x, weight))
    return dx.sum() + dw.sum()


def milliseconds(program):
    for _ in range(5):
        program()
    torch.cuda.synchronize()
    best = math.inf
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(10):
            program()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) * 100)
    return best


def report(name, function, *operands):
    if len(sys.argv) > 1 and sys.argv[1] not in name:
        return
    for mode, program in (("torch", function), ("torch.compile", torch.compile(function))):
        try:
            print(f"{name:<24} {mode:<13} {milliseconds(lambda: program(*operands)):10.4f}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{name:<24} {mode:<13} failed: {type(error).__name__}", flush=True)


def main():
    def random(*sizes):
        return torch.randn(*sizes, device="cuda")

    x, rows, ones = random(1 << 24), random(4096, 1024), torch.ones(1024, device="cuda")
    report("chain10_cheap_16M", chain10_cheap, x)
    report("chain10_math_16M", chain10_math, x)
    report("sum_chain10_16M", lambda t: chain10_cheap(t).sum(), x)
    report("sumsq_16M", lambda t: t.square().sum(), x)
    report("softmax_4096x1024", lambda t: torch.softmax(t, -1), rows)
    report("layer_norm_4096x1024", lambda t, w: F.layer_norm(t, (1024,), w, w), rows, ones)
    report("rms_norm_4096x1024", lambda t, w: t * torch.rsqrt(t.square().mean(-1, keepdim=True) + 1e-5) * w, rows, ones)
    report("matmul_1024", torch.matmul, random(1024, 1024), random(1024, 1024))
    report("matmul_32x64", torch.matmul, random(64, 32, 32), random(64, 32, 32))
    report("mlp_gelu_512x1024x4096", lambda h, u, b, d, c: F.linear(F.gelu(F.linear(h, u, b)), d, c),
           random(512, 1024), random(4096, 1024), random(4096), random(1024, 4096), random(1024))
    report("attention_8x8x512x64", attention, *(random(8, 8, 512, 64) for _ in range(3)))
    report("attention_8x8x512x64_f16", attention, *(random(8, 8, 512, 64).half() for _ in range(3)))
    square = random(4096, 4096)
    report("matmul_4096", torch.matmul, square, square)
    report("matmul_4096_bf16", torch.matmul, square.bfloat16(), square.bfloat16())
    report("transpose_4096", lambda t: t.mT.contiguous(), square)
    report("add_transposed_4096", lambda t: t + t.mT, square)
    report("sum_axis0_4096", lambda t: t.sum(0), square)
    report("softmax_axis0_4096", lambda t: torch.softmax(t, 0), square)
    report("cumsum_16M", lambda t: t.cumsum(0), x)
    report("cumsum_axis0_4096", lambda t: t.cumsum(0), square)
    report("sort_4096x4096", lambda t: t.sort(-1).values, square)
    report("sort_1M", lambda t: t.sort(-1).values, x[:1 << 20].clone())
    order = torch.argsort(random(4096))
    report("take_rows_4096", lambda t, i: t[i], square, order)
    report("index_add_rows_4096", lambda t, i: t.index_add(0, i, t), square, order)
    report("conv2d_16x64x56x56", lambda t, w: F.conv2d(t, w, padding=1), random(16, 64, 56, 56), random(64, 64, 3, 3))
    image, filters = random(16, 64, 56, 56), random(64, 64, 3, 3)
    report("conv2d_16x64x56x56_f16", lambda t, w: F.conv2d(t, w, padding=1), image.half(), filters.half())
    report("conv2d_gradients", conv2d_gradients, image.requires_grad_(), filters.requires_grad_())
    report("conv2d_1x1", F.conv2d, random(16, 64, 56, 56), random(256, 64, 1, 1))
    report("calls_100_of_1000", calls, random(1000))


if __name__ == "__main__":
    with torch.no_grad():
        main()
