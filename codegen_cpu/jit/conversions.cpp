// Prim::convert. Values of f16, bf16 and small dtypes are their bits: they are widened and rounded here.
//
// Processors convert f32 to f16; everything else about the narrow types is bit arithmetic, because LLVM would call a
// library. A value that f32 cannot hold is first rounded to odd, which keeps the second rounding correct (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
#include <cmath>

#include "codegen_cpu/jit/primitives.h"
#include "ir/small_dtypes.h"

namespace fermata::jit {
namespace {

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
bool is_signed_integer(DType t) { return info(t).kind == DTypeKind::signed_integer; }

struct Converter {
  CodeBuilder& b;
  unsigned lanes;

  Type* type(DType t) const { return value_type(b.getContext(), t, lanes); }
  Value* number(DType t, std::uint64_t bits) const { return b.constant(t, bits, lanes); }
  Type* f16_type() const {
    Type* const half = b.getHalfTy();
    return lanes == 1 ? half : llvm::FixedVectorType::get(half, lanes);
  }

  Value* widen(DType from, Value* bits) const {
    if (from == DType::f16) return b.CreateFPExt(b.CreateBitCast(bits, f16_type()), type(DType::f32));
    return b.CreateBitCast(b.CreateShl(b.CreateZExt(bits, type(DType::u32)), 16), type(DType::f32));
  }

  Value* widen_small(DType from, Value* bits) const {
    const SmallFloatFormat& f = small_float(from);
    const auto u32 = [&](std::uint32_t v) { return number(DType::u32, v); };
    Value* const wide = b.CreateZExt(bits, type(DType::u32));
    if (f.is_scale) {
      Value* const power = b.CreateSelect(b.CreateICmpEQ(wide, u32(0)), u32(kLeastScaleF32), b.CreateShl(wide, 23));
      return b.CreateBitCast(b.CreateSelect(b.CreateICmpEQ(wide, u32(f.nan)), u32(0x7fc00000), power),
                             type(DType::f32));
    }
    Value* const magnitude = b.CreateAnd(wide, u32(f.sign_bit() - 1u));
    Value* const sign = b.CreateShl(b.CreateAnd(wide, u32(f.sign_bit())), 31 - f.magnitude_bits);
    // The field of the exponent is that of f32 but for the bias; the product also makes subnormal numbers right.
    Value* const scaled =
        b.CreateFMul(b.CreateBitCast(b.CreateShl(magnitude, 23 - f.fraction_bits), type(DType::f32)),
                     number(DType::f32, std::bit_cast<std::uint32_t>(power_of_two_f32(127 - f.bias))));
    Value* result = b.CreateBitCast(scaled, type(DType::u32));
    if (f.infinity != 0) result = b.CreateSelect(b.CreateICmpEQ(magnitude, u32(f.infinity)), u32(0x7f800000), result);
    if (f.first_nan < f.sign_bit())
      result = b.CreateSelect(b.CreateICmpUGE(magnitude, u32(f.first_nan)), u32(0x7fc00000), result);
    result = b.CreateOr(result, sign);
    if (f.one_zero) result = b.CreateSelect(b.CreateICmpEQ(wide, u32(f.sign_bit())), u32(0x7fc00000), result);
    return b.CreateBitCast(result, type(DType::f32));
  }

  /// As narrowing to 16 bits: the exponent is moved and the fraction rounded as one integer; below the normal numbers
  /// an addition puts the spacing of the subnormal ones at the last bit.
  Value* round_small(DType to, Value* x) const {
    const SmallFloatFormat& f = small_float(to);
    const auto u32 = [&](std::uint32_t v) { return number(DType::u32, v); };
    const unsigned cut = 23 - f.fraction_bits;
    Value* const bits = b.CreateBitCast(x, type(DType::u32));
    if (f.is_scale) {
      Value* const rounding =
          b.CreateSelect(b.CreateICmpULT(bits, u32(0x00800000)), u32(kLeastScaleRounding), u32(kScaleRounding));
      Value* const power = b.CreateLShr(b.CreateAdd(bits, rounding), 23);
      // Zero, negative numbers and NaN; infinity is 0xff without a special case.
      Value* const is_none = b.CreateICmpUGE(b.CreateSub(bits, u32(1)), u32(0x7f800000));
      return b.CreateTrunc(b.CreateSelect(is_none, u32(f.nan), power), type(to));
    }
    Value* const magnitude = b.CreateAnd(bits, u32(0x7fffffff));
    Value* const odd = b.CreateAnd(b.CreateLShr(magnitude, cut), u32(1));
    const auto moved = (1u << (cut - 1)) - 1u - (static_cast<std::uint32_t>(127 - f.bias) << 23);
    Value* const normal = b.CreateLShr(b.CreateAdd(magnitude, b.CreateAdd(odd, u32(moved))), cut);
    const float unit = power_of_two_f32(f.least_exponent() - static_cast<int>(f.fraction_bits) + 23);
    Value* const sum = b.CreateFAdd(b.CreateBitCast(magnitude, type(DType::f32)),
                                    number(DType::f32, std::bit_cast<std::uint32_t>(unit)));
    Value* const subnormal =
        b.CreateSub(b.CreateBitCast(sum, type(DType::u32)), u32(std::bit_cast<std::uint32_t>(unit)));
    const auto least = static_cast<std::uint32_t>(127 + f.least_exponent()) << 23;
    Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, u32(least)), subnormal, normal);
    const auto beyond = static_cast<std::uint32_t>(127 + 20) << 23;  // 2^20, where `normal` cannot have wrapped
    Value* const large = b.CreateOr(b.CreateICmpUGT(result, u32(f.largest)), b.CreateICmpUGE(magnitude, u32(beyond)));
    result = b.CreateSelect(large, u32(f.overflow), result);
    result = b.CreateSelect(b.CreateICmpUGT(magnitude, u32(0x7f800000)), u32(f.nan), result);
    Value* sign = b.CreateAnd(b.CreateLShr(bits, 31 - f.magnitude_bits), u32(f.sign_bit()));
    if (f.one_zero) {
      Value* const unsigned_ = b.CreateOr(b.CreateICmpEQ(result, u32(0)), b.CreateICmpEQ(result, u32(f.nan)));
      sign = b.CreateSelect(unsigned_, u32(0), sign);
    }
    return b.CreateTrunc(b.CreateOr(result, sign), type(to));
  }

  /// i8 or u8 of what the lowest bits stand for.
  Value* widen_small_integer(DType from, Value* bits) const {
    const std::uint64_t spare = 8 - bit_width(from);
    Value* const shift = CodeBuilder::integer_like(bits, spare);
    Value* const up = b.CreateShl(bits, shift);
    return info(from).kind == DTypeKind::small_signed ? b.CreateAShr(up, shift) : b.CreateLShr(up, shift);
  }
  /// Of i8 or u8: integers wrap, what was a float saturates.
  Value* narrow_small_integer(DType to, Value* x, bool saturates) const {
    if (!saturates) return widen_small_integer(to, x);
    const bool has_sign = info(to).kind == DTypeKind::small_signed;
    const int digits = static_cast<int>(bit_width(to)) - (has_sign ? 1 : 0);
    Value* const most = CodeBuilder::integer_like(x, (std::uint64_t{1} << digits) - 1);
    if (!has_sign) return b.CreateSelect(b.CreateICmpUGT(x, most), most, x);
    Value* const least = b.CreateNot(most);
    Value* const below = b.CreateSelect(b.CreateICmpSGT(x, most), most, x);
    return b.CreateSelect(b.CreateICmpSLT(x, least), least, below);
  }

  Value* round_f32(DType to, Value* x) const {
    if (is_small_float(to)) return round_small(to, x);
    if (to == DType::f16) return b.CreateBitCast(b.CreateFPTrunc(x, f16_type()), type(DType::f16));
    Value* const bits = b.CreateBitCast(x, type(DType::u32));
    Value* const odd = b.CreateAnd(b.CreateLShr(bits, 16), number(DType::u32, 1));
    Value* const rounded = b.CreateLShr(b.CreateAdd(bits, b.CreateAdd(odd, number(DType::u32, 0x7fff))), 16);
    Value* const quiet = b.CreateOr(b.CreateLShr(bits, 16), number(DType::u32, 0x40));
    return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded), type(DType::bf16));
  }

  /// f64 to f32, rounded to odd: the neighbor with the last bit set wherever the result is inexact.
  Value* round_to_odd(Value* x) const {
    Value* const nearest = b.CreateFPTrunc(x, type(DType::f32));
    Value* const back = b.CreateFPExt(nearest, type(DType::f64));
    Value* const bits = b.CreateBitCast(nearest, type(DType::u32));
    Value* const even = b.CreateICmpEQ(b.CreateAnd(bits, number(DType::u32, 1)), number(DType::u32, 0));
    Value* const moves = b.CreateAnd(b.CreateFCmpONE(back, x), even);
    Value* const too_large = b.CreateFCmpOGT(b.call(llvm::Intrinsic::fabs, {back}), b.call(llvm::Intrinsic::fabs, {x}));
    Value* const step = b.CreateSelect(too_large, number(DType::u32, ~std::uint64_t{0}), number(DType::u32, 1));
    return b.CreateBitCast(b.CreateSelect(moves, b.CreateAdd(bits, step), bits), type(DType::f32));
  }

  Value* integer_to_float(DType from, Value* x, DType to) const {
    return is_signed_integer(from) ? b.CreateSIToFP(x, type(to)) : b.CreateUIToFP(x, type(to));
  }

  /// A 64-bit integer as an f64 that rounds like it: beyond 53 bits, what is cut off is kept as one odd bit.
  Value* sticky_f64(DType from, Value* x) const {
    Value* const rest = b.CreateAnd(x, number(DType::u64, 0x7ff));
    Value* const sticky =
        b.CreateSelect(b.CreateICmpEQ(rest, number(DType::u64, 0)), number(DType::u64, 0), number(DType::u64, 0x800));
    Value* const odd = b.CreateOr(b.CreateSub(x, rest), sticky);
    Value* const magnitude =
        is_signed_integer(from) ? b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse()) : x;
    Value* const large = b.CreateICmpUGT(magnitude, number(DType::u64, std::uint64_t{1} << 53));
    return integer_to_float(from, b.CreateSelect(large, odd, x), DType::f64);
  }

  Value* to_narrow(DType from, DType to, Value* x) const {
    if (from == DType::f32) return round_f32(to, x);
    if (from == DType::f64) return round_f32(to, round_to_odd(x));
    if (from == DType::boolean || byte_size(from) <= 2) return round_f32(to, integer_to_float(from, x, DType::f32));
    if (byte_size(from) == 4) return round_f32(to, round_to_odd(integer_to_float(from, x, DType::f64)));
    return round_f32(to, round_to_odd(sticky_f64(from, x)));
  }

  Value* to_boolean(DType from, Value* x) const {
    if (is_half(from)) x = b.CreateAnd(x, CodeBuilder::integer_like(x, 0x7fff));  // -0 is false
    if (x->getType()->isFPOrFPVectorTy()) return b.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()));
    return b.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()));
  }

  Value* to_integer(DType from, DType to, Value* x) const {
    Type* const target = type(to);
    if (from == DType::boolean) return b.CreateZExt(x, target);
    if (is_integer(from))
      return is_signed_integer(from) ? b.CreateSExtOrTrunc(x, target) : b.CreateZExtOrTrunc(x, target);
    // AVX2 has no instruction for integers of 8 bytes; nearly all numbers fit 4.
    const bool by_lane = byte_size(to) == 8 && x->getType()->isVectorTy() && !b.isa().masks;
    if (!by_lane) return saturate(from, to, x);
    const auto is_at_least = [&](double limit) {
      return b.CreateFCmpOGE(x, llvm::ConstantFP::get(x->getType(), limit));
    };
    Value* const beyond = llvm::ConstantFP::get(x->getType(), 0x1p31);
    Value* const fits = b.CreateAnd(is_at_least(is_signed_integer(to) ? -0x1p31 : 0), b.CreateFCmpOLT(x, beyond));
    return b.either(
        b.CreateAndReduce(fits), [&] { return Values{b.CreateSExt(b.CreateFPToSI(x, type(DType::i32)), target)}; },
        [&] { return Values{saturate(from, to, x)}; })[0];
  }

  /// NaN stays NaN.
  Value* bound(Value* x, double lowest, double largest) const {
    Value *const low = llvm::ConstantFP::get(x->getType(), lowest), *const high =
                                                                        llvm::ConstantFP::get(x->getType(), largest);
    Value* const above = b.CreateSelect(b.CreateFCmpOGT(low, x), low, x);
    return b.CreateSelect(b.CreateFCmpOLT(high, above), high, above);
  }

  /// Vectors of f32 toward zero as i32, NaN as -2^31, whose lower half is 0; null for other vectors. What LLVM's fptosi
  /// makes of NaN is not defined.
  Value* truncate_nan_too(Value* x) const {
    switch (lanes) {
      case 4: return b.CreateIntrinsic(llvm::Intrinsic::x86_sse2_cvttps2dq, {}, {x});
      case 8: return b.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvtt_ps2dq_256, {}, {x});
      case 16: {
        if (b.isa().vector_bits < 512) return nullptr;
        constexpr int kCurrentRounding = 4;
        Value* const all = llvm::ConstantInt::get(b.getInt16Ty(), 0xffff);
        return b.CreateIntrinsic(
            llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512, {},
            {x, llvm::Constant::getNullValue(type(DType::i32)), all, b.getInt32(kCurrentRounding)});
      }
      default: return nullptr;
    }
  }

  /// A float toward zero, a limit if it is outside the range, and 0 for NaN. LLVM's fptosi.sat and fptoui.sat do the
  /// same, but x86 converts the elements of a vector one by one.
  Value* saturate(DType from, DType to, Value* x) const {
    const auto constant = [&](double value) { return llvm::ConstantFP::get(x->getType(), value); };
    const int bits = 8 * static_cast<int>(byte_size(to));
    const bool is_signed = is_signed_integer(to);
    const double lowest = is_signed ? -std::ldexp(1.0, bits - 1) : 0;
    const double beyond = std::ldexp(1.0, is_signed ? bits - 1 : bits);  // the largest integer plus one
    const double largest =
        from == DType::f32 ? std::nextafter(static_cast<float>(beyond), 0.0F) : std::nextafter(beyond, 0.0);
    if (bits < 32 && from == DType::f32)
      if (Value* const integers = truncate_nan_too(bound(x, lowest, largest))) return b.CreateTrunc(integers, type(to));
    // NaN is neither above 0, which is the lowest of an unsigned integer, nor below `largest`.
    Value* inside = b.CreateSelect(b.CreateFCmpOGT(x, constant(lowest)), x, constant(lowest));
    inside = b.CreateSelect(b.CreateFCmpOLT(inside, constant(largest)), inside, constant(largest));
    const auto zero_for_nan = [&](Value* integers) {
      if (!is_signed) return integers;
      return b.CreateSelect(b.CreateFCmpORD(x, x), integers, llvm::Constant::getNullValue(integers->getType()));
    };
    if (bits < 32) return b.CreateTrunc(zero_for_nan(b.CreateFPToSI(inside, type(DType::i32))), type(to));
    Value* const rounded =
        zero_for_nan(is_signed ? b.CreateFPToSI(inside, type(to)) : b.CreateFPToUI(inside, type(to)));
    if (bits <= (from == DType::f32 ? 24 : 53)) return rounded;
    // `largest` is below the largest integer, which is not a float.
    const std::uint64_t limit = ~std::uint64_t{0} >> (is_signed ? 65 - bits : 64 - bits);
    return b.CreateSelect(b.CreateFCmpOGE(x, constant(beyond)), number(to, limit), rounded);
  }

  Value* to_float(DType from, DType to, Value* x) const {
    if (from == DType::f32) return b.CreateFPExt(x, type(to));
    if (from == DType::f64) return b.CreateFPTrunc(x, type(to));
    return integer_to_float(from, x, to);
  }
};

}  // namespace

Value* lower_convert(CodeBuilder& b, DType from, DType to, Value* x) {
  if (from == to) return x;
  const Converter convert{b, lanes_of(x)};
  if (is_small_float(from)) return lower_convert(b, DType::f32, to, convert.widen_small(from, x));
  if (is_small(from)) return lower_convert(b, arithmetic_dtype(from), to, convert.widen_small_integer(from, x));
  if (to == DType::boolean) return convert.to_boolean(from, x);
  if (is_small(to) && !is_small_float(to)) {
    const bool saturates = is_floating(from);
    return convert.narrow_small_integer(to, lower_convert(b, from, arithmetic_dtype(to), x), saturates);
  }
  if (is_half(from)) return lower_convert(b, DType::f32, to, convert.widen(from, x));
  if (is_half(to) || is_small_float(to)) return convert.to_narrow(from, to, x);
  return is_integer(to) ? convert.to_integer(from, to, x) : convert.to_float(from, to, x);
}

Value* cut_to_bf16(CodeBuilder& b, Value* x) {
  const Converter convert{b, lanes_of(x)};
  Value* const bits = b.CreateLShr(b.CreateBitCast(x, convert.type(DType::u32)), 16);
  Value* const quiet = b.CreateOr(bits, convert.number(DType::u32, 0x40));
  return b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, bits), convert.type(DType::bf16));
}

}  // namespace fermata::jit
