#!/usr/bin/env python3
"""Writes golden_special.txt: special functions at arguments that f32 holds, computed with 60 digits.

Needs mpmath. The test reads the file only; run this after a function has been added:
    tests/conformance/golden_special.py > tests/conformance/golden_special.txt
Each line: function, arguments and the value as hexadecimal floats.
"""
import random
import struct

import mpmath as m

m.mp.dps = 60


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def even(low, high):
    return lambda r: f32(r.uniform(low, high))


def scaled(low, high):
    return lambda r: f32(2.0 ** r.uniform(low, high))


def quantile(p):
    start = -m.sqrt(-2 * m.log(p)) if p < 0.02 else m.mpf(0)
    if p < 0.02:
        return m.findroot(lambda t: m.log(m.ncdf(t)) - m.log(p), start)
    return m.sqrt(2) * m.erfinv(2 * m.mpf(p) - 1)


def log_ndtr(x):
    return m.log(m.erfc(-x / m.sqrt(2)) / 2) if x < 0 else m.log1p(-m.erfc(x / m.sqrt(2)) / 2)


def hurwitz(s, q):
    # Terms first: what is left is computed to absolute accuracy.
    head = m.fsum((q + k) ** -s for k in range(400))
    return head + m.zeta(s, q + 400) if s < 12 else head + (q + 400) ** (1 - s) / (s - 1) + (q + 400) ** -s / 2


FUNCTIONS = {
    "lgamma": (m.loggamma, [even(0, 3)], [even(1, 10)], [scaled(-30, 60)]),
    "digamma": (m.digamma, [even(0.1, 3)], [even(1, 12)], [scaled(-30, 60)], [even(1.45, 1.48)]),
    "sinc": (m.sincpi, [even(-3, 3)], [scaled(-20, 5)]),
    "ndtr": (m.ncdf, [even(-9, 9)], [even(-1, 1)]),
    "log_ndtr": (log_ndtr, [even(-9, 9)], [even(-1, 1)], [even(-50, -9)]),
    "ndtri": (quantile, [even(0, 1)], [scaled(-100, -1)], [even(0.45, 0.55)]),
    "erfinv": (m.erfinv, [even(-1, 1)], [scaled(-30, 0)], [even(0.9, 1)]),
    "i0": (lambda x: m.besseli(0, x), [even(-10, 10)], [even(0, 80)]),
    "i1": (lambda x: m.besseli(1, x), [even(-10, 10)], [even(0, 80)]),
    "i0e": (lambda x: m.besseli(0, x) * m.exp(-abs(x)), [even(-10, 10)], [scaled(0, 20)]),
    "i1e": (lambda x: m.besseli(1, x) * m.exp(-abs(x)), [even(-10, 10)], [scaled(0, 20)]),
    "j0": (lambda x: m.besselj(0, x), [even(-10, 10)], [even(0, 80)], [scaled(5, 12)]),
    "j1": (lambda x: m.besselj(1, x), [even(-10, 10)], [even(0, 80)], [scaled(5, 12)]),
    "lgamma_below_zero": (lambda x: m.log(abs(m.gamma(x))), [even(-6, 0)]),
    "digamma_below_zero": (m.digamma, [even(-6, 0)]),
    "zeta": (hurwitz, [even(1.1, 30), scaled(-6, 6)]),
    "gammainc": (lambda a, x: m.gammainc(a, 0, x, regularized=True), [scaled(-6, 4), scaled(-6, 4)],
                 [even(250, 260), even(230, 290)]),
    "gammaincc": (lambda a, x: m.gammainc(a, x, m.inf, regularized=True), [scaled(-6, 4), scaled(-6, 4)],
                  [even(250, 260), even(230, 290)]),
    "betainc": (lambda a, b, x: m.betainc(a, b, 0, x, regularized=True), [scaled(-4, 5), scaled(-4, 5), even(0, 1)]),
}


def main():
    for name, (function, *domains) in FUNCTIONS.items():
        generator = random.Random(name)
        for i in range(48):
            arguments = [draw(generator) for draw in domains[i % len(domains)]]
            value = function(*map(m.mpf, arguments))
            print(name, *(a.hex() for a in arguments), float(m.re(value)).hex())


if __name__ == "__main__":
    main()
