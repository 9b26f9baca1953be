// See uniform_division.h.
#include "codegen_cpu/jit/uniform_division.h"

#include <bit>
#include <cstdint>

namespace fermata::jit {
namespace {

/// Divisors from 2^-24 to 2^24 and dividends from 2^-76 to 2^76, or zero: quotients are from 2^-100 on, and the least
/// place of a remainder is at least 2^-124.
constexpr float kLeastDivisor = 0x1p-24f, kLargestDivisor = 0x1p24f, kLeastDividend = 0x1p-76f,
                kLargestDividend = 0x1p76f;
/// Fewer quotients than this are divided before the reciprocal is known.
constexpr std::int64_t kFewQuotients = 64;

Value* fma(CodeBuilder& b, Value* x, Value* y, Value* z) { return b.call(llvm::Intrinsic::fma, {x, y, z}); }
Value* number(CodeBuilder& b, float value) { return b.constant(DType::f32, std::bit_cast<std::uint32_t>(value), 1); }

}  // namespace

UniformDivisor prepare_divisor(CodeBuilder& b, Value* divisor, Value* splat, Value* length) {
  Value* const none = llvm::Constant::getNullValue(splat->getType());
  const Values made =
      b.when(b.CreateICmpSGE(length, b.i64(kFewQuotients)), {none, none, b.getFalse()}, [&]() -> Values {
        Value* const high = b.CreateFDiv(number(b, 1), divisor);
        Value* const low = b.CreateFMul(fma(b, b.CreateFNeg(divisor), high, number(b, 1)), high);
        Value* const is_fit = b.CreateAnd(b.CreateFCmpOGE(divisor, number(b, kLeastDivisor)),
                                          b.CreateFCmpOLE(divisor, number(b, kLargestDivisor)));
        return {b.splat(high), b.splat(low), is_fit};
      });
  return {splat, made[0], made[1], made[2]};
}

Values divide_by_uniform(CodeBuilder& b, const Values& dividends, const UniformDivisor& by) {
  Type* const bits_type = llvm::FixedVectorType::get(b.getInt32Ty(), lanes_of(dividends[0]));
  const auto bits_of = [&](std::uint32_t bits) { return llvm::ConstantInt::get(bits_type, bits); };
  constexpr auto kLeast = std::bit_cast<std::uint32_t>(kLeastDividend),
                 kLargest = std::bit_cast<std::uint32_t>(kLargestDividend);
  Value* fits = nullptr;
  for (Value* const x : dividends) {
    Value* const bits = b.CreateBitCast(x, bits_type);
    Value* const distance = b.CreateSub(b.CreateAnd(bits, bits_of(0x7fffffff)), bits_of(kLeast));
    Value* const is_zero = b.CreateICmpEQ(bits, bits_of(0));  // a negative zero would lose its sign
    Value* const one = b.CreateOr(b.CreateICmpULT(distance, bits_of(kLargest - kLeast)), is_zero);
    fits = fits == nullptr ? one : b.CreateAnd(fits, one);
  }
  Type* const word = b.getIntNTy(lanes_of(dividends[0]));
  Value* const all_fit = b.CreateICmpEQ(b.CreateBitCast(fits, word), llvm::Constant::getAllOnesValue(word));
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
  return b.either(b.CreateAnd(by.is_fit, all_fit), quick, [&] {
    Values quotients;
    for (Value* const x : dividends) quotients.push_back(b.CreateFDiv(x, by.divisor));
    return quotients;
  });
}

}  // namespace fermata::jit
