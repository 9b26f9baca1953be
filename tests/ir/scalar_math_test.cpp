// Elementary functions against long double over their whole range, special values against the C library, and Philox
// against the vectors published with Random123.
//
// FERMATA_ULP_SAMPLES sets the number of bit patterns per function (default 100000; 4294967296 tries every f32).
#include "ir/scalar_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "ir/accuracy.h"
#include "ir/scalar_math/float_remainder.h"
#include "scalar_value.h"

namespace fermata {
namespace {

std::uint64_t sample_count() {
  const char* text = std::getenv("FERMATA_ULP_SAMPLES");
  return text == nullptr ? 100'000 : std::strtoull(text, nullptr, 10);
}

template <class T> using BitsOf = typename math::FloatFormat<T>::Unsigned;
template <class T> T from_pattern(std::uint64_t bits) { return std::bit_cast<T>(static_cast<BitsOf<T>>(bits)); }

/// |got - exact| in units of the spacing of T at `exact`; agreement on NaN and infinity is 0.
template <class T> double ulp_error(T got, long double exact) {
  const T nearest = static_cast<T>(exact);
  if (std::isnan(got) || std::isnan(nearest)) return std::isnan(got) && std::isnan(nearest) ? 0 : 1e30;
  if (std::isinf(got) || std::isinf(nearest)) return got == nearest ? 0 : 1e30;
  const int exponent = exact == 0 ? std::numeric_limits<T>::min_exponent - 1
                                  : std::max(std::ilogb(exact), std::numeric_limits<T>::min_exponent - 1);
  const long double ulp = std::ldexp(1.0L, exponent - (std::numeric_limits<T>::digits - 1));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / ulp);
}

template <class T> struct Worst {
  double error = 0;
  T at{}, got{};
  long double exact = 0;
  void add(T x, T y, long double reference) {
    const double e = ulp_error(y, reference);
    if (e > error) error = e, at = x, got = y, exact = reference;
  }
};

/// Sweeps bit patterns with an odd stride, then [-span, span] evenly.
template <class T, class F, class R>
void expect_error_below(const char* name, double bound, double span, F f, R reference) {
  Worst<T> worst;
  const std::uint64_t samples = sample_count();
  const std::uint64_t range = sizeof(T) == 4 ? std::uint64_t{1} << 32 : 0;
  const std::uint64_t stride = (range == 0 ? ~std::uint64_t{0} / samples : range / samples) | 1;
  const auto check = [&](T x) { worst.add(x, f(Scalar<T>(x)).v, reference(static_cast<long double>(x))); };
  for (std::uint64_t i = 0; i < samples; ++i) check(from_pattern<T>(i * stride));
  const auto steps = static_cast<std::int64_t>(std::min<std::uint64_t>(samples, 10'000'000));
  for (std::int64_t i = -steps; i <= steps; ++i)
    check(static_cast<T>(span * static_cast<double>(i) / static_cast<double>(steps)));
  std::printf("  %-10s %s  max %.2f ulp at %.9Lg\n", name, sizeof(T) == 4 ? "f32" : "f64", worst.error,
              static_cast<long double>(worst.at));
  EXPECT_LE(worst.error, bound) << name << "(" << std::hexfloat << worst.at << ") = " << worst.got << ", not "
                                << worst.exact;
}

long double gelu_reference(long double x) {
  // -x / sqrt(2) rounded, then corrected to first order, because erfc magnifies its argument's error x^2 times.
  constexpr long double kInverseRoot2 = 0.707106781186547524400844362104849039L;
  if (std::isinf(x)) return x > 0 ? x : -0.0L;
  const long double t = -x * kInverseRoot2, rest = std::fma(-x, kInverseRoot2, -t);
  return x * 0.5L * (std::erfc(t) - rest * 1.12837916709551257390L * std::exp(-t * t));
}
long double sigmoid_reference(long double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
long double softplus_reference(long double x) {
  return x != x ? x : std::fmax(x, 0.0L) + std::log1p(std::exp(-std::fabs(x)));
}

/// The bound that the op table has (ir/ops/accuracy.def).
template <class T> double bound_of(Op op) {
  EXPECT_TRUE(accuracy(op).has_row && accuracy(op).text.empty()) << name(op);
  return sizeof(T) == 4 ? accuracy(op).f32 : accuracy(op).f64;
}

template <class T> class ScalarMath : public testing::Test {};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(ScalarMath, Floats);

#define FERMATA_ULP(name, span, reference)                                                \
  TYPED_TEST(ScalarMath, name) {                                                          \
    expect_error_below<TypeParam>(                                                        \
        #name, bound_of<TypeParam>(Op::name), span, [](auto x) { return math::name(x); }, \
        [](long double x) -> long double { return reference; });                          \
  }
FERMATA_ULP(exp, 800, std::exp(x))
FERMATA_ULP(exp2, 1100, std::exp2(x))
FERMATA_ULP(expm1, 50, std::expm1(x))
FERMATA_ULP(log, 3, std::log(x))
FERMATA_ULP(log2, 3, std::log2(x))
FERMATA_ULP(log10, 3, std::log10(x))
FERMATA_ULP(log1p, 3, std::log1p(x))
FERMATA_ULP(sin, 1000, std::sin(x))
FERMATA_ULP(cos, 1000, std::cos(x))
FERMATA_ULP(tanh, 12, std::tanh(x))
FERMATA_ULP(sigmoid, 110, sigmoid_reference(x))
FERMATA_ULP(erf, 7, std::erf(x))
FERMATA_ULP(gelu, 15, gelu_reference(x))
FERMATA_ULP(softplus, 110, softplus_reference(x))
FERMATA_ULP(tan, 1000, std::tan(x))
FERMATA_ULP(asin, 1, std::asin(x))
FERMATA_ULP(acos, 1, std::acos(x))
FERMATA_ULP(atan, 8, std::atan(x))
FERMATA_ULP(sinh, 100, std::sinh(x))
FERMATA_ULP(cosh, 100, std::cosh(x))
FERMATA_ULP(asinh, 8, std::asinh(x))
FERMATA_ULP(acosh, 8, std::acosh(x))
FERMATA_ULP(atanh, 1, std::atanh(x))
FERMATA_ULP(erfc, 26, std::erfc(x))
FERMATA_ULP(cbrt, 100, std::cbrt(x))

template <class T> std::string describe(const char* name, T x, T y, T got) {
  char text[200];
  std::snprintf(text, sizeof text, "%s(%.17g, %.17g) = %.17g", name, static_cast<double>(x), static_cast<double>(y),
                static_cast<double>(got));
  return text;
}

template <class T> bool same_value(T a, T b) {  // NaNs are equal, zeros differ by sign
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

template <class T> std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> values = {0,
                           L::denorm_min(),
                           L::min() / 2,
                           L::min(),
                           T(0.25),
                           T(0.5),
                           1,
                           T(1.5),
                           2,
                           3,
                           4,
                           5,
                           1e6,
                           1e9,
                           std::ldexp(T(1), L::digits - 1) + 1,
                           std::ldexp(T(1), L::digits),
                           L::max(),
                           L::infinity(),
                           std::nextafter(T(1), T(0)),
                           std::nextafter(T(1), T(2)),
                           L::quiet_NaN()};
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) values.push_back(-values[i]);
  return values;
}

#define FERMATA_SPECIAL(name, reference)                                              \
  TYPED_TEST(ScalarMath, name##_of_special_values) {                                  \
    for (const TypeParam x : special_values<TypeParam>()) {                           \
      const TypeParam got = math::name(Scalar<TypeParam>(x)).v;                       \
      const auto exact = static_cast<TypeParam>(reference);                           \
      if (std::isfinite(exact) && exact != 0)                                         \
        EXPECT_LE(ulp_error<TypeParam>(got, exact), 5) << x;                          \
      else                                                                            \
        EXPECT_TRUE(same_value(got, exact)) << describe(#name, x, TypeParam(0), got); \
    }                                                                                 \
  }
FERMATA_SPECIAL(exp, std::exp(x))
FERMATA_SPECIAL(exp2, std::exp2(x))
FERMATA_SPECIAL(expm1, std::expm1(x))
FERMATA_SPECIAL(log, std::log(x))
FERMATA_SPECIAL(log2, std::log2(x))
FERMATA_SPECIAL(log10, std::log10(x))
FERMATA_SPECIAL(log1p, std::log1p(x))
FERMATA_SPECIAL(sin, std::sin(x))
FERMATA_SPECIAL(cos, std::cos(x))
FERMATA_SPECIAL(tanh, std::tanh(x))
FERMATA_SPECIAL(tan, std::tan(x))
FERMATA_SPECIAL(asin, std::asin(x))
FERMATA_SPECIAL(acos, std::acos(x))
FERMATA_SPECIAL(atan, std::atan(x))
FERMATA_SPECIAL(sinh, std::sinh(x))
FERMATA_SPECIAL(cosh, std::cosh(x))
FERMATA_SPECIAL(asinh, std::asinh(x))
FERMATA_SPECIAL(acosh, std::acosh(x))
FERMATA_SPECIAL(atanh, std::atanh(x))
FERMATA_SPECIAL(erfc, std::erfc(x))
FERMATA_SPECIAL(cbrt, std::cbrt(x))
FERMATA_SPECIAL(erf, std::erf(x))
FERMATA_SPECIAL(sigmoid, sigmoid_reference(x))
FERMATA_SPECIAL(softplus, softplus_reference(x))
FERMATA_SPECIAL(sign, std::isnan(x) ? x : x == 0 ? 0 : std::copysign(TypeParam(1), x))

TYPED_TEST(ScalarMath, gelu_limits) {
  using S = Scalar<TypeParam>;
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  EXPECT_EQ(math::gelu(S(infinity)).v, infinity);
  EXPECT_EQ(math::gelu(S(-infinity)).v, 0);
  EXPECT_TRUE(std::signbit(math::gelu(S(TypeParam(-0.0))).v));
  EXPECT_TRUE(std::isnan(math::gelu(S(std::numeric_limits<TypeParam>::quiet_NaN())).v));
}

TYPED_TEST(ScalarMath, exact_powers_of_two) {
  using S = Scalar<TypeParam>;
  constexpr int kLow = std::numeric_limits<TypeParam>::min_exponent - std::numeric_limits<TypeParam>::digits;
  for (int n = kLow; n < std::numeric_limits<TypeParam>::max_exponent; ++n) {
    const TypeParam power = std::ldexp(TypeParam(1), n);
    EXPECT_EQ(math::exp2(S(static_cast<TypeParam>(n))).v, power);
    EXPECT_EQ(math::log2(S(power)).v, static_cast<TypeParam>(n));
    EXPECT_EQ(math::pow(S(2), S(static_cast<TypeParam>(n))).v, power);
  }
}

TYPED_TEST(ScalarMath, pow_of_special_values) {
  for (const TypeParam x : special_values<TypeParam>())
    for (const TypeParam y : special_values<TypeParam>()) {
      const TypeParam got = math::pow(Scalar<TypeParam>(x), Scalar<TypeParam>(y)).v;
      const auto exact = static_cast<TypeParam>(std::pow(static_cast<long double>(x), static_cast<long double>(y)));
      if (std::isfinite(exact) && exact != 0)
        EXPECT_LE(ulp_error<TypeParam>(got, exact), 4) << describe("pow", x, y, got);
      else
        EXPECT_TRUE(same_value(got, exact)) << describe("pow", x, y, got) << " not " << exact;
    }
}

struct Generator {  // SplitMix64
  std::uint64_t state;
  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>((*this)() >> 11) * 0x1p-53;
  }
};

TYPED_TEST(ScalarMath, pow) {
  Generator random{7};
  Worst<TypeParam> worst;
  TypeParam worst_exponent{};
  const double range = sizeof(TypeParam) == 4 ? 150 : 1080;
  for (std::uint64_t i = 0; i < 2 * sample_count(); ++i) {
    // |log2 x| from 2^-20 to the whole range, and y so that y log2 x stays in it.
    const double log2_x = std::exp2(random.uniform(-20, std::log2(range))) * (i % 2 == 0 ? 1 : -1);
    const auto x = static_cast<TypeParam>(std::exp2(log2_x));
    const auto y = static_cast<TypeParam>(random.uniform(-range, range) / log2_x);
    if (x == 0 || std::isinf(x)) continue;
    const double before = worst.error;
    worst.add(x, math::pow(Scalar<TypeParam>(x), Scalar<TypeParam>(y)).v,
              std::pow(static_cast<long double>(x), static_cast<long double>(y)));
    if (worst.error > before) worst_exponent = y;
  }
  std::printf("  pow        %s  max %.2f ulp at %.9g, %.9g\n", sizeof(TypeParam) == 4 ? "f32" : "f64", worst.error,
              static_cast<double>(worst.at), static_cast<double>(worst_exponent));
  EXPECT_LE(worst.error, bound_of<TypeParam>(Op::pow));
}

/// Two arguments of any magnitude, and of near magnitudes, against long double; special values against the C library.
template <class T, class F, class R> void expect_binary(const char* name, double bound, F f, R reference) {
  Generator random{19};
  Worst<T> worst;
  const double range = sizeof(T) == 4 ? 126 : 1000;
  for (std::uint64_t i = 0; i < 2 * sample_count(); ++i) {
    const auto draw = [&](double span) {
      return static_cast<T>(std::exp2(random.uniform(-span, span)) * (random() % 2 == 0 ? 1 : -1));
    };
    const T a = draw(i % 2 == 0 ? range : 4), b = draw(i % 2 == 0 ? range : 4);
    worst.add(a, f(Scalar<T>(a), Scalar<T>(b)).v, reference(static_cast<long double>(a), static_cast<long double>(b)));
  }
  std::printf("  %-10s %s  max %.2f ulp at %.9g\n", name, sizeof(T) == 4 ? "f32" : "f64", worst.error,
              static_cast<double>(worst.at));
  EXPECT_LE(worst.error, bound);
  for (const T x : special_values<T>())
    for (const T y : special_values<T>()) {
      const T got = f(Scalar<T>(x), Scalar<T>(y)).v;
      const auto exact = static_cast<T>(reference(static_cast<long double>(x), static_cast<long double>(y)));
      if (std::isfinite(exact) && exact != 0)
        EXPECT_LE(ulp_error<T>(got, exact), 5) << describe(name, x, y, got) << " not " << exact;
      else
        EXPECT_TRUE(same_value(got, exact)) << describe(name, x, y, got) << " not " << exact;
    }
}
#define FERMATA_ULP_BINARY(name, bound, reference)                              \
  TYPED_TEST(ScalarMath, name) {                                                \
    expect_binary<TypeParam>(                                                   \
        #name, bound, [](auto a, auto b) { return math::name(a, b); },          \
        [](long double a, long double b) -> long double { return reference; }); \
  }
long double logaddexp_reference(long double a, long double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return a == b ? a + std::log(2.0L) : std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}
FERMATA_ULP_BINARY(atan2, bound_of<TypeParam>(Op::atan2), std::atan2(a, b))
FERMATA_ULP_BINARY(hypot, bound_of<TypeParam>(Op::hypot), std::hypot(a, b))
FERMATA_ULP_BINARY(copysign, 0, std::copysign(a, b))

/// Where the result is near 0 its error is one of the larger argument.
TYPED_TEST(ScalarMath, logaddexp) {
  Generator random{23};
  for (std::uint64_t i = 0; i < sample_count(); ++i) {
    const auto a = static_cast<TypeParam>(random.uniform(-90, 90)),
               b = static_cast<TypeParam>(a + random.uniform(-20, 20));
    const long double exact = logaddexp_reference(a, b);
    const TypeParam got = math::logaddexp(Scalar<TypeParam>(a), Scalar<TypeParam>(b)).v;
    const long double scale = std::fmax(std::fabs(exact), std::fmax(std::fabs(static_cast<long double>(a)), 1.0L));
    EXPECT_LE(std::fabs(got - exact), 3 * scale * std::numeric_limits<TypeParam>::epsilon()) << a << ", " << b;
  }
  for (const TypeParam x : {TypeParam(0), std::numeric_limits<TypeParam>::infinity(),
                            -std::numeric_limits<TypeParam>::infinity(), std::numeric_limits<TypeParam>::quiet_NaN()})
    for (const TypeParam y :
         {TypeParam(0), std::numeric_limits<TypeParam>::infinity(), -std::numeric_limits<TypeParam>::infinity()})
      EXPECT_TRUE(same_value(math::logaddexp(Scalar<TypeParam>(x), Scalar<TypeParam>(y)).v,
                             static_cast<TypeParam>(logaddexp_reference(x, y))) ||
                  (x == 0 && y == 0))
          << x << ", " << y;
}

TYPED_TEST(ScalarMath, fmod) {
  Generator random{29};
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<TypeParam>(random.uniform(-1000, 1000)),
               b = static_cast<TypeParam>(random.uniform(-9, 9));
    EXPECT_EQ(math::fmod(Scalar<TypeParam>(a), Scalar<TypeParam>(b)).v, std::fmod(a, b)) << a << ", " << b;
  }
  EXPECT_TRUE(std::isnan(math::fmod(Scalar<TypeParam>(1), Scalar<TypeParam>(0)).v));
  EXPECT_TRUE(std::signbit(math::fmod(Scalar<TypeParam>(-4), Scalar<TypeParam>(2)).v));
}

/// Any bits at all, and numbers near each other: every path of a division with remainder.
template <class T, class F> void for_pairs(std::uint64_t seed, F&& f) {
  Generator random{seed};
  for (std::uint64_t i = 0; i < sample_count(); ++i) {
    const T a = std::bit_cast<T>(static_cast<typename math::FloatFormat<T>::Unsigned>(random()));
    f(a, std::bit_cast<T>(static_cast<typename math::FloatFormat<T>::Unsigned>(random())));
    f(a, static_cast<T>(a / static_cast<T>(random.uniform(-40, 40))));
    f(a, static_cast<T>(std::ldexp(random.uniform(-1, 1), static_cast<int>(random() % 80) - 40)));
  }
  using L = std::numeric_limits<T>;
  std::vector<T> special{0, L::infinity(), L::quiet_NaN(), L::max(), L::min(), L::denorm_min(), 1, 3, T(0.1), T(1e-30)};
  for (std::size_t i = special.size(); i-- > 0;) special.push_back(-special[i]);
  for (const T a : special)
    for (const T b : special) f(a, b);
}

/// As a backend without a library does it.
template <class T> T remainder_by_steps(T a, T b) {
  using S = Scalar<T>;
  const S x = abs(S(a)), y = abs(S(b));
  const auto quick = math::quick_remainder(x, y);
  if (!quick.is_long.v) return math::copysign(quick.rest, S(a)).v;
  auto at = math::begin_remainder(x, y);
  while (at.left.v > 0) at = math::continue_remainder(at);
  return math::copysign(math::finish_remainder(at), S(a)).v;
}

TYPED_TEST(ScalarMath, remainders_are_exact_on_any_bits) {
  using S = Scalar<TypeParam>;
  for_pairs<TypeParam>(31, [](TypeParam a, TypeParam b) {
    const TypeParam exact = std::fmod(a, b);
    ASSERT_TRUE(same_value(remainder_by_steps(a, b), exact)) << std::hexfloat << a << ", " << b;
    ASSERT_TRUE(same_value(math::fmod(S(a), S(b)).v, exact)) << std::hexfloat << a << ", " << b;
    TypeParam floored = exact != 0 && (exact < 0) != (b < 0) ? exact + b : exact;
    if (floored == 0) floored = std::copysign(floored, b);
    ASSERT_TRUE(same_value(math::remainder(S(a), S(b)).v, floored)) << std::hexfloat << a << ", " << b;
  });
}

TYPED_TEST(ScalarMath, floored_quotients_are_exact_on_any_bits) {
  using S = Scalar<TypeParam>;
  const TypeParam end = std::ldexp(TypeParam(1), std::numeric_limits<TypeParam>::digits);
  for_pairs<TypeParam>(37, [&](TypeParam a, TypeParam b) {
    const TypeParam rounded = std::floor(a / b), found = math::floor_divide(S(a), S(b)).v;
    if (!(std::fabs(rounded) <= end) || std::isinf(b) || b == 0) {
      // Beyond the integers that a float holds the quotient is the rounded one; -1 is below any share of infinity.
      const bool below = std::isinf(b) && std::isfinite(a) && a != 0 && (a < 0) != (b < 0);
      ASSERT_TRUE(same_value(found, below ? TypeParam(-1) : rounded)) << std::hexfloat << a << ", " << b;
      return;
    }
    // floor(a / b) is the only integer q with a - q b from [0, b), or (b, 0].
    const TypeParam rest = std::fma(-found, b, a);
    ASSERT_EQ(found, std::floor(found));
    ASSERT_TRUE(rest == 0 || (rest < 0) == (b < 0)) << std::hexfloat << a << " // " << b << " = " << found;
    const TypeParam next = std::fma(-(found + 1), b, a);
    ASSERT_TRUE(found + 1 > end || next == 0 ? found + 1 > end : (next < 0) != (b < 0))
        << std::hexfloat << a << " // " << b << " = " << found;
  });
}

template <class T> T integer_power(T base, std::int64_t exponent) {  // one multiplication at a time
  using U = std::make_unsigned_t<T>;
  if (exponent < 0)
    return base == 1 ? T(1) : base == T(-1) && std::is_signed_v<T> ? (exponent % 2 != 0 ? T(-1) : T(1)) : T(0);
  U result = 1;
  for (std::int64_t i = 0; i < exponent; ++i)
    result = static_cast<U>(std::uint64_t{result} * static_cast<std::uint64_t>(static_cast<U>(base)));
  return static_cast<T>(result);
}
TEST(ScalarMathIntegers, pow) {
  for (int a = -128; a < 128; ++a)
    for (int b = -20; b < 100; ++b) {
      EXPECT_EQ(math::pow(Scalar(static_cast<std::int8_t>(a)), Scalar(static_cast<std::int8_t>(b))).v,
                integer_power(static_cast<std::int8_t>(a), b))
          << a << ", " << b;
      EXPECT_EQ(math::pow(Scalar(std::int64_t{a} * 1000003), Scalar(std::int64_t{b})).v,
                integer_power(std::int64_t{a} * 1000003, b))
          << a << ", " << b;
      if (a >= 0 && b >= 0) {
        EXPECT_EQ(math::pow(Scalar(static_cast<std::uint32_t>(a)), Scalar(static_cast<std::uint32_t>(b))).v,
                  integer_power(static_cast<std::uint32_t>(a), b));
      }
    }
}

TYPED_TEST(ScalarMath, floored_division) {
  using S = Scalar<TypeParam>;
  const TypeParam infinity = std::numeric_limits<TypeParam>::infinity();
  struct Case {
    TypeParam a, b, quotient, remainder;
  };
  for (const Case& c : {Case{7, 3, 2, 1}, Case{-7, 3, -3, 2}, Case{7, -3, -3, -2}, Case{-7, -3, 2, -1},
                        Case{6, -3, -2, TypeParam(-0.0)}, Case{1, infinity, 0, 1}, Case{-1, infinity, -1, infinity},
                        Case{1, TypeParam(0.1), 9, std::fmod(TypeParam(1), TypeParam(0.1))}}) {
    EXPECT_EQ(math::floor_divide(S(c.a), S(c.b)).v, c.quotient) << c.a << " // " << c.b;
    EXPECT_TRUE(same_value(math::remainder(S(c.a), S(c.b)).v, c.remainder)) << c.a << " % " << c.b;
  }
  EXPECT_EQ(math::floor_divide(S(1), S(0)).v, infinity);
  EXPECT_TRUE(std::isnan(math::remainder(S(1), S(0)).v));
  Generator random{11};
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<TypeParam>(random.uniform(-1000, 1000)),
               b = static_cast<TypeParam>(random.uniform(-9, 9));
    TypeParam rest = std::fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    EXPECT_EQ(math::remainder(S(a), S(b)).v, rest) << a << " % " << b;
  }
}

TEST(ScalarMathIntegers, floored_division) {
  for (int a = -128; a < 128; ++a)
    for (int b = -128; b < 128; ++b) {
      const auto x = static_cast<std::int8_t>(a), y = static_cast<std::int8_t>(b);
      const int quotient = b == 0 ? 0 : static_cast<int>(std::floor(static_cast<double>(a) / b));
      EXPECT_EQ(math::floor_divide(Scalar(x), Scalar(y)).v, static_cast<std::int8_t>(quotient)) << a << " // " << b;
      EXPECT_EQ(math::remainder(Scalar(x), Scalar(y)).v, b == 0 ? 0 : a - quotient * b) << a << " % " << b;
    }
  EXPECT_EQ(math::remainder(Scalar(7u), Scalar(0u)).v, 0u);
  EXPECT_EQ(math::sign(Scalar(-9)).v, -1);
  EXPECT_EQ(math::sign(Scalar(9u)).v, 1u);
}

// kat_vectors of Random123 1.14.0: philox4x32, 10 rounds.
TEST(Philox, known_answers) {
  struct Case {
    std::uint32_t counter[4], key[2], expected[4];
  };
  const Case cases[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                         {0xffffffff, 0xffffffff},
                         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0},
                         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Case& c : cases) {
    const auto join = [](std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; };
    const auto words = math::philox_words(Scalar(static_cast<std::int64_t>(join(c.counter[0], c.counter[1]))),
                                          Scalar(join(c.key[0], c.key[1])), Scalar(join(c.counter[2], c.counter[3])));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i].v, c.expected[i]) << i;
  }
}

TYPED_TEST(ScalarMath, random_moments) {
  using S = Scalar<TypeParam>;
  constexpr int kCount = 200'000;
  double uniform_sum = 0, sum = 0, square = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const Scalar<std::int64_t> index(i);
    const Scalar<std::uint64_t> key(0x123456789abcdefull), offset(1ull << 40);
    const double u = math::random_uniform<S>(index, key, offset).v;
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform_sum += u;
    const double z = math::random_normal<S>(index, key, offset).v;
    sum += z, square += z * z, fourth += z * z * z * z;
  }
  // Five standard errors of each estimate.
  const double five = 5 / std::sqrt(double{kCount});
  EXPECT_NEAR(uniform_sum / kCount, 0.5, five * 0.289);
  EXPECT_NEAR(sum / kCount, 0, five);
  EXPECT_NEAR(square / kCount, 1, five * 1.42);
  EXPECT_NEAR(fourth / kCount, 3, five * 9.8);
}

}  // namespace
}  // namespace fermata
