// Discrete Fourier transforms: fermata::fft.
//
// Operands are c64 or c128; complex transforms convert real operands. `n` first crops the axis or pads it with zeros;
// the default is its size. A forward transform sums x_j exp(-2 pi i j k / n); an inverse one uses the opposite sign.
// Axes may be listed in any order. Norm selects the scaling: backward divides the inverse transform by n, forward the
// forward one, and ortho both by sqrt(n). c64 is computed in f32, c128 in f64. Any length and axis; differentiable to
// any order. Source: Python array API 2023.12, extension fft.
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
/// Transforms several axes: `axes` if given, else the last `sizes.size()` axes, else all. `sizes` has an n for each
/// axis.
///
/// Errors   ValueError if sizes and axes differ in number.
Tensor fftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
            Location where = Location::current());
Tensor ifftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
             Location where = Location::current());

/// Transform of real numbers. Returns the first n / 2 + 1 results, which determine the others.
Tensor rfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
            Location where = Location::current());
/// Inverse of rfft: n real numbers, by default 2 * (size - 1), from n / 2 + 1 complex ones.
Tensor irfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
             Location where = Location::current());
/// rfft along the last axis, and then fft along the others.
Tensor rfftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
             Location where = Location::current());
Tensor irfftn(const Tensor& x, const IntegerList& sizes = {}, const IntegerList& axes = {}, Norm norm = Norm::backward,
              Location where = Location::current());
/// Real spectrum [n] of a signal with Hermitian symmetry, given by its first n / 2 + 1 numbers.
Tensor hfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
            Location where = Location::current());
Tensor ihfft(const Tensor& x, std::optional<std::int64_t> n = {}, std::int64_t axis = -1, Norm norm = Norm::backward,
             Location where = Location::current());

/// The frequencies of the results of fft (rfft) for n samples with spacing d, in cycles per unit of d.
///
/// Errors   ValueError unless n is positive.
Tensor fftfreq(std::int64_t n, double d = 1, DType dtype = DType::f32, Location where = Location::current());
Tensor rfftfreq(std::int64_t n, double d = 1, DType dtype = DType::f32, Location where = Location::current());
/// Moves the zero frequency to the center of the axes (all by default), and back.
Tensor fftshift(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());
Tensor ifftshift(const Tensor& x, const IntegerList& axes = {}, Location where = Location::current());

}  // namespace fermata::fft
