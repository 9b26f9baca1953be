// See fermata/low_precision.h: all of it is made of other ops, so both modes, vmap and gradients by scales follow.
#include "fermata/low_precision.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/custom_function.h"
#include "fermata/device.h"
#include "fermata/dtypes.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/ops/products.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
constexpr DTypeSet kFactors = kSmall | kBytes | DType::f16 | DType::bf16 | DType::f32;

[[noreturn]] void refuse(std::string_view function, DType dtype, std::string_view takes, Location where) {
  throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(dtype)),
                                      {}, where, takes));
}
[[noreturn]] void throw_unfit(std::string_view function, std::string_view what, const Tensor& x, const Shape& scale,
                              Location where) {
  throw ShapeError(1056,
                   format_error(1056, "ShapeError", fmt::format("{}: {}", function, what),
                                {{"x", to_string(x.dtype(), x.shape()), ""}, {"blocks", to_string(scale), ""}}, where));
}

/// A scale beside its operand: without axes, or with the operand's, each of which is repeated to that of the operand
/// but for those of one element.
Tensor spread(const Tensor& scale, const Tensor& x, Location where) {
  if (scale.rank() == 0) return scale;
  const auto unfit = [&] {
    throw_unfit("scaled_matmul", "a scale does not divide its operand into blocks", x, scale.shape(), where);
  };
  if (scale.rank() != x.rank()) unfit();
  Shape split, wide, whole;
  bool repeats = false;
  for (unsigned axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t blocks = scale.size(axis), size = x.size(axis);
    if (blocks != 1 && (blocks == 0 || size % blocks != 0)) unfit();
    const std::int64_t each = blocks == 1 ? 1 : size / blocks;
    split.push_back(blocks), split.push_back(1), wide.push_back(blocks), wide.push_back(each);
    whole.push_back(blocks * each);
    repeats = repeats || each != 1;
  }
  if (!repeats) return scale;
  if (split.rank() > kMaxRank) unfit();
  return reshape(broadcast_to(reshape(scale, split, where), wide, where), whole, where);
}

Tensor scale_of(const Operand& scale, const Tensor& x, Location where) {
  if (!scale.is_tensor()) return full({}, scale.scalar(), DType::f32, device(x, where), where);
  if (!is_floating(scale.tensor().dtype()) && !is_small_float(scale.tensor().dtype()))
    refuse("scaled_matmul", scale.tensor().dtype(), "a scale must be floating", where);
  return astype(scale.tensor(), DType::f32, where);
}

/// The product of two matrices as they are stored, in f32.
Tensor product_of_stored(const Tensor& lhs, const Tensor& rhs, Location where) {
  const DType left = lhs.dtype(), right = rhs.dtype();
  const auto is_integer_byte = [](DType t) { return kBytes.has(t) || (is_small(t) && !is_small_float(t)); };
  if (is_integer_byte(left) && is_integer_byte(right)) {
    const std::array operands{astype(lhs, arithmetic_dtype(left), where), astype(rhs, arithmetic_dtype(right), where)};
    return astype(general_call<Op::matmul_i32>({}, operands, where), DType::f32, where);
  }
  const bool wide = left == DType::f32 || right == DType::f32 || (left == DType::f16 && right == DType::bf16) ||
                    (left == DType::bf16 && right == DType::f16);
  if (wide) return matmul(astype(lhs, DType::f32, where), astype(rhs, DType::f32, where), where);
  const DType half = left == DType::f16 || right == DType::f16 ? DType::f16 : DType::bf16;
  const std::array operands{astype(lhs, half, where), astype(rhs, half, where)};
  return general_call<Op::matmul_f32>({}, operands, where);
}

}  // namespace

Tensor saturating_cast(const Tensor& x, DType dtype, Location where) {
  require_defined("saturating_cast", x, where);
  if (is_complex(x.dtype())) return astype(x, dtype, where);
  const DType from = arithmetic_dtype(x.dtype());
  if (is_small_float(dtype)) {
    const FloatInfo limits = finfo(dtype, where);
    const Tensor given = is_floating(from) ? x : astype(x, DType::f32, where);
    return astype(clip({given, where}, {limits.min, where}, {limits.max, where}), dtype, where);
  }
  if (!is_integer(arithmetic_dtype(dtype)) || !is_integer(from)) return astype(x, dtype, where);  // floats saturate
  const IntegerInfo wanted = iinfo(dtype, where), given = iinfo(from, where);
  Tensor y = astype(x, from, where);
  if (given.max > wanted.max) y = minimum({y, where}, {wanted.max, where});
  if (given.min < wanted.min) y = maximum({y, where}, {wanted.min, where});
  return astype(y, dtype, where);
}

namespace {

struct StraightThrough : Function<StraightThrough> {
  static Tensor forward(FunctionContext&, const Tensor& x, DType dtype, Location where) {
    return astype(saturating_cast(x, dtype, where), x.dtype(), where);
  }
  static std::vector<Tensor> backward(FunctionContext&, std::span<const Tensor> gradients) { return {gradients[0]}; }
};

}  // namespace

Tensor straight_through(const Tensor& x, DType dtype, Location where) {
  require_defined("straight_through", x, where);
  if (!is_floating(x.dtype())) refuse("straight_through", x.dtype(), "x is floating", where);
  if (!kReal.has(dtype) && !is_small(dtype))
    refuse("straight_through", dtype, "the target must be a real dtype", where);
  return StraightThrough::apply_at(where, x, dtype, where);
}

Tensor scaled_matmul(const Tensor& lhs, const Tensor& rhs, const Operand& lhs_scale, const Operand& rhs_scale,
                     DType dtype, Location where) {
  require_defined("scaled_matmul", lhs, where), require_defined("scaled_matmul", rhs, where);
  for (const Tensor* x : {&lhs, &rhs})
    if (!kFactors.has(x->dtype()))
      refuse("scaled_matmul", x->dtype(), "supported are small dtypes, i8, u8, f16, bf16 and f32", where);
  if (lhs.rank() < 2 || rhs.rank() < 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", "scaled_matmul: a matrix must have two axes",
                                        describe(lhs, rhs), where));
  const Tensor left_scale = spread(scale_of(lhs_scale, lhs, where), lhs, where);
  const Tensor right_scale = spread(scale_of(rhs_scale, rhs, where), rhs, where);
  const bool left_whole = left_scale.rank() == 0 || left_scale.size(-1) == 1;
  const bool right_whole = right_scale.rank() == 0 || right_scale.size(-2) == 1;
  const auto scaled = [&](const Tensor& x, const Tensor& scale) { return multiply({x, where}, {scale, where}); };
  Tensor y = product_of_stored(left_whole ? lhs : scaled(lhs, left_scale), right_whole ? rhs : scaled(rhs, right_scale),
                               where);
  if (left_whole) y = scaled(y, left_scale);
  if (right_whole) y = scaled(y, right_scale);
  return astype(y, dtype, where);
}

namespace {

/// 2^e, the largest power of two up to x > 0, times 2^-shift; x rounds to none that is larger.
Tensor power_below(const Tensor& x, int shift, Location where) {
  const Tensor exponent = subtract({frexp_exponent({x, where}), where}, {1 + shift, where});
  return ldexp({1.0f, where}, {clip({exponent, where}, {-127, where}, {127, where}), where});
}

/// The scales by which the largest magnitudes become the largest number, in the dtype that they are kept in.
Tensor scales_of(const Tensor& largest, double most, DType dtype, Location where) {
  if (dtype == DType::f8e8m0fnu) return astype(power_below(largest, std::ilogb(most), where), dtype, where);
  const Tensor scale = divide({largest, where}, {most, where});
  if (!is_small_float(dtype)) return astype(scale, dtype, where);
  const double least =
      std::ldexp(1.0, small_float(dtype).least_exponent() - static_cast<int>(small_float(dtype).fraction_bits));
  return saturating_cast(maximum({scale, where}, {least, where}), dtype, where);
}

}  // namespace

Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks, Location where) {
  return quantize_blocks(x, dtype, blocks, DType::f32, where);
}
Scaled quantize_blocks(const Tensor& x, DType dtype, std::initializer_list<std::int64_t> blocks, DType scale_dtype,
                       Location where) {
  require_defined("quantize_blocks", x, where);
  if (!is_floating(x.dtype())) refuse("quantize_blocks", x.dtype(), "x is floating", where);
  if ((!is_small(dtype) && !kBytes.has(dtype)) || dtype == DType::f8e8m0fnu)
    refuse("quantize_blocks", dtype, "use a small dtype, i8 or u8", where);
  if (scale_dtype == DType::f64 || (!is_floating(scale_dtype) && !is_small_float(scale_dtype)))
    refuse("quantize_blocks", scale_dtype, "scales must be f32, f16, bf16 or small floats", where);
  const Shape sizes = x.shape(), wanted(std::span<const std::int64_t>(blocks.begin(), blocks.size()));
  const auto unfit = [&] { throw_unfit("quantize_blocks", "the blocks do not divide x", x, wanted, where); };
  if (wanted.rank() != sizes.rank() || 2 * sizes.rank() > kMaxRank) unfit();
  Shape split, scales, spread_shape;
  std::vector<std::int64_t> inner;
  for (unsigned axis = 0; axis < sizes.rank(); ++axis) {
    const std::int64_t block = wanted[axis] == 0 ? std::max<std::int64_t>(sizes[axis], 1) : wanted[axis];
    if (block < 0 || sizes[axis] % block != 0) unfit();
    split.push_back(sizes[axis] / block), split.push_back(block);
    scales.push_back(sizes[axis] / block);
    spread_shape.push_back(sizes[axis] / block), spread_shape.push_back(1);
    inner.push_back(2 * axis + 1);
  }
  const bool is_unsigned = !is_small_float(dtype) && !is_signed(arithmetic_dtype(dtype));
  const double most = is_small_float(dtype) ? finfo(dtype, where).max : static_cast<double>(iinfo(dtype, where).max);
  const Tensor parts = reshape(astype(x, DType::f32, where), split, where);
  const Tensor size = is_unsigned ? maximum({parts, where}, {0, where}) : abs({parts, where});
  const Tensor largest =
      element_count(sizes) == 0 ? zeros(spread_shape, DType::f32, where) : max(size, inner, true, where);
  // A block of zeros has the scale 1.
  const Tensor measured =
      fermata::where({equal({largest, where}, {0, where}), where},
                     {scale_dtype == DType::f8e8m0fnu ? std::exp2(std::ilogb(most)) : most, where}, {largest, where});
  const Tensor scale = scales_of(measured, most, scale_dtype, where);
  Tensor values = divide({parts, where}, {astype(scale, DType::f32, where), where});
  if (!is_small_float(dtype)) values = round({values, where});
  return {reshape(saturating_cast(values, dtype, where), sizes, where), reshape(scale, scales, where)};
}

namespace {

/// Codes of the numbers that f4e2m1fn has, by comparisons with the ones below them.
Tensor codes_of_floats(const Tensor& x, Location where) {
  const Tensor wide = astype(x, DType::f32, where), size = abs({wide, where});
  Tensor code = astype(signbit({wide, where}), DType::u8, where) * 8;
  for (const double number : {0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
    code = code + astype(greater_equal({size, where}, {number, where}), DType::u8, where);
  return code;
}
Tensor floats_of_codes(const Tensor& code, Location where) {
  constexpr std::array kNumbers{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const Tensor index = bitwise_and({code, where}, {7, where});
  Tensor size = full(code.shape(), 0.0f, DType::f32, device(code, where), where);
  for (std::size_t i = 1; i < kNumbers.size(); ++i)
    size = fermata::where({equal({index, where}, {static_cast<std::int64_t>(i), where}), where}, {kNumbers[i], where},
                          {size, where});
  const Tensor below = greater({code, where}, {7, where});
  return astype(fermata::where({below, where}, {negative({size, where}), where}, {size, where}), DType::f4e2m1fn,
                where);
}

void require_packed(std::string_view function, DType dtype, Location where) {
  if (bit_width(dtype) >= 8) refuse(function, dtype, "supported are dtypes of 4 and 2 bits", where);
}

}  // namespace

Tensor pack_elements(const Tensor& x, Location where) {
  require_defined("pack_elements", x, where);
  require_packed("pack_elements", x.dtype(), where);
  if (x.rank() == 0) return pack_elements(expand_dims(x, 0, where), where);
  const std::int64_t bits = bit_width(x.dtype()), in_byte = 8 / bits, size = x.size(-1);
  const std::int64_t bytes = size / in_byte + (size % in_byte != 0), missing = bytes * in_byte - size;
  Tensor code = is_small_float(x.dtype()) ? codes_of_floats(x, where)
                                          : astype(astype(x, arithmetic_dtype(x.dtype()), where), DType::u8, where);
  code = bitwise_and({code, where}, {(std::int64_t{1} << bits) - 1, where});
  Shape shape = x.shape();
  if (missing != 0) {
    Shape rest = shape;
    rest[shape.rank() - 1u] = missing;
    code = concat({code, full(rest, 0, DType::u8, device(x, where), where)}, -1, where);
  }
  shape[shape.rank() - 1u] = bytes;
  Tensor packed;
  for (std::int64_t i = 0; i < in_byte; ++i) {
    const Tensor part = slice(code, -1, i, kNone, in_byte, where);
    const Tensor moved = i == 0 ? part : bitwise_left_shift({part, where}, {i * bits, where});
    packed = i == 0 ? moved : bitwise_or({packed, where}, {moved, where});
  }
  return packed;
}

Tensor unpack_elements(const Tensor& bytes, DType dtype, std::int64_t size, Location where) {
  require_defined("unpack_elements", bytes, where);
  require_packed("unpack_elements", dtype, where);
  if (bytes.dtype() != DType::u8) refuse("unpack_elements", bytes.dtype(), "it takes u8", where);
  const std::int64_t bits = bit_width(dtype), in_byte = 8 / bits;
  if (bytes.rank() == 0 || size < 0 || bytes.size(-1) != size / in_byte + (size % in_byte != 0))
    throw_unfit("unpack_elements", fmt::format("{} elements of {} bits do not take that many bytes", size, bits), bytes,
                Shape{size}, where);
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < in_byte; ++i) {
    const Tensor moved = i == 0 ? bytes : bitwise_right_shift({bytes, where}, {i * bits, where});
    parts.push_back(bitwise_and({moved, where}, {(std::int64_t{1} << bits) - 1, where}));
  }
  Shape shape = bytes.shape();
  shape[shape.rank() - 1u] *= in_byte;
  const Tensor code = slice(reshape(stack(parts, -1, where), shape, where), -1, 0, size, 1, where);
  return is_small_float(dtype) ? floats_of_codes(code, where) : astype(code, dtype, where);
}

}  // namespace fermata
