// See fermata/fft.h.
#include "fermata/fft.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata::fft {
namespace {

Tensor as_complex(const Tensor& x, Location where) {
  return is_complex(x) ? x : astype(x, complex_dtype(x.dtype()), where);
}
/// What is not f64 is transformed as f32; complex numbers are for inference to refuse.
Tensor as_real(const Tensor& x, Location where) {
  return is_complex(x) || x.dtype() == DType::f64 ? x : astype(x, DType::f32, where);
}

[[noreturn]] void throw_count(std::string_view function, std::int64_t n, Location where) {
  throw ValueError(1397, format_error(1397, "ValueError",
                                      fmt::format("{}: {} is not a valid number of samples", function, n), {}, where));
}

/// The first n elements of an axis, zeros after those that are there.
Tensor resized(std::string_view function, const Tensor& x, std::int64_t n, unsigned axis, Location where) {
  if (n < 1) throw_count(function, n, where);
  const std::int64_t size = x.shape()[axis];
  if (n == size) return x;
  if (n < size) return slice(x, axis, 0, n, 1, where);
  Shape missing = x.shape();
  missing[axis] = n - size;
  const Tensor zeros = full(missing, 0, x.dtype(), device(x), where);
  return concat({x, zeros}, axis, where);
}

/// The factor that a transform of n elements is multiplied by; 1 for none.
double scale_of(std::int64_t n, bool inverse, Norm norm) {
  const auto count = static_cast<double>(n);
  if (norm == Norm::ortho) return 1 / std::sqrt(count);
  return (norm == Norm::backward) == inverse ? 1 / count : 1;
}
Tensor scaled(const Tensor& x, double factor, Location where) { return factor == 1 ? x : multiply({x, where}, factor); }

/// One axis, complex to complex.
Tensor transform(std::string_view function, const Tensor& x, std::optional<std::int64_t> n, std::int64_t given,
                 bool inverse, Norm norm, Location where) {
  require_defined(function, x, where);
  const unsigned axis = normalize_axis(function, given, {x.dtype(), x.shape()}, where);
  const Tensor line = resized(function, as_complex(x, where), n.value_or(x.shape()[axis]), axis, where);
  return scaled(general_call<Op::fft>({.axis = {axis}, .inverse = {inverse}}, {&line, 1}, where),
                scale_of(line.shape()[axis], inverse, norm), where);
}

/// The axes of a transform over several, and how long each shall be.
struct Axes {
  std::vector<std::int64_t> axes;
  std::vector<std::optional<std::int64_t>> sizes;
};
Axes axes_of(std::string_view function, const Tensor& x, const IntegerList& sizes, const IntegerList& axes,
             Location where) {
  require_defined(function, x, where);
  Axes result;
  if (!axes.empty() || axes.names_none())
    result.axes.assign(axes.begin(), axes.end());
  else
    for (auto i = -static_cast<std::int64_t>(sizes.empty() ? x.rank() : sizes.size()); i < 0; ++i)
      result.axes.push_back(i);
  result.sizes.resize(result.axes.size());
  if (!sizes.empty() && sizes.size() != result.axes.size())
    throw ValueError(1398,
                     format_error(1398, "ValueError",
                                  fmt::format("{}: {} sizes for {} axes", function, sizes.size(), result.axes.size()),
                                  describe(x), where));
  for (std::size_t i = 0; i < sizes.size(); ++i) result.sizes[i] = sizes[i];
  if (!result.axes.empty()) axes_mask(function, result.axes, {x.dtype(), x.shape()}, where);  // each is there, and once
  return result;
}

Tensor transform_all(std::string_view function, Tensor x, const Axes& axes, std::size_t count, bool inverse, Norm norm,
                     Location where) {
  for (std::size_t i = 0; i < count; ++i) x = transform(function, x, axes.sizes[i], axes.axes[i], inverse, norm, where);
  return x;
}

/// n real numbers to n / 2 + 1 complex ones, and back. `norm_inverse`: what the norm takes the transform for.
Tensor from_real(std::string_view function, const Tensor& x, std::optional<std::int64_t> n, std::int64_t given,
                 bool norm_inverse, Norm norm, Location where) {
  require_defined(function, x, where);
  const std::int64_t axis = normalize_axis(function, given, {x.dtype(), x.shape()}, where);
  const auto at = static_cast<unsigned>(axis);
  const Tensor line = resized(function, as_real(x, where), n.value_or(x.shape()[at]), at, where);
  return scaled(general_call<Op::rfft>({.axis = {axis}}, {&line, 1}, where),
                scale_of(line.shape()[at], norm_inverse, norm), where);
}
Tensor to_real(std::string_view function, const Tensor& x, std::optional<std::int64_t> n, std::int64_t given,
               bool norm_inverse, Norm norm, Location where) {
  require_defined(function, x, where);
  const unsigned axis = normalize_axis(function, given, {x.dtype(), x.shape()}, where);
  const std::int64_t count = n.value_or(2 * (x.shape()[axis] - 1));
  if (count < 1) throw_count(function, count, where);
  const Tensor half = resized(function, as_complex(x, where), count / 2 + 1, axis, where);
  return scaled(general_call<Op::irfft>({.axis = {axis}, .count = {count}}, {&half, 1}, where),
                scale_of(count, norm_inverse, norm), where);
}

Tensor conjugate(const Tensor& x, Location where) { return is_complex(x) ? conj({x, where}) : x; }

/// The elements of some axes, moved in a circle: the first ones by `forward` of them, or back.
Tensor rolled(std::string_view function, Tensor x, const IntegerList& axes, bool forward, Location where) {
  require_defined(function, x, where);
  if (axes.names_none()) return x;
  const std::uint16_t mask = axes_mask(function, axes, {x.dtype(), x.shape()}, where);
  for (unsigned axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t n = x.shape()[axis], cut = forward ? n - n / 2 : n / 2;
    if ((mask >> axis & 1) == 0 || n < 2) continue;
    x = concat({slice(x, axis, cut, kNone, 1, where), slice(x, axis, 0, cut, 1, where)}, axis, where);
  }
  return x;
}

}  // namespace

Tensor fft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  return transform("fft", x, n, axis, false, norm, where);
}
Tensor ifft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  return transform("ifft", x, n, axis, true, norm, where);
}
Tensor fftn(const Tensor& x, const IntegerList& sizes, const IntegerList& axes, Norm norm, Location where) {
  const Axes all = axes_of("fftn", x, sizes, axes, where);
  return transform_all("fftn", as_complex(x, where), all, all.axes.size(), false, norm, where);
}
Tensor ifftn(const Tensor& x, const IntegerList& sizes, const IntegerList& axes, Norm norm, Location where) {
  const Axes all = axes_of("ifftn", x, sizes, axes, where);
  return transform_all("ifftn", as_complex(x, where), all, all.axes.size(), true, norm, where);
}

Tensor rfft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  return from_real("rfft", x, n, axis, false, norm, where);
}
Tensor irfft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  return to_real("irfft", x, n, axis, true, norm, where);
}
Tensor rfftn(const Tensor& x, const IntegerList& sizes, const IntegerList& axes, Norm norm, Location where) {
  const Axes all = axes_of("rfftn", x, sizes, axes, where);
  if (all.axes.empty()) return as_complex(x, where);
  const Tensor half = from_real("rfftn", x, all.sizes.back(), all.axes.back(), false, norm, where);
  return transform_all("rfftn", half, all, all.axes.size() - 1, false, norm, where);
}
Tensor irfftn(const Tensor& x, const IntegerList& sizes, const IntegerList& axes, Norm norm, Location where) {
  const Axes all = axes_of("irfftn", x, sizes, axes, where);
  if (all.axes.empty()) return is_complex(x) ? real({x, where}) : x;
  const Tensor half = transform_all("irfftn", as_complex(x, where), all, all.axes.size() - 1, true, norm, where);
  return to_real("irfftn", half, all.sizes.back(), all.axes.back(), true, norm, where);
}
Tensor hfft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  require_defined("hfft", x, where);
  return to_real("hfft", conjugate(x, where), n, axis, false, norm, where);
}
Tensor ihfft(const Tensor& x, std::optional<std::int64_t> n, std::int64_t axis, Norm norm, Location where) {
  return conjugate(from_real("ihfft", x, n, axis, true, norm, where), where);
}

Tensor fftfreq(std::int64_t n, double d, DType dtype, Location where) {
  if (n < 1) throw_count("fftfreq", n, where);
  const Tensor i = iota(n, 0, where);
  const Tensor turned = fermata::where({less({i, where}, (n + 1) / 2), where}, i, subtract({i, where}, n));
  return astype(multiply({astype(turned, DType::f64, where), where}, 1 / (static_cast<double>(n) * d)), dtype, where);
}
Tensor rfftfreq(std::int64_t n, double d, DType dtype, Location where) {
  if (n < 1) throw_count("rfftfreq", n, where);
  const Tensor i = astype(iota(n / 2 + 1, 0, where), DType::f64, where);
  return astype(multiply({i, where}, 1 / (static_cast<double>(n) * d)), dtype, where);
}
Tensor fftshift(const Tensor& x, const IntegerList& axes, Location where) {
  return rolled("fftshift", x, axes, true, where);
}
Tensor ifftshift(const Tensor& x, const IntegerList& axes, Location where) {
  return rolled("ifftshift", x, axes, false, where);
}

}  // namespace fermata::fft

namespace fermata::vjp {
namespace {

// The matrices of Fourier transforms are symmetric, so the conjugate transpose is the transform the other way.

VjpTensor fft_vjp(const VjpArgs& args, unsigned) {
  const auto [axis, inverse] = args.attributes_of<ops::Fft>();
  return call<Op::fft>({.axis = axis, .inverse = {!inverse.value}}, {&args.g.tensor(), 1});
}

/// `inside` for numbers that stand for themselves and their conjugate among the n of a real transform, 1 for the
/// others.
VjpTensor fold_weights(const VjpTensor& half, std::size_t axis, std::int64_t n, double inside) {
  Shape sizes;
  for (unsigned i = 0; i < half.shape().rank(); ++i) sizes.push_back(i == axis ? half.shape()[i] : 1);
  const VjpTensor at = iota(sizes, static_cast<std::int64_t>(axis), half);
  const VjpTensor ends = n % 2 == 0 ? logical_or(at == 0, at == n / 2) : at == 0;
  const DType part = real_dtype(half.dtype());
  return where(ends, full(1, {part, {}}, half), full(inside, {part, {}}, half));
}

VjpTensor rfft_vjp(const VjpArgs& args, unsigned) {
  const auto along = args.attributes_of<ops::Rfft>().axis;
  const auto axis = static_cast<std::size_t>(along.value);
  const std::int64_t n = args.shape(0)[axis];
  const VjpTensor folded = args.g * fold_weights(args.g, axis, n, 0.5);
  return call<Op::irfft>({.axis = along, .count = {n}}, {&folded.tensor(), 1});
}

VjpTensor irfft_vjp(const VjpArgs& args, unsigned) {
  const auto [axis, count] = args.attributes_of<ops::Irfft>();
  const VjpTensor half = call<Op::rfft>({.axis = axis}, {&args.g.tensor(), 1});
  return half * fold_weights(half, static_cast<std::size_t>(axis.value), count.value, 2);
}

}  // namespace

FERMATA_OP_RULES(fft, batched_in_front, conjugate_gradient(fft_vjp));
FERMATA_OP_RULES(rfft, batched_in_front, conjugate_gradient(rfft_vjp));
FERMATA_OP_RULES(irfft, batched_in_front, conjugate_gradient(irfft_vjp));

}  // namespace fermata::vjp
