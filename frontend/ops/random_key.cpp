// See fermata/random_key.h. Everything is pointwise from the counters on, so a draw fuses with what is made of it.
#include "fermata/random_key.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::LineGuard;
using vjp::VjpTensor;

// Keys of other purposes lead elsewhere: split and fold_in must not meet the draws of the same key.
constexpr std::uint64_t kSplit = 0xbb67ae8584caa73b, kFold = 0x3c6ef372fe94f82b;

void require_key(std::string_view function, const Tensor& key, Location where) {
  require_defined(function, key, where);
  if (key.dtype() != DType::u64)
    throw DTypeError(
        1170,
        format_error(1170, "DTypeError", fmt::format("{}: a key must be u64, not {}", function, name(key.dtype())),
                     {{"key", to_string(key.dtype(), key.shape()), ""}}, where, "create one with random_key(seed)"));
}

void require_dtype(std::string_view function, bool fits, std::string_view wanted, DType dtype, Location where) {
  if (!fits)
    throw DTypeError(
        1104, format_error(1104, "DTypeError",
                           fmt::format("{}: the result must be {}, not {}", function, wanted, name(dtype)), {}, where));
}

VjpTensor word(std::uint64_t value) { return VjpTensor(Scalar(value)); }
VjpTensor shifted(const VjpTensor& x, std::uint64_t by) { return vjp::bitwise_right_shift(x, word(by)); }

/// 64 bits for each of `sizes`, from counters first, first + 1, ...
VjpTensor bits(std::string_view function, const Tensor& key, const IntegerList& sizes, DType dtype, Location where,
               std::uint64_t first = 0) {
  require_key(function, key, where);
  const std::int64_t count = check_shape(function, sizes, dtype, where);
  Tensor counters = reshape(fermata::iota({count}, 0, where), sizes, where);
  VjpTensor at = vjp::cast(counters, DType::u64);
  if (first != 0) at = vjp::bitwise_or(at, word(first));
  VjpTensor keys = key;
  if (key.rank() > 0) {
    Shape wide = key.shape();
    for (std::size_t i = 0; i < std::span<const std::int64_t>(sizes).size(); ++i) wide.push_back(1);
    keys = vjp::reshape(key, wide);
  }
  return vjp::philox(at, keys);
}

/// [0, 1), or strictly between where `open`: 24 or 53 bits. `low_half` takes the other bits of a word (f32 only).
VjpTensor unit(const VjpTensor& word_bits, DType compute, bool open, bool low_half = false) {
  const bool wide = compute == DType::f64;
  const VjpTensor top = low_half ? vjp::bitwise_and(word_bits, word(0xffffff)) : shifted(word_bits, wide ? 11 : 40);
  const VjpTensor whole = vjp::cast(top, compute);
  // Half a step from both ends; 52 bits of an f64, since the last of 53 would be rounded away.
  if (open && wide) return (vjp::cast(shifted(word_bits, 12), compute) + 0.5) * 0x1p-52;
  if (open)
    return (vjp::cast(low_half ? vjp::bitwise_and(word_bits, word(0x7fffff)) : shifted(word_bits, 41), compute) + 0.5) *
           0x1p-23;
  return whole * (wide ? 0x1p-53 : 0x1p-24);
}

DType drawn_in(std::string_view function, DType dtype, Location where) {
  require_dtype(function, is_floating(dtype), "floating", dtype, where);
  return compute_dtype(dtype);
}

/// The inverse of the standard normal distribution function, in f64: Acklam's rational approximation (2003, relative
/// error 1.15e-9) and one step of Halley's method.
VjpTensor inverse_normal(const VjpTensor& p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                          6.680131188771972e+01,  -1.328068155288572e+01, 1};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00,
                          1};
  const auto polynomial = [](const VjpTensor& x, std::span<const double> coefficients) {
    VjpTensor y = x * coefficients[0] + coefficients[1];
    for (const double next : coefficients.subspan(2)) y = y * x + next;
    return y;
  };
  const VjpTensor center = p - 0.5, square = center * center;
  const VjpTensor middle = polynomial(square, a) * center / polynomial(square, b);
  const VjpTensor tail = vjp::sqrt(vjp::log(vjp::minimum(p, 1 - p)) * -2);
  const VjpTensor edge = polynomial(tail, c) / polynomial(tail, d);
  const VjpTensor x = vjp::where(vjp::abs(center) < 0.5 - 0.02425, middle, edge * vjp::sign(0.5 - p));
  const VjpTensor error = (vjp::erf(x * std::numbers::sqrt2 / 2) + 1) * 0.5 - p;
  const VjpTensor step = error * std::sqrt(2 * std::numbers::pi) * vjp::exp(x * x * 0.5);
  return x - step / (1 + x * step * 0.5);
}

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

}  // namespace

Tensor random_key(std::uint64_t seed, Location where) { return full({}, Scalar(seed), DType::u64, where); }

Tensor next_key(Generator& from, Location where) {
  const Tensor halves = uniform({2}, 0, 1, DType::f64, from, where);
  const LineGuard line(where);
  const VjpTensor words = vjp::cast(VjpTensor(halves) * 0x1p53, DType::u64);
  const VjpTensor low = vjp::cast(VjpTensor(select(words.tensor(), 0, 0, where)), DType::u64);
  return vjp::bitwise_xor(vjp::bitwise_left_shift(low, word(11)), select(words.tensor(), 0, 1, where)).tensor();
}

Tensor split_key(const Tensor& key, std::int64_t count, Location where) {
  require_key("split_key", key, where);
  const LineGuard line(where);
  return bits("split_key", vjp::bitwise_xor(key, word(kSplit)).tensor(), {count}, DType::u64, where).tensor();
}

Tensor fold_in(const Tensor& key, const Operand& data) {
  const Location where = data.where();
  require_key("fold_in", key, where);
  if (data.is_tensor()) require_defined("fold_in", data.tensor(), where);
  const LineGuard line(where);
  const VjpTensor with =
      data.is_tensor() ? vjp::cast(data.tensor(), DType::u64) : word(scalar_bits(data.scalar(), DType::u64));
  return vjp::philox(with, vjp::bitwise_xor(key, word(kFold))).tensor();
}

Tensor random_bits(const Tensor& key, const IntegerList& sizes, Location where) {
  const LineGuard line(where);
  return bits("random_bits", key, sizes, DType::u64, where).tensor();
}

Tensor uniform(const Tensor& key, const IntegerList& sizes, double low, double high, DType dtype, Location where) {
  const DType compute = drawn_in("uniform", dtype, where);
  const LineGuard line(where);
  return vjp::cast(unit(bits("uniform", key, sizes, dtype, where), compute, false) * (high - low) + low, dtype)
      .tensor();
}

Tensor normal(const Tensor& key, const IntegerList& sizes, double mean, double deviation, DType dtype, Location where) {
  const DType compute = drawn_in("normal", dtype, where);
  const LineGuard line(where);
  const VjpTensor first = bits("normal", key, sizes, dtype, where);
  // Box and Muller (1958).
  const VjpTensor angle = compute == DType::f64
                              ? unit(bits("normal", key, sizes, dtype, where, std::uint64_t{1} << 63), compute, false)
                              : unit(first, compute, false, true);
  const VjpTensor radius = vjp::sqrt(vjp::log(unit(first, compute, true)) * -2);
  return vjp::cast(radius * vjp::cos(angle * (2 * std::numbers::pi)) * deviation + mean, dtype).tensor();
}

Tensor truncated_normal(const Tensor& key, double low, double high, const IntegerList& sizes, DType dtype,
                        Location where) {
  drawn_in("truncated_normal", dtype, where);
  if (!(low < high))
    throw ValueError(
        1342, format_error(1342, "ValueError", fmt::format("truncated_normal: empty range from {} to {}", low, high),
                           {}, where));
  const LineGuard line(where);
  // Beyond the mean the distribution function is near 1 and has no digits left: there the mirror image is drawn.
  const bool mirrored = low > 0;
  const double from = normal_distribution(mirrored ? -high : low), to = normal_distribution(mirrored ? -low : high);
  const VjpTensor p = unit(bits("truncated_normal", key, sizes, dtype, where), DType::f64, true) * (to - from) + from;
  const VjpTensor x = inverse_normal(p);
  return vjp::cast(vjp::minimum(vjp::maximum(mirrored ? -x : x, low), high), dtype).tensor();
}

Tensor randint(const Tensor& key, std::int64_t low, std::int64_t high, const IntegerList& sizes, DType dtype,
               Location where) {
  if (low >= high)
    throw ValueError(1311, format_error(1311, "ValueError",
                                        fmt::format("randint: empty range from {} to {}", low, high), {}, where));
  require_dtype("randint", is_integer(dtype), "integers", dtype, where);
  const LineGuard line(where);
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const std::uint64_t range_high = range >> 32, range_low = range & 0xffffffff;
  const VjpTensor x = bits("randint", key, sizes, dtype, where), x_high = shifted(x, 32),
                  x_low = vjp::bitwise_and(x, word(0xffffffff));
  // The high half of x times range, from products of 32 bits.
  VjpTensor result = shifted(x_high * word(range_low) + shifted(x_low * word(range_low), 32), 32);
  if (range_high != 0) {
    const VjpTensor middle = x_high * word(range_low) + shifted(x_low * word(range_low), 32);
    const VjpTensor cross = x_low * word(range_high) + vjp::bitwise_and(middle, word(0xffffffff));
    result = x_high * word(range_high) + shifted(middle, 32) + shifted(cross, 32);
  }
  return vjp::cast(result + word(static_cast<std::uint64_t>(low)), dtype).tensor();
}

Tensor bernoulli(const Tensor& key, const Tensor& probability, Location where) {
  require_defined("bernoulli", probability, where);
  const LineGuard line(where);
  return (unit(bits("bernoulli", key, probability.shape(), DType::f32, where), DType::f32, false) <
          VjpTensor(probability))
      .tensor();
}

Tensor exponential(const Tensor& key, const IntegerList& sizes, double rate, DType dtype, Location where) {
  const DType compute = drawn_in("exponential", dtype, where);
  const LineGuard line(where);
  const VjpTensor u = unit(bits("exponential", key, sizes, dtype, where), compute, true);
  return vjp::cast(vjp::log(u) * (-1 / rate), dtype).tensor();
}

Tensor gumbel(const Tensor& key, const IntegerList& sizes, DType dtype, Location where) {
  const DType compute = drawn_in("gumbel", dtype, where);
  const LineGuard line(where);
  const VjpTensor u = unit(bits("gumbel", key, sizes, dtype, where), compute, true);
  return vjp::cast(-vjp::log(-vjp::log(u)), dtype).tensor();
}

Tensor categorical(const Tensor& key, const Tensor& logits, std::int64_t axis, Location where) {
  require_defined("categorical", logits, where);
  const LineGuard line(where);
  const DType dtype = is_floating(logits.dtype()) ? compute_dtype(logits.dtype()) : DType::f32;
  const Tensor noise = gumbel(key, logits.shape(), dtype, where);
  return argmax(vjp::add(vjp::cast(logits, dtype), noise).tensor(), {axis}, false, where);
}

}  // namespace fermata
