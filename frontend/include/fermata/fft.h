// Discrete Fourier transforms: fermata::fft.
//
// They take c64 and c128; real numbers are converted where a transform of complex ones is asked for. `n` crops an axis
// or pads it with zeros first; the default is its size. A forward transform sums x_j exp(-2 pi i j k / n), an inverse
// one with the other sign, over axes that may be named in any order. Norm says which is divided by n: backward the
// inverse one, forward the forward one, ortho both by its root. c64 is transformed in f32, c128 in f64, of any length.
// Any axis, derivatives of any order. Source: Python array API 2023.12, extension fft.
#pragma once

#include <optional>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata::fft {

enum class Norm : std::uint8_t { backward, ortho, forward };

Tensor fft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
           Location where = Location::current());
Tensor ifft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
            Location where = Location::current());
/// Over several axes: the named ones, else the last ones that `sizes` speaks of, else all. `sizes` has an n for each.
///
/// Errors   ValueError if sizes and axes differ in number.
Tensor fftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
            Location where = Location::current());
Tensor ifftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
             Location where = Location::current());

/// Of real numbers: the first n / 2 + 1 of the results, which determine the others.
Tensor rfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
            Location where = Location::current());
/// The inverse: n real numbers, by default 2 (size - 1), from n / 2 + 1.
Tensor irfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
             Location where = Location::current());
/// rfft along the last axis, and then fft along the others.
Tensor rfftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
             Location where = Location::current());
Tensor irfftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
              Location where = Location::current());
/// Of a signal with Hermitian symmetry, of which n / 2 + 1 numbers are given: a real spectrum of n.
Tensor hfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
            Location where = Location::current());
Tensor ihfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
             Location where = Location::current());

/// The frequencies that the results of fft (rfft) of n samples at distance d stand for, in cycles per unit of d.
///
/// Errors   ValueError unless n is positive.
Tensor fftfreq(std::int64_t n, double d = 1, DType dtype = DType::f32, Location where = Location::current());
Tensor rfftfreq(std::int64_t n, double d = 1, DType dtype = DType::f32, Location where = Location::current());
/// Frequency zero in the middle of the axes (all by default), and back.
Tensor fftshift(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
Tensor ifftshift(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());

}  // namespace fermata::fft
