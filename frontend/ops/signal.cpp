// See fermata/signal.h. Everything is made of Fourier transforms, views and pointwise ops.
#include "fermata/signal.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/reductions.h"
#include "fermata/special.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;
constexpr double kPi = std::numbers::pi;

// ---- Windows

/// Places of the samples, the length of a period being 1. They are computed in f64.
VjpTensor phase(std::string_view function, std::int64_t n, bool periodic, Location where) {
  if (n < 0)
    throw ValueError(1414, format_error(1414, "ValueError", fmt::format("{}: {} samples", function, n), {}, where));
  const auto period = static_cast<double>(std::max<std::int64_t>(periodic ? n : n - 1, 1));
  return vjp::cast(VjpTensor(iota(n, 0, where)), DType::f64) / period;
}

Tensor finished(const VjpTensor& window, std::int64_t n, DType dtype, Location where) {
  return n == 1 ? ones({1}, dtype, where) : astype(window.tensor(), dtype, where);
}

VjpTensor cosine_of(const VjpTensor& turns) { return cos(turns * (2 * kPi)); }

}  // namespace

Tensor hann_window(std::int64_t n, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  return finished(0.5 - cosine_of(phase("hann_window", n, periodic, where)) * 0.5, n, dtype, where);
}
Tensor hamming_window(std::int64_t n, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  return finished(0.54 - cosine_of(phase("hamming_window", n, periodic, where)) * 0.46, n, dtype, where);
}
Tensor blackman_window(std::int64_t n, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  const VjpTensor t = phase("blackman_window", n, periodic, where);
  return finished(0.42 - cosine_of(t) * 0.5 + cosine_of(t * 2) * 0.08, n, dtype, where);
}
Tensor bartlett_window(std::int64_t n, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  return finished(1 - abs(phase("bartlett_window", n, periodic, where) * 2 - 1), n, dtype, where);
}
Tensor kaiser_window(std::int64_t n, double beta, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  const VjpTensor t = phase("kaiser_window", n, periodic, where) * 2 - 1;
  const VjpTensor size = sqrt(maximum(1 - square(t), 0)) * std::fabs(beta);
  // i0e(x) = i0(x) e^-x: neither of the two overflows.
  const VjpTensor scaled = i0e({size.tensor(), where}), most = i0e({full({}, beta, DType::f64, where), where});
  return finished(scaled / most * exp(size - std::fabs(beta)), n, dtype, where);
}
Tensor gaussian_window(std::int64_t n, double deviation, bool periodic, DType dtype, Location where) {
  const vjp::LineGuard line(where);
  const auto period = static_cast<double>(std::max<std::int64_t>(periodic ? n : n - 1, 1));
  const VjpTensor t = (phase("gaussian_window", n, periodic, where) - 0.5) * (period / deviation);
  return finished(exp(square(t) * -0.5), n, dtype, where);
}

// ---- Short-time Fourier transforms

namespace {

struct Frames {
  Frames(std::string_view function, std::int64_t frame, const StftOptions& options, DType dtype, const Tensor& x,
         Location where)
      : size(frame), hop(options.hop.value_or(std::max<std::int64_t>(frame / 4, 1))) {
    const auto refuse = [&](const std::string& what) {
      throw ValueError(1415,
                       format_error(1415, "ValueError", fmt::format("{}: {}", function, what), describe(x), where));
    };
    if (frame < 1) refuse(fmt::format("frames of {} samples", frame));
    if (hop < 1) refuse(fmt::format("a hop of {} samples", hop));
    if (!options.window.defined()) {
      window = ones({frame}, dtype, device(x), where);
      return;
    }
    const Tensor& given = options.window;
    if (given.rank() != 1 || given.size(0) > frame)
      refuse(fmt::format("a window {} in frames of {} samples", to_string(given.shape()), frame));
    window = to(astype(given, dtype, where), device(x, where), where);
    const std::int64_t spare = frame - given.size(0), before = spare / 2;
    if (spare > 0)
      window = concat({zeros({before}, dtype, device(window), where), window,
                       zeros({spare - before}, dtype, device(window), where)},
                      0, where);
  }
  std::int64_t size, hop;
  Tensor window;
};

/// The last axis with `count` elements more at both ends, mirrored about the first and the last one.
Tensor reflected(const Tensor& x, std::int64_t count, Location where) {
  if (count == 0) return x;
  const std::int64_t n = x.size(-1);
  const Tensor before = flip(slice(x, -1, 1, count + 1, 1, where), -1, where),
               after = flip(slice(x, -1, n - count - 1, n - 1, 1, where), -1, where);
  return concat({before, x, after}, -1, where);
}

DType real_floating(std::string_view function, const Tensor& x, Location where) {
  if (is_complex(x.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(x.dtype())),
                                  describe(x), where, "it takes real numbers"));
  return is_floating(x.dtype()) ? compute_dtype(x.dtype()) : DType::f32;
}

}  // namespace

Tensor stft(const Tensor& given, std::int64_t frame, const StftOptions& options, Location where) {
  require_defined("stft", given, where);
  const DType dtype = real_floating("stft", given, where);
  const Frames frames("stft", frame, options, dtype, given, where);
  normalize_axis("stft", -1, type_of(given), where);
  const vjp::LineGuard line(where);
  Tensor x = astype(given, dtype, where);
  const std::int64_t around = options.center ? frame / 2 : 0;
  if ((around > 0 && x.size(-1) <= around) || x.size(-1) + 2 * around < frame)
    throw ValueError(1415, format_error(1415, "ValueError",
                                        fmt::format("stft: frames of {} samples of a signal of {}", frame, x.size(-1)),
                                        describe(given), where));
  x = reflected(x, around, where);
  const VjpTensor cut = unfold(x, -1, frame, frames.hop, 1, where);
  const Tensor spectra = fft::rfft((cut * frames.window).tensor(), {}, -1, fft::Norm::backward, where);
  const VjpTensor scaled =
      options.normalized ? VjpTensor(spectra) * (1 / std::sqrt(static_cast<double>(frame))) : VjpTensor(spectra);
  return transpose(scaled.tensor(), -2, -1, where);
}

Tensor istft(const Tensor& spectra, std::int64_t frame, const StftOptions& options, std::optional<std::int64_t> length,
             Location where) {
  require_defined("istft", spectra, where);
  const DType dtype = is_complex(spectra.dtype()) ? real_dtype(spectra.dtype()) : DType::f32;
  const Frames frames("istft", frame, options, dtype, spectra, where);
  if (spectra.rank() < 2 || spectra.size(-2) != frame / 2 + 1)
    throw ValueError(1415,
                     format_error(1415, "ValueError",
                                  fmt::format("istft: frames of {} samples have {} frequencies", frame, frame / 2 + 1),
                                  describe(spectra), where));
  const vjp::LineGuard line(where);
  const std::int64_t count = spectra.size(-1), total = count == 0 ? 0 : frame + (count - 1) * frames.hop;
  const Tensor parts = fft::irfft(transpose(spectra, -2, -1, where), frame, -1, fft::Norm::backward, where);
  const Tensor weighted = (VjpTensor(parts) * frames.window).tensor();
  const VjpTensor sums = fold(weighted, -1, total, frames.hop, 1, where);
  const Tensor squares = broadcast_to(square(VjpTensor(frames.window)).tensor(), {count, frame}, where);
  const VjpTensor weights = fold(squares, -1, total, frames.hop, 1, where);
  const VjpTensor covered = weights > 1e-11;
  VjpTensor result = vjp::where(covered, sums / vjp::where(covered, weights, 1), 0);
  if (options.normalized) result = result * std::sqrt(static_cast<double>(frame));
  const std::int64_t around = options.center ? frame / 2 : 0;
  const std::int64_t kept = length.value_or(std::max<std::int64_t>(total - 2 * around, 0));
  const Tensor within = slice(result.tensor(), -1, around, std::min(around + kept, total), 1, where);
  const std::int64_t missing = kept - within.size(-1);
  if (missing <= 0) return within;
  Shape rest = within.shape();
  rest[rest.rank() - 1u] = missing;
  return concat({within, zeros(rest, dtype, device(within), where)}, -1, where);
}

// ---- Cosine transforms

namespace {

/// The last axis times scale exp(i pi (k + shift) / period).
VjpTensor turned(const VjpTensor& x, double shift, double period, Location where, double scale = 1) {
  const std::int64_t n = x.shape().back();
  const VjpTensor angle =
      (vjp::cast(VjpTensor(iota(n, 0, device(x.tensor()), where)), DType::f64) + shift) * (kPi / period);
  const DType real_type = real_dtype(x.dtype());
  const auto part = [&](const VjpTensor& wave) {
    return astype((scale == 1 ? wave : wave * scale).tensor(), real_type, where);
  };
  const Tensor factor = complex({part(cos(angle)), where}, {part(sin(angle)), where});
  return x * factor;
}

Tensor last(const Tensor& x, std::int64_t start, std::int64_t stop, std::int64_t step, Location where) {
  return slice(x, -1, start, stop, step, where);
}
/// x_1, x_2, ... x_(n - 1) backwards, from the first `count` + 1 elements.
Tensor backwards(const Tensor& x, std::int64_t count, Location where) {
  return flip(last(x, 1, count + 1, 1, where), -1, where);
}

/// By one transform of n real numbers (J. Makhoul, IEEE Trans. ASSP 28, 1980): those of even place, then those of odd
/// place backwards; with W_k = exp(-i pi k / 2 n) V_k the results are 2 Re W_k, and -2 Im W_k at n - k.
Tensor dct2(const Tensor& x, Location where) {
  const std::int64_t n = x.size(-1);
  const Tensor ordered = concat({last(x, 0, kNone, 2, where), flip(last(x, 1, kNone, 2, where), -1, where)}, -1, where);
  const Tensor v = fft::rfft(ordered, {}, -1, fft::Norm::backward, where);
  const Tensor w = turned(v, 0, -2 * static_cast<double>(n), where, 2).tensor();
  const Tensor upper = negative({backwards(imag({w, where}), (n - 1) / 2, where), where});
  return concat({real({w, where}), upper}, -1, where);
}

/// The same the other way round: dct3(dct2(x)) is 2 n x.
Tensor dct3(const Tensor& x, Location where) {
  const std::int64_t n = x.size(-1), half = n / 2;
  const Tensor re = last(x, 0, half + 1, 1, where);
  const Tensor edge = zeros_like(last(x, 0, 1, 1, where), {}, where);
  const Tensor im = negative({concat({edge, flip(last(x, n - half, n, 1, where), -1, where)}, -1, where), where});
  const Tensor w = complex({re, where}, {im, where});
  const Tensor v =
      fft::irfft(turned(w, 0, 2 * static_cast<double>(n), where).tensor(), n, -1, fft::Norm::forward, where);
  // Places 0, 2, 4, ... and then ... 5, 3, 1 in order again.
  const VjpTensor k = iota(n, 0, device(x), where);
  const VjpTensor odd = k - floor_divide(k, 2) * 2;
  const VjpTensor from = vjp::where(odd == 0, floor_divide(k, 2), n - 1 - floor_divide(k, 2));
  return take(v, from.tensor(), -1, where);
}

/// Unnormalized transforms of the last axis, as sums of 2 x_j cos(...).
Tensor unscaled_dct(const Tensor& x, int type, Location where) {
  const std::int64_t n = x.size(-1);
  const auto size = static_cast<double>(n);
  switch (type) {
    case 1: {  // a period of 2 n - 2 samples, mirrored
      const Tensor mirrored = concat({x, flip(slice(x, -1, 1, n - 1, 1, where), -1, where)}, -1, where);
      return real({fft::rfft(mirrored, {}, -1, fft::Norm::backward, where), where});
    }
    case 2: return dct2(x, where);
    case 3: return dct3(x, where);
    default: {  // cos(pi (2 j + 1)(2 k + 1) / 4n)
      const Tensor as_complex = astype(x, complex_dtype(x.dtype()), where);
      const Tensor wide =
          fft::fft(turned(as_complex, 0, -2 * size, where).tensor(), 2 * n, -1, fft::Norm::backward, where);
      return real({turned(slice(wide, -1, 0, n, 1, where), 0.5, -2 * size, where, 2).tensor(), where});
    }
  }
}

/// x with its first and, for type 1, its last element times factors.
Tensor with_ends_scaled(const Tensor& x, double first, double last, Location where) {
  const std::int64_t n = x.size(-1);
  const VjpTensor k = iota(n, 0, device(x), where);
  const auto share = [](const VjpTensor& test, double factor) { return vjp::cast(test, DType::f64) * (factor - 1); };
  VjpTensor factor = share(k == 0, first) + 1;
  if (n > 1) factor = factor + share(k == n - 1, last);
  return (VjpTensor(x) * vjp::cast(factor, x.dtype())).tensor();
}

Tensor cosine_transform(std::string_view function, const Tensor& given, int type, std::int64_t axis, fft::Norm norm,
                        bool inverse, Location where) {
  require_defined(function, given, where);
  const unsigned at = normalize_axis(function, axis, type_of(given), where);
  const DType dtype = real_floating(function, given, where);
  const std::int64_t n = given.shape()[at];
  if (type < 1 || type > 4 || n < 1 || (type == 1 && n < 2))
    throw ValueError(1416, format_error(1416, "ValueError",
                                        fmt::format("{}: no transform of type {} of {} elements", function, type, n),
                                        describe(given), where));
  const vjp::LineGuard line(where);
  const bool is_last = at + 1 == given.rank();
  const auto moved = [&](const Tensor& t, std::int64_t from, std::int64_t to) {
    return is_last ? t : moveaxis(t, from, to, where);
  };
  Tensor x = moved(astype(given, dtype, where), static_cast<std::int64_t>(at), -1);
  const int own = inverse ? (type == 2 ? 3 : type == 3 ? 2 : type) : type;
  const double period = type == 1 ? 2.0 * static_cast<double>(n - 1) : 2.0 * static_cast<double>(n);
  const double root2 = std::numbers::sqrt2;
  double scale = 1;
  if (norm == fft::Norm::ortho) {
    scale = std::sqrt(1 / period);
    if (own == 1) x = with_ends_scaled(x, root2, root2, where);
    if (own == 3) x = with_ends_scaled(x, root2, 1, where);
  } else if (inverse == (norm == fft::Norm::backward)) {
    scale = 1 / period;
  }
  Tensor y = unscaled_dct(x, own, where);
  if (norm == fft::Norm::ortho && own == 1) y = with_ends_scaled(y, 1 / root2, 1 / root2, where);
  if (norm == fft::Norm::ortho && own == 2) y = with_ends_scaled(y, 1 / root2, 1, where);
  if (scale != 1) y = (VjpTensor(y) * scale).tensor();
  const Tensor placed = moved(y, -1, static_cast<std::int64_t>(at));
  return is_floating(given.dtype()) ? astype(placed, given.dtype(), where) : placed;
}

}  // namespace

Tensor dct(const Tensor& x, int type, std::int64_t axis, fft::Norm norm, Location where) {
  return cosine_transform("dct", x, type, axis, norm, false, where);
}
Tensor idct(const Tensor& x, int type, std::int64_t axis, fft::Norm norm, Location where) {
  return cosine_transform("idct", x, type, axis, norm, true, where);
}

}  // namespace fermata
