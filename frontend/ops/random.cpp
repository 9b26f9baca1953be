// See fermata/random.h.
#include "fermata/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "dispatch/call_context.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/random_key.h"
#include "frontend/engine/generator_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/device_scope.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

/// Standard random numbers of a dtype; the offset is taken now, whenever they are computed.
Tensor draw(Op op, std::string_view function, std::span<const std::int64_t> sizes, DType dtype, Generator& from,
            Location where, Device device = {}) {
  check_shape(function, sizes, dtype, where);
  const std::uint64_t scalars[] = {from.key(), from.offset()};
  const Attributes arguments{
      .wanted = {dtype, Shape(sizes)}, .integers = {}, .scalars = scalars, .backend = device.backend()};
  Tensor result = make_on(
      function, device, [&] { return general_call(op, {}, arguments, where); }, where);
  from.reserve(ordinary_tensor(result).element_count());  // inside vmap, those of the whole batch
  return result;
}

Tensor affine(const Tensor& x, double scale, double shift, Location where) {
  const Tensor scaled = scale == 1 ? x : multiply({x, where}, scale);
  return shift == 0 ? scaled : add({scaled, where}, shift);
}

double spacing_below_one(DType small) {
  const SmallFloatFormat& f = small_float(small);
  return std::ldexp(1.0, std::max(-1, f.least_exponent()) - static_cast<int>(f.fraction_bits));
}

/// f16, bf16 and small floats are drawn and scaled in f32 and rounded once.
Tensor draw_affine(Op op, std::string_view function, const IntegerList& sizes, double scale, double shift, DType dtype,
                   Generator& from, Location where) {
  return astype(affine(draw(op, function, sizes, compute_dtype(dtype), from, where), scale, shift, where), dtype,
                where);
}

}  // namespace

std::uint64_t Generator::reserve(std::int64_t count) {
  const std::uint64_t first = offset_;
  offset_ += (static_cast<std::uint64_t>(count) + 3) & ~std::uint64_t{3};
  return first;
}

Generator& default_generator() {
  static std::atomic<std::uint64_t> threads{0};
  static const auto key_of = [](std::uint64_t thread) { return thread == 0 ? 0 : mixed(thread); };
  thread_local Generator generator(key_of(threads.fetch_add(1, std::memory_order_relaxed)));
  return generator;
}

void install_draws() {
  context_hooks.reserve = [] {
    Generator& g = default_generator();
    const std::uint64_t key = g.key();
    return DrawStream{key, g.reserve(1)};
  };
  context_hooks.enter_stream = [](const DrawStream& stream) {
    Generator& g = default_generator();
    const DrawStream before{g.key(), g.offset()};
    g.seed(stream_key(std::bit_cast<double>(stream.key), stream.offset));
    return before;
  };
  context_hooks.leave_stream = [](const DrawStream& before) {
    Generator& g = default_generator();
    g.seed(before.key), g.set_offset(before.offset);
  };
}

void manual_seed(std::uint64_t seed) { default_generator().seed(seed); }

Tensor uniform(const IntegerList& sizes, double low, double high, DType dtype, Generator& from, Location where) {
  return draw_affine(Op::random_uniform, "uniform", sizes, high - low, low, dtype, from, where);
}
Tensor normal(const IntegerList& sizes, double mean, double deviation, DType dtype, Generator& from, Location where) {
  return draw_affine(Op::random_normal, "normal", sizes, deviation, mean, dtype, from, where);
}
Tensor rand(const IntegerList& sizes, DType dtype, Location where) { return rand(sizes, dtype, Device(), where); }
Tensor rand(const IntegerList& sizes, DType dtype, Device device, Location where) {
  const Tensor unit = draw(Op::random_uniform, "rand", sizes, compute_dtype(dtype), default_generator(), where, device);
  if (compute_dtype(dtype) == dtype) return unit;
  if (dtype == DType::f8e8m0fnu)  // has no zero
    throw DTypeError(1101, format_error(1101, "DTypeError", "rand: does not take f8e8m0fnu", {}, where));
  // Rounding 24 bits to the 11 of f16, the 8 of bf16 or fewer would give 1 now and then: the rest is cut off.
  const double steps = is_small_float(dtype) ? 1 / spacing_below_one(dtype) : dtype == DType::f16 ? 2048 : 256;
  const Tensor cut = floor({multiply({unit, where}, steps), where});
  return astype(multiply({cut, where}, 1 / steps), dtype, where);
}
Tensor randn(const IntegerList& sizes, DType dtype, Device device, Location where) {
  return astype(draw(Op::random_normal, "randn", sizes, compute_dtype(dtype), default_generator(), where, device),
                dtype, where);
}
Tensor randn(const IntegerList& sizes, DType dtype, Location where) {
  return draw_affine(Op::random_normal, "randn", sizes, 1, 0, dtype, default_generator(), where);
}

// The others are drawn with a key of their own.

Tensor randint(std::int64_t low, std::int64_t high, const IntegerList& sizes, DType dtype, Generator& from,
               Location where) {
  check_shape("randint", sizes, dtype, where);
  return randint(next_key(from, where), low, high, sizes, dtype, where);
}
Tensor truncated_normal(double low, double high, const IntegerList& sizes, DType dtype, Generator& from,
                        Location where) {
  check_shape("truncated_normal", sizes, dtype, where);
  return truncated_normal(next_key(from, where), low, high, sizes, dtype, where);
}
Tensor exponential(const IntegerList& sizes, double rate, DType dtype, Generator& from, Location where) {
  check_shape("exponential", sizes, dtype, where);
  return exponential(next_key(from, where), sizes, rate, dtype, where);
}
Tensor categorical(const Tensor& logits, std::int64_t axis, Generator& from, Location where) {
  require_defined("categorical", logits, where);
  return categorical(next_key(from, where), logits, axis, where);
}

Tensor bernoulli(const Tensor& probability, Generator& from, Location where) {
  require_defined("bernoulli", probability, where);
  const Tensor unit =
      draw(Op::random_uniform, "bernoulli", probability.shape(), DType::f32, from, where, device(probability));
  return less({unit, where}, probability);
}
Tensor bernoulli(double probability, const IntegerList& sizes, Generator& from, Location where) {
  const Tensor unit = draw(Op::random_uniform, "bernoulli", sizes, DType::f32, from, where);
  return less({unit, where}, probability);
}

Tensor permutation(std::int64_t count, Generator& from, Location where) {
  check_shape("permutation", {&count, 1}, DType::i64, where);
  return permutation(next_key(from, where), count, where);
}
Tensor shuffle(const Tensor& x, std::int64_t axis, Generator& from, Location where) {
  require_defined("shuffle", x, where);
  return shuffle(next_key(from, where), x, axis, where);
}
Tensor choice(const Tensor& x, std::int64_t count, bool replace, const Tensor& probabilities, Generator& from,
              Location where) {
  require_defined("choice", x, where);
  return choice(next_key(from, where), x, count, replace, probabilities, where);
}

}  // namespace fermata
