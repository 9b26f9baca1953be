// See fermata/signal.h. Cosine transforms are ops; the rest is made of Fourier transforms, views and pointwise ops.
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
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "ir/ops/linalg.h"

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
      refuse(fmt::format("a window {} for frames of {} samples", to_string(given.shape()), frame));
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

/// x with the first and, where it is given, the last element along an axis times factors.
VjpTensor with_ends_scaled(const VjpTensor& x, unsigned axis, double first, std::optional<double> last) {
  const Shape shape = x.shape();
  Shape open;
  for (unsigned i = 0; i < shape.rank(); ++i) open.push_back(i == axis ? shape[i] : 1);
  const VjpTensor k = vjp::iota(open, axis, x);
  const auto share = [](const VjpTensor& test, double factor) { return vjp::cast(test, DType::f64) * (factor - 1); };
  VjpTensor factor = share(k == 0, first) + 1;
  if (last && shape[axis] > 1) factor = factor + share(k == shape[axis] - 1, *last);
  return x * vjp::cast(factor, x.dtype());
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
  VjpTensor x = astype(given, dtype, where);
  const int own = inverse ? (type == 2 ? 3 : type == 3 ? 2 : type) : type;
  const double period = type == 1 ? 2.0 * static_cast<double>(n - 1) : 2.0 * static_cast<double>(n);
  const double root2 = std::numbers::sqrt2;
  double scale = 1;
  if (norm == fft::Norm::ortho) {
    scale = std::sqrt(1 / period);
    if (own == 1) x = with_ends_scaled(x, at, root2, root2);
    if (own == 3) x = with_ends_scaled(x, at, root2, {});
  } else if (inverse == (norm == fft::Norm::backward)) {
    scale = 1 / period;
  }
  VjpTensor y =
      general_call<Op::dct>({.axis = {static_cast<std::int64_t>(at)}, .type = {own}}, {&x.tensor(), 1}, where);
  if (norm == fft::Norm::ortho && own == 1) y = with_ends_scaled(y, at, 1 / root2, 1 / root2);
  if (norm == fft::Norm::ortho && own == 2) y = with_ends_scaled(y, at, 1 / root2, {});
  if (scale != 1) y = y * scale;
  return is_floating(given.dtype()) ? astype(y.tensor(), given.dtype(), where) : y.tensor();
}

}  // namespace

Tensor dct(const Tensor& x, int type, std::int64_t axis, fft::Norm norm, Location where) {
  return cosine_transform("dct", x, type, axis, norm, false, where);
}
Tensor idct(const Tensor& x, int type, std::int64_t axis, fft::Norm norm, Location where) {
  return cosine_transform("idct", x, type, axis, norm, true, where);
}

}  // namespace fermata

namespace fermata::vjp {
namespace {

/// The matrices of types 1, 2 and 3 are symmetric but for the ends, where a factor of 2 is missing; those of 2 and 3
/// are each other's.
VjpTensor dct_vjp(const VjpArgs& args, unsigned) {
  const auto [axis, type] = args.attributes_of<ops::Dct>();
  const auto along = static_cast<unsigned>(axis.value);
  const auto transformed = [&](const VjpTensor& g, std::int64_t of_type) {
    return call<Op::dct>({.axis = axis, .type = {of_type}}, {&g.tensor(), 1});
  };
  switch (type.value) {
    case 1: return with_ends_scaled(transformed(with_ends_scaled(args.g, along, 2, 2), 1), along, 0.5, 0.5);
    case 2: return transformed(with_ends_scaled(args.g, along, 2, {}), 3);
    case 3: return with_ends_scaled(transformed(args.g, 2), along, 0.5, {});
    default: return transformed(args.g, 4);
  }
}

}  // namespace

FERMATA_OP_RULES(dct, batched_in_front, gradient(dct_vjp));

}  // namespace fermata::vjp
