// Prim::convert. Values of f16 and bf16 are their bits: they are widened to f32 and rounded from it here.
//
// Processors convert f32 to f16; everything else about the narrow types is bit arithmetic, because LLVM would call a
// library. A value that f32 cannot hold is first rounded to odd, which keeps the second rounding correct (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
#include "codegen_cpu/jit/primitives.h"

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

  Value* round_f32(DType to, Value* x) const {
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

  Value* to_half(DType from, DType to, Value* x) const {
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
    const auto saturating = is_signed_integer(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b.CreateIntrinsic(saturating, {target, x->getType()}, {x});
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
  if (to == DType::boolean) return convert.to_boolean(from, x);
  if (is_half(from)) return lower_convert(b, DType::f32, to, convert.widen(from, x));
  if (is_half(to)) return convert.to_half(from, to, x);
  return is_integer(to) ? convert.to_integer(from, to, x) : convert.to_float(from, to, x);
}

}  // namespace fermata::jit
