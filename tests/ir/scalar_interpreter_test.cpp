// The primitives one by one: what prims.def says of integers at their edges, of conversions, and of narrow floats.
#include "ir/scalar_interpreter.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ir/float16.h"
#include "seed.h"

namespace fermata {
namespace {

template <class T> T run(Prim prim, T a, T b = {}, T c = {}) {
  const PrimFunction function = prim_function(prim, dtype_of<T>, dtype_of<T>);
  EXPECT_NE(function, nullptr) << name(prim);
  const std::uint64_t bits = function(constant_bits(a), constant_bits(b), constant_bits(c));
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T> bool test(Prim prim, T a, T b) {
  return prim_function(prim, DType::boolean, dtype_of<T>)(constant_bits(a), constant_bits(b), 0) != 0;
}
template <class To, class From> To convert(From a) {
  const std::uint64_t bits = convert_slot(dtype_of<From>, dtype_of<To>, constant_bits(a));
  To value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(To));
  return value;
}

template <class T> class Integers : public ::testing::Test {};
using IntegerTypes = ::testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                      std::uint32_t, std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Integers, IntegerTypes);

TYPED_TEST(Integers, WrapAndDivideAsDefined) {
  using T = TypeParam;
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  EXPECT_EQ(run<T>(Prim::add, high, 1), low);
  EXPECT_EQ(run<T>(Prim::sub, low, 1), high);
  EXPECT_EQ(run<T>(Prim::mul, high, 2), static_cast<T>(~T{1}));
  EXPECT_EQ(run<T>(Prim::div, 7, 0), T{0});
  EXPECT_EQ(run<T>(Prim::rem, 7, 0), T{7});
  EXPECT_EQ(run<T>(Prim::div, 7, 2), T{3});
  if constexpr (std::is_signed_v<T>) {
    EXPECT_EQ(run<T>(Prim::div, low, -1), low);
    EXPECT_EQ(run<T>(Prim::rem, low, -1), T{0});
    EXPECT_EQ(run<T>(Prim::div, -7, 2), T{-3}) << "towards zero";
    EXPECT_EQ(run<T>(Prim::rem, -7, 2), T{-1});
    EXPECT_EQ(run<T>(Prim::neg, low), low);
    EXPECT_EQ(run<T>(Prim::abs, low), low);
    EXPECT_EQ(run<T>(Prim::abs, -5), T{5});
  } else {
    EXPECT_EQ(run<T>(Prim::neg, 1), high);
  }
}

TYPED_TEST(Integers, OverwideShiftsAreDefined) {
  using T = TypeParam;
  constexpr T width = static_cast<T>(8 * sizeof(T)), high = std::numeric_limits<T>::max();
  EXPECT_EQ(run<T>(Prim::shl, 1, static_cast<T>(width - 1)), static_cast<T>(T{1} << (8 * sizeof(T) - 1)));
  EXPECT_EQ(run<T>(Prim::shl, 1, width), T{0});
  EXPECT_EQ(run<T>(Prim::shr, high, width), T{0});
  EXPECT_EQ(run<T>(Prim::shr, high, static_cast<T>(width - 1)), std::is_signed_v<T> ? T{0} : T{1});
  if constexpr (std::is_signed_v<T>) {
    EXPECT_EQ(run<T>(Prim::shl, 1, -1), T{0});
    EXPECT_EQ(run<T>(Prim::shr, -8, 1), T{-4});
    EXPECT_EQ(run<T>(Prim::shr, -8, width), T{-1});
    EXPECT_EQ(run<T>(Prim::shr, -8, -1), T{-1});
    EXPECT_EQ(run<T>(Prim::shr, 8, -1), T{0});
  }
}

TYPED_TEST(Integers, FloatsTruncateAndSaturate) {
  using T = TypeParam;
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  EXPECT_EQ(convert<T>(std::nan("")), T{0});
  EXPECT_EQ(convert<T>(1e30), high);
  EXPECT_EQ(convert<T>(-1e30f), low);
  EXPECT_EQ(convert<T>(std::numeric_limits<float>::infinity()), high);
  EXPECT_EQ(convert<T>(2.9), T{2});
  EXPECT_EQ(convert<T>(-0.9), T{0});
  EXPECT_EQ(convert<T>(static_cast<double>(low)), low);
  EXPECT_EQ(convert<T>(-2.9f), std::is_signed_v<T> ? static_cast<T>(-2) : T{0});
}

TEST(Prims, UpperHalvesOfProducts) {
  EXPECT_EQ(run<std::uint32_t>(Prim::mul_high, 0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(run<std::int32_t>(Prim::mul_high, -1, 1), -1);
  EXPECT_EQ(run<std::uint64_t>(Prim::mul_high, ~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(prim_function(Prim::mul_high, DType::i64, DType::i64), nullptr);
}

TEST(Prims, FloatsFollowTheStandard) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(run(Prim::min, 1.0f, nan))) << "the second one where either is NaN";
  EXPECT_EQ(run(Prim::min, nan, 1.0f), 1.0f);
  EXPECT_EQ(run(Prim::max, nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::signbit(run(Prim::min, 0.0f, -0.0f))) << "equal: the second one";
  EXPECT_TRUE(std::signbit(run(Prim::neg, 0.0f)));
  EXPECT_FALSE(std::signbit(run(Prim::abs, -0.0)));
  EXPECT_EQ(run(Prim::rint, 2.5f), 2.0f);
  EXPECT_EQ(run(Prim::rint, -3.5), -4.0);
  EXPECT_EQ(run(Prim::div, 1.0f, 0.0f), inf);
  EXPECT_TRUE(test(Prim::ne, nan, nan));
  EXPECT_FALSE(test(Prim::eq, nan, nan));
  EXPECT_FALSE(test(Prim::le, nan, inf));
  const float a = 1.0f + 0x1p-12f;
  EXPECT_EQ(run(Prim::fma, a, a, -1.0f), 0x1p-11f + 0x1p-24f) << "rounded once";
  EXPECT_EQ(run(Prim::sub, run(Prim::mul, a, a), 1.0f), 0x1p-11f) << "rounded twice";
  EXPECT_EQ(run(Prim::mul, 0x1p-126f, 0.5f), 0x1p-127f) << "subnormals are kept";
}

TEST(Prims, BooleansAreLogical) {
  EXPECT_TRUE(run(Prim::bit_not, false));
  EXPECT_FALSE(run(Prim::bit_xor, true, true));
  EXPECT_TRUE(run(Prim::bit_or, true, false));
  EXPECT_TRUE(test(Prim::lt, false, true));
  EXPECT_TRUE(convert<bool>(std::nanf("")));
  EXPECT_FALSE(convert<bool>(-0.0));
  EXPECT_TRUE(convert<bool>(std::int32_t{256})) << "not the low byte";
}

TEST(Prims, IntegersConvertByWrapping) {
  EXPECT_EQ(convert<std::int8_t>(std::int32_t{200}), -56);
  EXPECT_EQ(convert<std::uint64_t>(std::int8_t{-1}), ~0ull);
  EXPECT_EQ(convert<float>(std::numeric_limits<std::uint64_t>::max()), 0x1p64f);
  EXPECT_EQ(convert<float>((std::int64_t{1} << 60) + (std::int64_t{1} << 36)), 0x1p60f) << "ties to even";
}

TEST(Prims, AreUndefinedWhereTheTableSaysSo) {
  EXPECT_EQ(prim_function(Prim::add, DType::boolean, DType::boolean), nullptr);
  EXPECT_EQ(prim_function(Prim::add, DType::f16, DType::f16), nullptr) << "f16 computes in f32";
  EXPECT_EQ(prim_function(Prim::shl, DType::f32, DType::f32), nullptr);
  EXPECT_EQ(prim_function(Prim::mul_high, DType::f32, DType::f32), nullptr);
  EXPECT_EQ(prim_function(Prim::sqrt, DType::i32, DType::i32), nullptr);
  EXPECT_EQ(prim_function(Prim::eq, DType::f32, DType::f32), nullptr) << "comparisons give bool";
  EXPECT_EQ(prim_function(Prim::bitcast, DType::f32, DType::f64), nullptr);
  EXPECT_EQ(prim_function(Prim::convert, DType::c64, DType::f32), nullptr);
  EXPECT_EQ(prim_function(Prim::input, DType::f32, DType::f32), nullptr);
  EXPECT_NE(prim_function(Prim::select, DType::bf16, DType::bf16), nullptr);
}

/// The value of a 16-bit float by its definition, independent of the conversions.
double defined_value(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  const int implicit = exponent == 0 ? 0 : 1 << fraction_bits;
  return sign * std::ldexp(implicit + fraction, std::max(exponent, 1) - bias - fraction_bits);
}

template <class Narrow> void check_narrow(int exponent_bits, Narrow (*narrow)(double)) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = defined_value(bits, exponent_bits);
    const double widened = static_cast<double>(to_float(Narrow{bits}));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << i;
      ASSERT_TRUE(std::isnan(to_float(narrow(widened)))) << i;
      continue;
    }
    ASSERT_EQ(widened, expected) << i;
    ASSERT_EQ(narrow(expected).bits, bits);
    // Halfway to the next larger value goes to the even one; anything off the middle to the nearer.
    const double next = defined_value(static_cast<std::uint16_t>(bits + 1), exponent_bits);
    if (!std::isfinite(next) || bits >> 15 != 0) continue;
    const double middle = (expected + next) / 2;
    ASSERT_EQ(narrow(middle).bits, bits + (bits & 1)) << i;
    ASSERT_EQ(narrow(std::nextafter(middle, 0)).bits, bits) << i;
    ASSERT_EQ(narrow(std::nextafter(middle, HUGE_VAL)).bits, bits + 1) << i;
    ASSERT_EQ(narrow(-middle).bits, (bits + (bits & 1)) | 0x8000) << i;
  }
}
TEST(NarrowFloats, EveryF16) {
  check_narrow<Float16>(5, to_float16);
  EXPECT_EQ(to_float16(65519.999).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520).bits, 0x7c00);
  EXPECT_EQ(to_float16(-1e300).bits, 0xfc00);
  EXPECT_EQ(to_float16(0x1p-25).bits, 0) << "half the smallest subnormal ties to zero";
}
TEST(NarrowFloats, EveryBF16) {
  check_narrow<BFloat16>(8, to_bfloat16);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bfloat16(-1e-300).bits, 0x8000);
}

TEST(NarrowFloats, WideIntegersRoundOnce) {
  // 2^62 + 2^54 is the middle of two bf16 values; one more goes up, and rounding to double first would lose it.
  const std::int64_t middle = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  EXPECT_EQ(to_float(convert<BFloat16>(middle)), 0x1p62f);
  EXPECT_EQ(to_float(convert<BFloat16>(middle + 1)), 0x1.02p62f);
  EXPECT_EQ(to_float(convert<BFloat16>(-middle - 1)), -0x1.02p62f);
  EXPECT_EQ(to_float(convert<BFloat16>(static_cast<std::uint64_t>(middle) * 2 + 1)), 0x1.02p63f);
  EXPECT_EQ(to_float(convert<Float16>(std::int32_t{2049})), 2048.0f);
}

TEST(Formulas, RunWithParametersInAnyOrder) {
  Formula f;
  const auto parameter = [&](std::uint16_t i) {
    return f.program.add({.prim = Prim::parameter, .type = DType::f32, .index = i});
  };
  const ValueId b = parameter(1), a = parameter(0);
  const ValueId difference = f.program.add({.prim = Prim::sub, .type = DType::f32, .a = a, .b = b});
  f.parameters = {DType::f32, DType::f32};
  f.results = {difference, a};
  FormulaInterpreter run_formula(f);
  const std::uint64_t parameters[] = {constant_bits(5.0f), constant_bits(3.0f)};
  const auto results = run_formula(parameters);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0], constant_bits(2.0f));
  EXPECT_EQ(results[1], constant_bits(5.0f));
}

}  // namespace
}  // namespace fermata
