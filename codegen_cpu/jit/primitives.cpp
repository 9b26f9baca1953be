// See primitives.h.
#include "codegen_cpu/jit/primitives.h"

#include "codegen_cpu/jit/float_remainder.h"
#include "codegen_cpu/jit/integer_division.h"
#include "ir/scalar_interpreter.h"

namespace fermata::jit {
namespace {

using llvm::Intrinsic::ID;

bool is_signed_integer(DType t) { return info(t).kind == DTypeKind::signed_integer; }
Value* number(const Value* like, std::uint64_t value) { return CodeBuilder::integer_like(like, value); }

/// The upper half of a 64-bit product from 32-bit halves: vectors have no 128-bit product.
Value* multiply_high_64(CodeBuilder& b, Value* x, Value* y) {
  Value* const low = number(x, 0xffffffffu);
  Value* const xl = b.CreateAnd(x, low);
  Value* const yl = b.CreateAnd(y, low);
  Value* const xh = b.CreateLShr(x, 32);
  Value* const yh = b.CreateLShr(y, 32);
  Value* const cross = b.CreateMul(xh, yl);
  Value* const middle =
      b.CreateAdd(b.CreateAdd(b.CreateLShr(b.CreateMul(xl, yl), 32), b.CreateAnd(cross, low)), b.CreateMul(xl, yh));
  return b.CreateAdd(b.CreateAdd(b.CreateMul(xh, yh), b.CreateLShr(cross, 32)), b.CreateLShr(middle, 32));
}

Value* multiply_high(CodeBuilder& b, DType type, Value* x, Value* y) {
  if (type == DType::u64 && lanes_of(x) > 1) return multiply_high_64(b, x, y);
  const unsigned bits = x->getType()->getScalarSizeInBits();
  Type* const wide = x->getType()->getWithNewBitWidth(2 * bits);
  const bool is_signed = is_signed_integer(type);
  const auto extend = [&](Value* v) { return is_signed ? b.CreateSExt(v, wide) : b.CreateZExt(v, wide); };
  return b.CreateTrunc(b.CreateLShr(b.CreateMul(extend(x), extend(y)), bits), x->getType());
}

bool is_same_in_all_lanes(const Value* v) {
  if (const auto* constant = llvm::dyn_cast<llvm::Constant>(v)) return constant->getSplatValue() != nullptr;
  const auto* const shuffle = llvm::dyn_cast<llvm::ShuffleVectorInst>(v);
  return shuffle != nullptr && shuffle->isZeroEltSplat();
}

/// Vectors of AVX-512 of bytes with a count of its own for each: there is no instruction for them. Each of a pair is
/// shifted with the other one; instructions give 0, or the sign, for counts that are too large.
Value* shift_bytes(CodeBuilder& b, bool left, bool is_signed, Value* x, Value* y) {
  Type* const pairs = llvm::FixedVectorType::get(b.getInt16Ty(), 32);
  Value* const both = b.CreateBitCast(x, pairs);
  Value* const counts = b.CreateBitCast(y, pairs);
  const auto low = [&](Value* v) { return b.CreateAnd(v, number(v, 0x00ff)); };
  const auto high = [&](Value* v) { return b.CreateAnd(v, number(v, 0xff00)); };
  const auto shifted = [&](Value* v, Value* count) -> Value* {
    return b.CreateIntrinsic(left        ? llvm::Intrinsic::x86_avx512_psllv_w_512
                             : is_signed ? llvm::Intrinsic::x86_avx512_psrav_w_512
                                         : llvm::Intrinsic::x86_avx512_psrlv_w_512,
                             {}, {v, count});
  };
  Value* const second = shifted(left ? high(both) : both, b.CreateLShr(counts, 8));
  Value* const first = shifted(left ? both : is_signed ? b.CreateShl(both, 8) : low(both), low(counts));
  Value* const first_byte = left ? low(first) : is_signed ? b.CreateLShr(first, 8) : first;
  return b.CreateBitCast(b.CreateOr(first_byte, high(second)), x->getType());
}

Value* shift(CodeBuilder& b, bool left, DType type, Value* x, Value* y) {
  const unsigned bits = x->getType()->getScalarSizeInBits();
  const bool is_of_bytes = bits == 8 && b.isa().vector_bits == 512 && lanes_of(x) == 64;
  if (is_of_bytes && !is_same_in_all_lanes(y)) return shift_bytes(b, left, is_signed_integer(type), x, y);
  Value* const in_range = b.CreateICmpULT(y, number(y, bits));  // a negative count is a large unsigned one
  if (!left && is_signed_integer(type)) return b.CreateAShr(x, b.choose(in_range, y, number(y, bits - 1)));
  Value* const count = b.choose(in_range, y, number(y, 0));
  return b.choose(in_range, left ? b.CreateShl(x, count) : b.CreateLShr(x, count), number(x, 0));
}

Value* lower_float(CodeBuilder& b, Prim prim, Value* x, Value* y, Value* z) {
  switch (prim) {
    case Prim::add: return b.CreateFAdd(x, y);
    case Prim::sub: return b.CreateFSub(x, y);
    case Prim::mul: return b.CreateFMul(x, y);
    case Prim::div: return b.CreateFDiv(x, y);
    case Prim::rem: return float_remainder(b, x, y);
    case Prim::neg: return b.CreateFNeg(x);
    case Prim::abs: return b.call(llvm::Intrinsic::fabs, {x});
    case Prim::min: return b.CreateSelect(b.CreateFCmpOLT(x, y), x, y);
    case Prim::max: return b.CreateSelect(b.CreateFCmpOGT(x, y), x, y);
    case Prim::fma: return b.call(llvm::Intrinsic::fma, {x, y, z});
    case Prim::sqrt: return b.call(llvm::Intrinsic::sqrt, {x});
    case Prim::floor: return b.call(llvm::Intrinsic::floor, {x});
    case Prim::ceil: return b.call(llvm::Intrinsic::ceil, {x});
    case Prim::trunc: return b.call(llvm::Intrinsic::trunc, {x});
    case Prim::rint: return b.call(llvm::Intrinsic::roundeven, {x});
    case Prim::eq: return b.CreateFCmpOEQ(x, y);
    case Prim::ne: return b.CreateFCmpUNE(x, y);
    case Prim::lt: return b.CreateFCmpOLT(x, y);
    case Prim::le: return b.CreateFCmpOLE(x, y);
    default: return nullptr;
  }
}

Value* lower_integer(CodeBuilder& b, Prim prim, DType type, Value* x, Value* y) {
  const bool is_signed = is_signed_integer(type);
  switch (prim) {
    case Prim::add: return b.CreateAdd(x, y);
    case Prim::sub: return b.CreateSub(x, y);
    case Prim::mul: return b.CreateMul(x, y);
    case Prim::div: return divide_integers(b, type, x, y, false);
    case Prim::rem: return divide_integers(b, type, x, y, true);
    case Prim::mul_high: return multiply_high(b, type, x, y);
    case Prim::neg: return b.CreateNeg(x);
    case Prim::abs: return is_signed ? b.choose(b.CreateICmpSLT(x, number(x, 0)), b.CreateNeg(x), x) : x;
    case Prim::min: return b.choose(is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y), x, y);
    case Prim::max: return b.choose(is_signed ? b.CreateICmpSGT(x, y) : b.CreateICmpUGT(x, y), x, y);
    case Prim::bit_and: return b.CreateAnd(x, y);
    case Prim::bit_or: return b.CreateOr(x, y);
    case Prim::bit_xor: return b.CreateXor(x, y);
    case Prim::bit_not: return b.CreateNot(x);
    case Prim::shl: return shift(b, true, type, x, y);
    case Prim::shr: return shift(b, false, type, x, y);
    case Prim::eq: return b.CreateICmpEQ(x, y);
    case Prim::ne: return b.CreateICmpNE(x, y);
    case Prim::lt: return is_signed ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
    case Prim::le: return is_signed ? b.CreateICmpSLE(x, y) : b.CreateICmpULE(x, y);
    default: return nullptr;
  }
}

/// Truth values, by the operations of logic. LLVM 19 never comes to an end where it selects instructions of AVX2 for
/// some programs that compare vectors of bits, or select from them.
Value* lower_boolean(CodeBuilder& b, Prim prim, Value* x, Value* y) {
  switch (prim) {
    case Prim::eq: return b.CreateNot(b.CreateXor(x, y));
    case Prim::ne: return b.CreateXor(x, y);
    case Prim::lt: return b.CreateAnd(b.CreateNot(x), y);
    case Prim::le: return b.CreateOr(b.CreateNot(x), y);
    case Prim::min: return b.CreateAnd(x, y);
    case Prim::max: return b.CreateOr(x, y);
    default: return lower_integer(b, prim, DType::boolean, x, y);
  }
}
Value* lower_select(CodeBuilder& b, DType type, Value* condition, Value* x, Value* y) {
  if (type != DType::boolean || llvm::isa<llvm::Constant>(condition)) return b.choose(condition, x, y);
  return b.CreateXor(y, b.CreateAnd(condition, b.CreateXor(x, y)));
}

/// bool is one bit here and one byte as bits.
Value* lower_bitcast(CodeBuilder& b, DType type, DType operand, Value* x) {
  if (type == operand) return x;
  if (type == DType::boolean) return b.CreateICmpNE(x, number(x, 0));
  Type* const to = value_type(b.getContext(), type, lanes_of(x));
  return operand == DType::boolean ? b.CreateZExt(x, to) : b.CreateBitCast(x, to);
}

}  // namespace

Value* lower_primitive(CodeBuilder& b, Prim prim, DType type, DType operand, Value* x, Value* y, Value* z) {
  if (prim_function(prim, type, operand) == nullptr)
    refuse("primitive " + std::string(name(prim)) + " is not defined for " + std::string(name(operand)) + " giving " +
           std::string(name(type)));
  switch (prim) {
    case Prim::select: return lower_select(b, operand, x, y, z);
    case Prim::convert: return lower_convert(b, operand, type, x);
    case Prim::bitcast: return lower_bitcast(b, type, operand, x);
    default: break;
  }
  Value* const result = operand == DType::boolean                        ? lower_boolean(b, prim, x, y)
                        : operand == DType::f32 || operand == DType::f64 ? lower_float(b, prim, x, y, z)
                                                                         : lower_integer(b, prim, operand, x, y);
  if (result == nullptr) refuse("primitive " + std::string(name(prim)) + " has no machine code");
  return result;
}

}  // namespace fermata::jit
