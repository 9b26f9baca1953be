// See integer_division.h.
#include "codegen_cpu/jit/integer_division.h"

#include <bit>

namespace fermata::jit {
namespace {

/// Doubles divide 64-bit integers below this exactly enough, with a reciprocal, too.
constexpr std::int64_t kLimit = std::int64_t{1} << 49;
/// A reciprocal is made larger by so much, which is more than rounding takes from it and from a product. A quotient
/// that is an integer is not rounded down to the next one then; one of x and y that is none is 1 / (|x| + |y|) or more
/// below the next one, which is further than that.
constexpr double kDoubleExcess = 0x1p-51, kFloatExcess = 0x1p-21;
/// Doubles from this one to twice it lie one apart: their low bits are integers. Added to a 64-bit integer, its bits
/// make a double of it; one and a half, so that it may be negative.
constexpr double kIntegers = 0x1.8p52;

bool is_signed_integer(DType t) { return info(t).kind == DTypeKind::signed_integer; }
Value* number(const Value* like, std::uint64_t value) { return CodeBuilder::integer_like(like, value); }
Value* real(const Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }
Value* minus_one(const Value* like) { return llvm::Constant::getAllOnesValue(like->getType()); }
unsigned bits_of(const Value* x) { return x->getType()->getScalarSizeInBits(); }

/// The constant in all lanes of an integer, or null.
const llvm::APInt* integer_constant(const Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant == nullptr) return nullptr;
  if (value->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* integer = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant);
  return integer == nullptr ? nullptr : &integer->getValue();
}

/// Conversions of integers to the floats that divide them, and of whole numbers back.
struct Floats {
  CodeBuilder& b;
  bool is_signed;

  Value* from(Value* x) const {
    const unsigned bits = bits_of(x);
    Type* const type = x->getType()->getWithNewType(bits <= 16 ? b.getFloatTy() : b.getDoubleTy());
    if (bits < 64) return is_signed ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
    Value* const sum = b.CreateBitCast(b.CreateAdd(x, number(x, kOffset)), type);
    return b.CreateFSub(sum, real(sum, kIntegers));
  }
  /// Of quotients, rounded towards zero.
  Value* to(Value* x, Type* integers) const {
    if (integers->getScalarSizeInBits() < 64)
      return is_signed ? b.CreateFPToSI(x, integers) : b.CreateFPToUI(x, integers);
    return to_64(b.call(llvm::Intrinsic::trunc, {x}), integers);
  }
  Value* to_64(Value* whole, Type* integers) const {
    Value* const bits = b.CreateBitCast(b.CreateFAdd(whole, real(whole, kIntegers)), integers);
    return b.CreateSub(bits, number(bits, kOffset));
  }
  /// Whether x is below kLimit, and above -kLimit if it has a sign.
  Value* are_small(Value* x) const {
    if (!is_signed) return b.CreateICmpULT(x, number(x, kLimit));
    return b.CreateICmpULT(b.CreateAdd(x, number(x, kLimit)), number(x, 2 * kLimit));
  }
  static constexpr std::uint64_t kOffset = 0x4338000000000000;  // the bits of kIntegers
};

/// The quotient, or the remainder, of 64-bit integers as doubles, from those and an estimate that is right once it is
/// rounded towards zero.
Value* finish_64(CodeBuilder& b, const Floats& floats, Value* x, Value* y, Value* estimate, bool remainder,
                 Type* integers) {
  Value* const whole = b.call(llvm::Intrinsic::trunc, {estimate});
  if (!remainder) return floats.to_64(whole, integers);
  return floats.to_64(b.call(llvm::Intrinsic::fma, {b.CreateFNeg(whole), y, x}), integers);
}

Value* in_hardware(CodeBuilder& b, bool is_signed, Value* x, Value* y, bool remainder) {
  Value* const quotient = is_signed ? b.CreateSDiv(x, y) : b.CreateUDiv(x, y);
  return remainder ? b.CreateSub(x, b.CreateMul(quotient, y)) : quotient;
}

/// What a reciprocal of doubles is made smaller by at least: an estimate of a quotient is not above it then.
constexpr double kDoubleDeficit = 0x1p-49;

/// 64-bit integers of any size, with a reciprocal of |y| that is a little too small. What a first quotient leaves of
/// |x| is below 2^17 |y|, what a second one leaves is below 2 |y|. Only AVX-512 converts and multiplies such integers.
Value* divide_in_two_steps(CodeBuilder& b, bool is_signed, Value* x, Value* y, Value* reciprocal, bool remainder) {
  const auto magnitude = [&](Value* of) {
    return is_signed ? b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, of, b.getFalse()) : of;
  };
  Value *const numerator = magnitude(x), *const divisor = magnitude(y);
  const auto estimate = [&](Value* of) {
    return b.CreateFPToUI(b.CreateFMul(b.CreateUIToFP(of, reciprocal->getType()), reciprocal), x->getType());
  };
  Value* const first = estimate(numerator);
  Value* const left = b.CreateSub(numerator, b.CreateMul(first, divisor));
  Value* const second = estimate(left);
  Value* const rest = b.CreateSub(left, b.CreateMul(second, divisor));
  Value* const is_more = b.CreateICmpUGE(rest, divisor);
  const auto with_sign = [&](Value* of, Value* sign) {
    return is_signed ? b.CreateSelect(b.CreateICmpSLT(sign, number(sign, 0)), b.CreateNeg(of), of) : of;
  };
  if (remainder) return with_sign(b.CreateSelect(is_more, b.CreateSub(rest, divisor), rest), x);
  Value* const quotient = b.CreateAdd(first, second);
  return with_sign(b.CreateSelect(is_more, b.CreateAdd(quotient, number(quotient, 1)), quotient), b.CreateXor(x, y));
}
bool has_two_steps(const CodeBuilder& b, const Value* x) { return b.isa().masks && lanes_of(x) > 1; }

/// For a divisor that is neither 0 nor, where signed, -1.
Value* divide_safely(CodeBuilder& b, bool is_signed, Value* x, Value* y, bool remainder) {
  const Floats floats{b, is_signed};
  const llvm::APInt* const constant = integer_constant(y);
  if (lanes_of(x) == 1 || (constant != nullptr && (bits_of(x) < 64 || constant->isPowerOf2())))
    return in_hardware(b, is_signed, x, y, remainder);
  const auto quotient = [&] { return b.CreateFDiv(floats.from(x), floats.from(y)); };
  if (bits_of(x) < 64) {
    Value* const whole = floats.to(quotient(), x->getType());
    return remainder ? b.CreateSub(x, b.CreateMul(whole, y)) : whole;
  }
  return b.either(
      b.all(b.CreateAnd(floats.are_small(x), floats.are_small(y))),
      [&] { return Values{finish_64(b, floats, floats.from(x), floats.from(y), quotient(), remainder, x->getType())}; },
      [&] {
        if (!has_two_steps(b, x)) return Values{in_hardware(b, is_signed, x, y, remainder)};
        Type* const doubles = x->getType()->getWithNewType(b.getDoubleTy());
        Value* const divisor =
            b.CreateUIToFP(is_signed ? b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, y, b.getFalse()) : y, doubles);
        Value* const reciprocal = b.CreateFDiv(real(divisor, 1 - kDoubleDeficit), divisor);
        return Values{divide_in_two_steps(b, is_signed, x, y, reciprocal, remainder)};
      })[0];
}

}  // namespace

Value* divide_integers(CodeBuilder& b, DType type, Value* x, Value* y, bool remainder) {
  const bool is_signed = is_signed_integer(type);
  Value* const zero = number(x, 0);
  Value* const by_zero = b.CreateICmpEQ(y, zero);
  Value* const by_minus_one = is_signed ? b.CreateICmpEQ(y, minus_one(y)) : nullptr;
  Value* const special = is_signed ? b.CreateOr(by_zero, by_minus_one) : by_zero;
  Value* const divisor = b.choose(special, number(y, 1), y);
  Value* result = divide_safely(b, is_signed, x, divisor, remainder);
  if (remainder) return b.choose(by_zero, x, result);  // x rem -1 is 0, as with the divisor 1 that stands in for it
  if (is_signed) result = b.choose(by_minus_one, b.CreateNeg(x), result);
  return b.choose(by_zero, zero, result);
}

bool prepares_integer_divisor(const Instr& divisor) {
  const DTypeKind kind = info(divisor.type).kind;
  if (kind != DTypeKind::signed_integer && kind != DTypeKind::unsigned_integer) return false;
  return divisor.prim != Prim::constant || (byte_size(divisor.type) == 8 && !std::has_single_bit(divisor.bits));
}

IntegerDivisor prepare_integer_divisor(CodeBuilder& b, DType type, Value* divisor) {
  const Floats floats{b, is_signed_integer(type)};
  Value* const by_zero = b.CreateICmpEQ(divisor, number(divisor, 0));
  Value* const by_minus_one =
      floats.is_signed ? b.CreateICmpEQ(divisor, minus_one(divisor)) : static_cast<Value*>(b.getFalse());
  Value* const safe = b.choose(b.CreateOr(by_zero, by_minus_one), number(divisor, 1), divisor);
  Value* const as_float = bits_of(safe) < 64 ? floats.from(safe)
                          : floats.is_signed ? b.CreateSIToFP(safe, b.getDoubleTy())
                                             : b.CreateUIToFP(safe, b.getDoubleTy());
  const bool is_double = as_float->getType()->isDoubleTy();
  Value* const reciprocal = b.CreateFMul(b.CreateFDiv(real(as_float, 1), as_float),
                                         real(as_float, 1 + (is_double ? kDoubleExcess : kFloatExcess)));
  return {.divisor = b.splat(safe),
          .reciprocal = b.splat(b.choose(by_zero, real(as_float, 0), reciprocal)),
          .is_minus_one = floats.is_signed ? b.splat(by_minus_one) : nullptr,
          .is_fit = bits_of(divisor) == 64 ? floats.are_small(safe) : nullptr};
}

Value* divide_by_uniform(CodeBuilder& b, DType type, Value* x, const IntegerDivisor& by, bool remainder) {
  const Floats floats{b, is_signed_integer(type)};
  Value* result = nullptr;
  if (bits_of(x) < 64) {
    result = floats.to(b.CreateFMul(floats.from(x), by.reciprocal), x->getType());
    if (remainder) result = b.CreateSub(x, b.CreateMul(result, by.divisor));
  } else {
    result = b.either(
        b.CreateAnd(by.is_fit, b.all(floats.are_small(x))),
        [&] {
          Value* const number = floats.from(x);
          Value* const estimate = b.CreateFMul(number, by.reciprocal);
          return Values{finish_64(b, floats, number, floats.from(by.divisor), estimate, remainder, x->getType())};
        },
        [&] {
          // The divisor that stands in for 0 is 1.
          Value* const by_zero = b.CreateFCmpOEQ(by.reciprocal, real(by.reciprocal, 0));
          Value* const quotient = has_two_steps(b, x)
                                      ? divide_in_two_steps(b, floats.is_signed, x, by.divisor,
                                                            b.CreateFMul(b.call(llvm::Intrinsic::fabs, {by.reciprocal}),
                                                                         real(by.reciprocal, 1 - kDoubleDeficit)),
                                                            remainder)
                                      : in_hardware(b, floats.is_signed, x, by.divisor, remainder);
          return Values{b.CreateSelect(by_zero, remainder ? x : number(x, 0), quotient)};
        })[0];
  }
  return remainder || by.is_minus_one == nullptr ? result : b.CreateSelect(by.is_minus_one, b.CreateNeg(x), result);
}

}  // namespace fermata::jit
