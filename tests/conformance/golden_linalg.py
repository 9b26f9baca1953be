#!/usr/bin/env python3
"""Writes golden_linalg.txt: what NumPy makes of complex functions, linear algebra, einsum and Fourier transforms.

Run it from this folder, with NumPy, to make the file anew; the tests read the file only. One case is

    case NAME
    in DTYPE SIZE,SIZE VALUE VALUE ...        an operand; complex values are two numbers each
    out DTYPE SIZE,SIZE VALUE VALUE ...       a result
"""
import numpy as np

random = np.random.default_rng(20231200)
NAMES = {"float64": "f64", "complex128": "c128", "int64": "i64", "float32": "f32", "complex64": "c64"}
out = open("golden_linalg.txt", "w")


def line(kind, x):
    x = np.asarray(x)
    flat = x.ravel()
    if np.iscomplexobj(flat):
        flat = np.stack([flat.real, flat.imag], -1).ravel()
    sizes = ",".join(str(s) for s in x.shape) or "-"
    out.write(" ".join([kind, NAMES[str(x.dtype)], sizes] + [repr(v.item()) for v in flat]) + "\n")


def case(name, f, *inputs):
    results = f(*inputs)
    out.write(f"case {name}\n")
    for x in inputs:
        line("in", x)
    for y in results if isinstance(results, (tuple, list)) else [results]:
        line("out", y)


def real(*shape):
    return random.uniform(-2, 2, shape).round(4)


def cplx(*shape):
    return real(*shape) + 1j * real(*shape)


unary = "negative conj real imag abs angle sign square sqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tanh".split()
special = np.array([0, -0.0, 1, -1, 1j, -1j, 1e-9 + 1e-9j, 3 - 4j, complex(np.inf, 0), complex(-np.inf, 1), 700 + 1j, 1e-300])
with np.errstate(all="ignore"):
    for name in unary:
        f = {"sign": lambda z: np.where(z == 0, z, z / np.abs(z))}.get(name) or getattr(np, name)
        case(name, f, cplx(7))
        case(name + ".c64", f, cplx(5).astype(np.complex64))
        if name not in ("sign", "exp2", "expm1", "log1p", "log2", "log10", "reciprocal", "square", "tanh"):
            case(name + ".special", f, special)
    case("multiply", np.multiply, cplx(3, 1), cplx(4))
    case("divide", np.divide, cplx(3, 1), cplx(4))
    case("pow", np.power, cplx(5), cplx(5))
    case("sum", lambda z: np.sum(z, 1), cplx(3, 4))
    case("prod", lambda z: np.prod(z, 0), cplx(3, 4))
    case("mean", np.mean, cplx(3, 4))
    case("var", np.var, cplx(3, 4))

L = np.linalg
for kind, make in (("", real), (".complex", cplx)):
    a, square, stack = make(4, 3), make(3, 3) + 3 * np.eye(3), make(2, 3, 3) + 3 * np.eye(3)
    spd = square @ square.conj().T
    herm = square + square.conj().T
    case("matmul" + kind, np.matmul, make(2, 1, 2, 3), make(4, 3, 2))
    case("solve" + kind, L.solve, stack, make(3, 2))
    case("solve_vector" + kind, L.solve, square, make(3))
    case("inv" + kind, L.inv, stack)
    case("det" + kind, L.det, stack)
    case("slogdet" + kind, lambda x: tuple(L.slogdet(x)), stack)
    case("cholesky" + kind, L.cholesky, spd)
    case("eigvalsh" + kind, L.eigvalsh, herm)
    case("eigh" + kind, lambda x: (L.eigh(x)[0], np.abs(L.eigh(x)[1])), herm)
    case("svdvals" + kind, lambda x: L.svd(x, compute_uv=False), a)
    case("svd" + kind, lambda x: tuple(np.abs(p) for p in L.svd(x)[0:3:2]), a)
    case("qr" + kind, lambda x: tuple(L.qr(x)), a)
    case("qr_complete" + kind, lambda x: tuple(L.qr(x, "complete")), a.T.copy())
    case("pinv" + kind, L.pinv, a)
    case("lstsq" + kind, lambda x, y: (L.lstsq(x, y, rcond=None)[0], L.lstsq(x, y, rcond=None)[1]), a, make(4, 2))
    case("matrix_rank" + kind, L.matrix_rank, np.stack([square, np.outer(square[0], square[1])]))
    case("matrix_power" + kind, lambda x: L.matrix_power(x, 5), square)
    case("matrix_power_inverse" + kind, lambda x: L.matrix_power(x, -2), square)
    for ord in (0, 1, 2, 3, 0.5, -1, np.inf, -np.inf):
        case(f"vector_norm:{ord}" + kind, lambda x: L.norm(x, ord, axis=0), a)
    for ord in (1, -1, 2, -2, np.inf, -np.inf):
        case(f"matrix_norm:{ord}" + kind, lambda x: L.norm(x, ord, axis=(-2, -1)), stack)
    for ord in ("fro", "nuc"):
        case(f"matrix_norm:{ord}" + kind, lambda x: L.norm(x, ord, axis=(-2, -1)), stack)
    case("cross" + kind, np.cross, make(4, 3), make(3))
    case("outer" + kind, np.outer, make(3), make(2))
    case("kron" + kind, np.kron, make(2, 3), make(2))
    case("trace" + kind, lambda x: np.trace(x, 1, -2, -1), stack)
    case("diagonal" + kind, lambda x: np.diagonal(x, -1, -2, -1), stack)
    case("tensordot" + kind, lambda x, y: np.tensordot(x, y, 1), a, make(3, 2))
    case("tensordot_axes" + kind, lambda x, y: np.tensordot(x, y, ([0, 2], [1, 0])), make(2, 3, 4), make(4, 2, 3))
    case("vecdot" + kind, lambda x, y: (x.conj() * y).sum(-1), a, make(3))
    for equation in ("ij,jk,kl->il", "ii->i", "ij,ij->", "bij,bjk->bki", "ij,j", "i,j,k->kji", "...ij,j->...i"):
        shapes = {"i": 2, "j": 3, "k": 2, "l": 4, "b": 2}
        terms = equation.split("->")[0].split(",")
        xs = [make(*([2] if "..." in t else []), *(shapes[c] for c in t.replace(".", ""))) for t in terms]
        case(f"einsum:{equation}" + kind, lambda *x: np.einsum(equation, *x), *xs)

F = np.fft
for norm in ("backward", "ortho", "forward"):
    for n in (6, 7, 37):
        case(f"fft:{norm}", lambda x: F.fft(x, norm=norm), cplx(2, n))
        case(f"ifft:{norm}", lambda x: F.ifft(x, norm=norm), cplx(2, n))
        case(f"rfft:{norm}", lambda x: F.rfft(x, norm=norm), real(2, n))
        case(f"irfft:{norm}", lambda x: F.irfft(x, norm=norm), cplx(2, n))
        case(f"hfft:{norm}", lambda x: F.hfft(x, norm=norm), cplx(2, n))
        case(f"ihfft:{norm}", lambda x: F.ihfft(x, norm=norm), real(2, n))
    case(f"fftn:{norm}", lambda x: F.fftn(x, norm=norm), cplx(2, 3, 4))
    case(f"ifftn:{norm}", lambda x: F.ifftn(x, norm=norm), cplx(2, 3, 4))
    case(f"rfftn:{norm}", lambda x: F.rfftn(x, norm=norm), real(2, 3, 4))
    case(f"irfftn:{norm}", lambda x: F.irfftn(x, norm=norm), cplx(2, 3, 4))
case("fft_long", lambda x: F.fft(x, 9, 0), cplx(6, 2))
case("fft_short", lambda x: F.fft(x, 4, 0), cplx(6, 2))
case("fftshift", F.fftshift, real(4, 5))
case("ifftshift", F.ifftshift, real(4, 5))
