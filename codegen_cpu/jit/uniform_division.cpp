// See uniform_division.h.
#include "codegen_cpu/jit/uniform_division.h"

#include <bit>
#include <cstdint>

namespace fermata::jit {
namespace {

/// Of f32: divisors from 2^-24 to 2^24 and dividends from 2^-76 to 2^76, or zero: quotients are from 2^-100 on, and the
/// least place of a remainder is at least 2^-124. Of f64: quotients are from 2^-800 on, and places from 2^-1004.
struct Bounds {
  double least_divisor, largest_divisor, least_dividend, largest_dividend;
};
constexpr Bounds bounds_of(DType type) {
  return type == DType::f64 ? Bounds{0x1p-100, 0x1p100, 0x1p-700, 0x1p700} : Bounds{0x1p-24, 0x1p24, 0x1p-76, 0x1p76};
}
std::uint64_t bits_of(DType type, double number) {
  return type == DType::f64 ? std::bit_cast<std::uint64_t>(number)
                            : std::bit_cast<std::uint32_t>(static_cast<float>(number));
}

/// Fewer quotients than this are divided before the reciprocal is known.
constexpr std::int64_t kFewQuotients = 64;

Value* fma(CodeBuilder& b, Value* x, Value* y, Value* z) { return b.call(llvm::Intrinsic::fma, {x, y, z}); }
Value* number(CodeBuilder& b, DType type, double value) { return b.constant(type, bits_of(type, value), 1); }
DType type_of(const Value* value) { return value->getType()->getScalarType()->isDoubleTy() ? DType::f64 : DType::f32; }

}  // namespace

UniformDivisor prepare_divisor(CodeBuilder& b, Value* divisor, Value* splat, Value* length) {
  Value* const none = llvm::Constant::getNullValue(splat->getType());
  const DType type = type_of(divisor);
  const Bounds bounds = bounds_of(type);
  const Values made =
      b.when(b.CreateICmpSGE(length, b.i64(kFewQuotients)), {none, none, b.getFalse()}, [&]() -> Values {
        Value* const high = b.CreateFDiv(number(b, type, 1), divisor);
        Value* const low = b.CreateFMul(fma(b, b.CreateFNeg(divisor), high, number(b, type, 1)), high);
        Value* const is_fit = b.CreateAnd(b.CreateFCmpOGE(divisor, number(b, type, bounds.least_divisor)),
                                          b.CreateFCmpOLE(divisor, number(b, type, bounds.largest_divisor)));
        return {b.splat(high), b.splat(low), is_fit};
      });
  return {splat, made[0], made[1], made[2]};
}

namespace {

/// Whether all elements of all vectors are in range.
Value* all_fit(CodeBuilder& b, const Values& dividends) {
  const DType type = type_of(dividends[0]);
  const auto width = static_cast<unsigned>(8 * byte_size(type));
  Type* const bits_type = llvm::FixedVectorType::get(b.getIntNTy(width), lanes_of(dividends[0]));
  const auto constant = [&](std::uint64_t bits) { return llvm::ConstantInt::get(bits_type, bits); };
  const std::uint64_t least = bits_of(type, bounds_of(type).least_dividend),
                      largest = bits_of(type, bounds_of(type).largest_dividend);
  Value* fits = nullptr;
  for (Value* const x : dividends) {
    Value* const bits = b.CreateBitCast(x, bits_type);
    Value* const distance =
        b.CreateSub(b.CreateAnd(bits, constant((std::uint64_t{1} << (width - 1)) - 1)), constant(least));
    Value* const is_zero = b.CreateICmpEQ(bits, constant(0));  // a negative zero would lose its sign
    Value* const one = b.CreateOr(b.CreateICmpULT(distance, constant(largest - least)), is_zero);
    fits = fits == nullptr ? one : b.CreateAnd(fits, one);
  }
  Type* const word = b.getIntNTy(lanes_of(dividends[0]));
  return b.CreateICmpEQ(b.CreateBitCast(fits, word), llvm::Constant::getAllOnesValue(word));
}

}  // namespace

Values divide_by_uniform(CodeBuilder& b, const Values& dividends, const UniformDivisor& by, bool are_whole) {
  const auto quick = [&] {
    Values quotients, rests;
    for (Value* const x : dividends) quotients.push_back(b.CreateFMul(x, by.low));
    for (std::size_t i = 0; i < dividends.size(); ++i) quotients[i] = fma(b, dividends[i], by.high, quotients[i]);
    for (std::size_t i = 0; i < dividends.size(); ++i)
      rests.push_back(fma(b, b.CreateFNeg(quotients[i]), by.divisor, dividends[i]));
    for (std::size_t i = 0; i < dividends.size(); ++i) quotients[i] = fma(b, rests[i], by.high, quotients[i]);
    return quotients;
  };
  // Not both and a choice: products of what does not fit may be subnormal, which takes hundreds of cycles.
  Value* const is_quick = are_whole ? by.is_fit : b.CreateAnd(by.is_fit, all_fit(b, dividends));
  return b.either(is_quick, quick, [&] {
    Values quotients;
    for (Value* const x : dividends) quotients.push_back(b.CreateFDiv(x, by.divisor));
    return quotients;
  });
}

}  // namespace fermata::jit
