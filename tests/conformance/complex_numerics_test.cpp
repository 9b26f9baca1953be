// Errors of functions of complex numbers against what ir/ops/accuracy.def promises: c64 and c128 against long double.
//
// FERMATA_ULP_SAMPLES: how many numbers are tried, 6,000 by default.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "ir/accuracy.h"
#include "ir/infer.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "the reference needs more digits than f64 has");
using Exact = std::complex<long double>;
constexpr long double kLn2 = 0.693147180559945309417232121458176568L, kLn10 = 2.302585092994045684017991454684364208L;

long double magnitude(const Exact& z) { return std::hypot(z.real(), z.imag()); }

/// Without cancellation where the magnitude is about 1.
Exact exact_log(const Exact& z) {
  long double large = std::abs(z.real()), small = std::abs(z.imag());
  if (large < small) std::swap(large, small);
  const long double square = large * large + small * small;
  const bool is_near = square > 0.5L && square < 2;
  return {is_near ? std::log1p((large - 1) * (large + 1) + small * small) / 2 : std::log(magnitude(z)), std::arg(z)};
}
Exact exact_expm1(const Exact& z) {
  const long double half = std::sin(z.imag() / 2);
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half, std::exp(z.real()) * std::sin(z.imag())};
}
Exact exact_log1p(const Exact& z) {
  const long double x = z.real(), y = z.imag(), t = x * (2 + x) + y * y;
  return {std::abs(t) < 0.5L ? std::log1p(t) / 2 : std::log(std::hypot(1 + x, y)), std::atan2(y, 1 + x)};
}

struct ComplexOp {
  Op op;
  Tensor (*call)(const Tensor& a, const Tensor& b);
  Exact (*exact)(const Exact& a, const Exact& b);
};
#define FERMATA_OF_ONE(name, formula)                                 \
  {                                                                   \
    Op::name, [](const Tensor& a, const Tensor&) { return name(a); }, \
        [](const Exact& a, const Exact&) { return formula; }          \
  }
#define FERMATA_OF_TWO(name, formula)                                      \
  {                                                                        \
    Op::name, [](const Tensor& a, const Tensor& b) { return name(a, b); }, \
        [](const Exact& a, const Exact& b) { return formula; }             \
  }
constexpr ComplexOp kOps[] = {
    FERMATA_OF_TWO(multiply, a* b),
    FERMATA_OF_TWO(divide, a / b),
    FERMATA_OF_TWO(pow, std::exp(b* exact_log(a))),
    FERMATA_OF_ONE(reciprocal, 1.0L / a),
    FERMATA_OF_ONE(square, a* a),
    FERMATA_OF_ONE(abs, Exact(magnitude(a))),
    FERMATA_OF_ONE(angle, Exact(std::arg(a))),
    FERMATA_OF_ONE(sign, a / magnitude(a)),
    FERMATA_OF_ONE(sqrt, std::sqrt(a)),
    FERMATA_OF_ONE(rsqrt, 1.0L / std::sqrt(a)),
    FERMATA_OF_ONE(exp, std::exp(a)),
    FERMATA_OF_ONE(exp2, std::exp(a* kLn2)),
    FERMATA_OF_ONE(expm1, exact_expm1(a)),
    FERMATA_OF_ONE(log, exact_log(a)),
    FERMATA_OF_ONE(log2, exact_log(a) / kLn2),
    FERMATA_OF_ONE(log10, exact_log(a) / kLn10),
    FERMATA_OF_ONE(log1p, exact_log1p(a)),
    FERMATA_OF_ONE(sin, std::sin(a)),
    FERMATA_OF_ONE(cos, std::cos(a)),
    FERMATA_OF_ONE(tan, std::tan(a)),
    FERMATA_OF_ONE(asin, std::asin(a)),
    FERMATA_OF_ONE(acos, std::acos(a)),
    FERMATA_OF_ONE(atan, std::atan(a)),
    FERMATA_OF_ONE(sinh, std::sinh(a)),
    FERMATA_OF_ONE(cosh, std::cosh(a)),
    FERMATA_OF_ONE(asinh, std::asinh(a)),
    FERMATA_OF_ONE(acosh, std::acosh(a)),
    FERMATA_OF_ONE(atanh, std::atanh(a)),
    FERMATA_OF_ONE(tanh, std::tanh(a)),
    FERMATA_OF_ONE(sigmoid, 1.0L / (1.0L + std::exp(-a))),
};
#undef FERMATA_OF_ONE
#undef FERMATA_OF_TWO

std::size_t sample_count() {
  const char* const given = std::getenv("FERMATA_ULP_SAMPLES");
  return given == nullptr ? 6000 : std::strtoull(given, nullptr, 10);
}

/// Parts of several magnitudes, and every sixth number near the unit circle.
template <class T> std::vector<std::complex<T>> numbers(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto part = [&](double binades) { return static_cast<T>(unit(random) * std::exp2(unit(random) * binades)); };
  constexpr double kBinades[] = {1, 8, 20};
  std::vector<std::complex<T>> made;
  for (std::size_t i = 0; i < sample_count(); ++i)
    if (i % 6 == 5)
      made.push_back(std::polar(static_cast<T>(1 + unit(random) / 1000), static_cast<T>(unit(random) * 3.14159)));
    else
      made.emplace_back(part(kBinades[i % 3]), part(kBinades[i / 3 % 3]));
  return made;
}

/// What the bounds of an op are multiplied by.
long double growth(Op op, const Exact& a, const Exact& b, const Exact& result) {
  if (op == Op::pow) return 1 + magnitude(b * exact_log(a));
  return op == Op::sigmoid ? std::max(1.0L, magnitude(result)) : 1;
}

class ComplexNumerics : public ::testing::TestWithParam<ComplexOp> {
 protected:
  template <class T> void check(DType dtype, double bound) const {
    const auto& [op, call, exact] = GetParam();
    const std::uint64_t seed = testing::test_seed(7);
    const auto a = numbers<T>(seed), b = numbers<T>(seed + 1);
    const auto size = static_cast<std::int64_t>(a.size());
    const auto in = [&](Mode mode) {
      const ModeGuard guard(mode);
      const Tensor y = call(from_buffer(a.data(), dtype, {size}), from_buffer(b.data(), dtype, {size}));
      return (is_complex(y.dtype()) ? y : astype(y, dtype)).template to_vector<std::complex<double>>();
    };
    const auto eager = in(Mode::eager), compiled = in(Mode::compiled);
    long double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto is_same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
      ASSERT_TRUE(is_same(eager[i].real(), compiled[i].real()) && is_same(eager[i].imag(), compiled[i].imag()));
      const Exact x(a[i].real(), a[i].imag()), y(b[i].real(), b[i].imag()), want = exact(x, y);
      const long double size_of = magnitude(want), largest = std::numeric_limits<T>::max();
      if (!(size_of < largest / 4) || size_of < std::numeric_limits<T>::min()) continue;
      const long double ulp = std::ldexp(1.0L, std::ilogb(size_of) + 1 - std::numeric_limits<T>::digits);
      const Exact got(eager[i].real(), eager[i].imag());
      const long double error = magnitude(got - want) / ulp / growth(op, x, y, want);
      if (!(error <= worst)) worst = error, at = i;
    }
    std::printf("  %-12s %s %.3Lf ulp\n", std::string(name(op)).c_str(), std::string(name(dtype)).c_str(), worst);
    EXPECT_LE(worst, bound) << a[at] << ", " << b[at] << "; FERMATA_SEED=" << seed;
  }
};

TEST_P(ComplexNumerics, KeepTheirBounds) {
  const ComplexAccuracy* const promised = complex_accuracy(GetParam().op);
  ASSERT_NE(promised, nullptr);
  check<float>(DType::c64, promised->c64);
  check<double>(DType::c128, promised->c128);
}
INSTANTIATE_TEST_SUITE_P(EveryOp, ComplexNumerics, ::testing::ValuesIn(kOps),
                         [](const auto& at) { return std::string(name(at.param.op)); });

/// A new op of complex numbers has a row and is tried above, or its parts are correctly rounded.
TEST(ComplexNumerics, EveryOpHasABoundOrIsExact) {
  constexpr Op kExact[] = {Op::negative,  Op::positive,    Op::round,      Op::conj,        Op::real,        Op::imag,
                           Op::isnan,     Op::isinf,       Op::isfinite,   Op::add,         Op::subtract,    Op::equal,
                           Op::not_equal, Op::logical_and, Op::logical_or, Op::logical_xor, Op::logical_not, Op::where};
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    const auto rule = apply_rule(info(op).rule, DType::c64);
    if (!is_pointwise(op) || !rule || rule->operand != DType::c64) continue;
    const bool is_tried = std::ranges::find(kOps, op, &ComplexOp::op) != std::end(kOps);
    EXPECT_EQ(complex_accuracy(op) != nullptr, is_tried) << name(op);
    EXPECT_NE(is_tried, std::ranges::find(kExact, op) != std::end(kExact)) << name(op);
  }
}

}  // namespace
}  // namespace fermata
