// Special functions against values computed with 60 digits (golden_special.txt, written by golden_special.py), f32 and
// f64, in both modes. Errors are in units of the last place; the bounds are those of fermata/special.h.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "fermata/fermata.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

struct Points {
  std::vector<std::vector<double>> arguments;  // of each operand
  std::vector<double> values;
};

const std::map<std::string, Points>& golden() {
  static const auto all = [] {
    std::map<std::string, Points> points;
    std::ifstream in(fermata::test_folder() + "/conformance/golden_special.txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string name, word;
      std::vector<double> numbers;
      words >> name;
      while (words >> word) numbers.push_back(std::strtod(word.c_str(), nullptr));
      Points& p = points[name];
      p.arguments.resize(numbers.size() - 1);
      for (std::size_t k = 0; k + 1 < numbers.size(); ++k) p.arguments[k].push_back(numbers[k]);
      p.values.push_back(numbers.back());
    }
    return points;
  }();
  return all;
}

struct Row {
  const char* name;
  Tensor (*call)(std::span<const Tensor> x);
  double f32, f64;        // bounds in ulp
  bool absolute = false;  // in ulps of 1 where the value is less
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

#define FERMATA_ROW1(name, ...)                                               \
  {                                                                           \
#name, [](std::span <const Tensor> x) { return name(x[0]); }, __VA_ARGS__ \
  }
#define FERMATA_ROW2(name, ...)                                                     \
  {                                                                                 \
#name, [](std::span <const Tensor> x) { return name(x[0], x[1]); }, __VA_ARGS__ \
  }
const Row kRows[] = {
    FERMATA_ROW1(lgamma, 4, 6),
    FERMATA_ROW1(digamma, 2.5, 2.5),
    FERMATA_ROW1(sinc, 4, 3.5),
    FERMATA_ROW1(ndtr, 2.5, 3.5),
    FERMATA_ROW1(log_ndtr, 3.5, 3.5),
    FERMATA_ROW1(ndtri, 4, 3.5),
    FERMATA_ROW1(erfinv, 4.5, 5.5),
    FERMATA_ROW1(i0, 3.5, 3.5),
    FERMATA_ROW1(i1, 3.5, 3.5),
    FERMATA_ROW1(i0e, 3.5, 3),
    FERMATA_ROW1(i1e, 3.5, 3),
    FERMATA_ROW1(j0, 2.5, 2, true),
    FERMATA_ROW1(j1, 2.5, 2, true),
    {"lgamma_below_zero", [](std::span<const Tensor> x) { return lgamma(x[0]); }, 8, 8, true},
    {"digamma_below_zero", [](std::span<const Tensor> x) { return digamma(x[0]); }, 4096, 4096, true},
    FERMATA_ROW2(zeta, 1, 30),
    FERMATA_ROW2(gammainc, 1, 600),
    FERMATA_ROW2(gammaincc, 1, 600),
    {"betainc", [](std::span<const Tensor> x) { return betainc(x[0], x[1], x[2]); }, 1, 1200},
};

class SpecialFunction : public testing::TestWithParam<Row> {};

TEST_P(SpecialFunction, is_within_its_bound) {
  const Row& row = GetParam();
  const auto found = golden().find(row.name);
  ASSERT_NE(found, golden().end()) << "run tests/conformance/golden_special.py";
  const Points& points = found->second;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Mode mode : {Mode::eager, Mode::compiled}) {
      const ModeGuard guard(mode);
      std::vector<Tensor> x;
      for (const std::vector<double>& values : points.arguments)
        x.push_back(astype(tensor(values, {static_cast<std::int64_t>(values.size())}), dtype));
      const Tensor got = row.call(x);
      ASSERT_EQ(got.dtype(), dtype);
      const std::vector<double> values = astype(got, DType::f64).to_vector<double>();
      const bool is_double = dtype == DType::f64;
      const int digits = is_double ? 53 : 24, least = is_double ? -1022 : -126;
      double worst = 0;
      std::size_t at = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double exact = points.values[i];
        if (std::fabs(exact) < std::ldexp(1.0, least) || std::fabs(exact) > (is_double ? 1e308 : 3e38)) continue;
        const int exponent = std::max(std::ilogb(exact), row.absolute ? 0 : least);
        const double error = std::fabs(values[i] - exact) / std::ldexp(1.0, exponent - (digits - 1));
        if (!(error <= worst)) worst = error, at = i;
      }
      EXPECT_LE(worst, is_double ? row.f64 : row.f32)
          << name(dtype) << " at " << points.arguments[0][at] << ": " << values[at] << ", not " << points.values[at];
    }
}
INSTANTIATE_TEST_SUITE_P(Rows, SpecialFunction, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

/// Limits as SciPy has them.
TEST(SpecialFunctions, limits) {
  constexpr double kInf = INFINITY, kNaN = NAN;
  struct Limit {
    const char* what;
    Tensor (*call)(Operand);
    double x, wanted;
  };
  const Limit limits[] = {
      {"lgamma", lgamma, 0, kInf},
      {"lgamma", lgamma, -1, kInf},
      {"lgamma", lgamma, kInf, kInf},
      {"lgamma", lgamma, -kInf, kInf},
      {"lgamma", lgamma, kNaN, kNaN},
      {"lgamma", lgamma, 1, 0},
      {"lgamma", lgamma, 2, 0},
      {"digamma", digamma, 0, -kInf},
      {"digamma", digamma, -3, kNaN},
      {"digamma", digamma, kInf, kInf},
      {"digamma", digamma, kNaN, kNaN},
      {"sinc", sinc, 0, 1},
      {"sinc", sinc, kInf, 0},
      {"sinc", sinc, 4, 0},
      {"ndtr", ndtr, -kInf, 0},
      {"ndtr", ndtr, kInf, 1},
      {"ndtr", ndtr, kNaN, kNaN},
      {"log_ndtr", log_ndtr, -kInf, -kInf},
      {"log_ndtr", log_ndtr, kInf, 0},
      {"log_ndtr", log_ndtr, kNaN, kNaN},
      {"ndtri", ndtri, 0, -kInf},
      {"ndtri", ndtri, 1, kInf},
      {"ndtri", ndtri, -0.5, kNaN},
      {"ndtri", ndtri, 1.5, kNaN},
      {"ndtri", ndtri, 0.5, 0},
      {"ndtri", ndtri, kNaN, kNaN},
      {"erfinv", erfinv, 1, kInf},
      {"erfinv", erfinv, -1, -kInf},
      {"erfinv", erfinv, 2, kNaN},
      {"erfinv", erfinv, kNaN, kNaN},
      {"i0", i0, 0, 1},
      {"i0", i0, kInf, kInf},
      {"i0", i0, kNaN, kNaN},
      {"i0", i0, -1000, kInf},
      {"i1", i1, -kInf, -kInf},
      {"i1", i1, kNaN, kNaN},
      {"i0e", i0e, kInf, 0},
      {"i1e", i1e, kInf, 0},
      {"i1e", i1e, kNaN, kNaN},
      {"j0", j0, 0, 1},
      {"j0", j0, kInf, 0},
      {"j0", j0, kNaN, kNaN},
      {"j1", j1, 0, 0},
      {"j1", j1, -kInf, 0},
      {"j1", j1, kNaN, kNaN},
      {"entr", entr, 0, 0},
      {"entr", entr, -1, -kInf},
      {"entr", entr, kNaN, kNaN},
  };
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    for (const Limit& limit : limits)
      for (const DType dtype : {DType::f32, DType::f64}) {
        const double got = astype(limit.call(full({1}, limit.x, dtype)), DType::f64).item<double>();
        if (std::isnan(limit.wanted))
          EXPECT_TRUE(std::isnan(got)) << limit.what << "(" << limit.x << ") = " << got;
        else if (std::isinf(limit.wanted))
          EXPECT_EQ(got, limit.wanted) << limit.what << "(" << limit.x << ")";
        else
          EXPECT_NEAR(got, limit.wanted, dtype == DType::f64 ? 1e-15 : 1e-7) << limit.what << "(" << limit.x << ")";
      }
  }
}

TEST(SpecialFunctions, limits_of_two_operands) {
  const auto value = [](const Tensor& x) { return astype(x, DType::f64).item<double>(); };
  const auto f64 = [](double x) { return full({}, x, DType::f64); };
  EXPECT_EQ(value(xlogy(f64(0), 0.0)), 0);
  EXPECT_TRUE(std::isnan(value(xlogy(f64(0), NAN))));
  EXPECT_EQ(value(xlog1py(f64(0), -1.0)), 0);
  EXPECT_EQ(value(gammainc(f64(2), 0.0)), 0);
  EXPECT_EQ(value(gammaincc(f64(2), INFINITY)), 0);
  EXPECT_TRUE(std::isnan(value(gammainc(f64(-1), 1.0))));
  EXPECT_EQ(value(betainc(f64(2), 3.0, 1.0)), 1);
  EXPECT_TRUE(std::isnan(value(betainc(f64(2), 3.0, 1.5))));
  EXPECT_EQ(value(zeta(f64(1), 2.0)), INFINITY);
  EXPECT_NEAR(value(zeta(f64(2), -0.5)), 8.934802200544679, 1e-13);
  EXPECT_NEAR(value(zeta(f64(3), -2.5)), 7 * 1.2020569031595942 - 8 - 8.0 / 27 - 0.064, 1e-13);
  EXPECT_EQ(value(ldexp(f64(1), -1074)), 0x1p-1074);
  EXPECT_EQ(value(ldexp(f64(0x1.8p-1022), -51)), 0x1.8p-1022 * 0x1p-51);
  EXPECT_EQ(value(ldexp(f64(0x1p-1074), 2097)), 0x1p1023);
  EXPECT_EQ(value(ldexp(f64(3), 5000)), INFINITY);
  EXPECT_EQ(value(ldexp(f64(3), -5000)), 0);
}

TEST(SpecialFunctions, log_ndtr_of_numbers_whose_square_is_too_large) {
  EXPECT_EQ(log_ndtr(full({}, -0x1p512, DType::f64)).item<double>(), -0x1p1023);
  EXPECT_EQ(log_ndtr(full({}, -0x1p64, DType::f32)).item<float>(), -0x1p127f);
}

TEST(SpecialFunctions, frexp_takes_every_number_apart) {
  for (const double x : {0.0, -0.0, 1.0, -3.0, 0x1p-1074, -0x1.8p-1030, 1e308}) {
    const FractionAndExponent parts = frexp(full({}, x, DType::f64));
    int exponent = 0;
    EXPECT_EQ(parts.fraction.item<double>(), std::frexp(x, &exponent)) << x;
    EXPECT_EQ(parts.exponent.item<std::int32_t>(), exponent) << x;
  }
  EXPECT_EQ(frexp(full({}, -INFINITY, DType::f64)).fraction.item<double>(), -INFINITY);
}

TEST(SpecialFunctions, integers_and_halves) {
  EXPECT_EQ(gcd(tensor({12, -18, 0}, DType::i32), 8).to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 2, 8}));
  EXPECT_EQ(lcm(tensor({12, -18, 0}, DType::i32), 8).to_vector<std::int32_t>(), (std::vector<std::int32_t>{24, 72, 0}));
  EXPECT_EQ(gcd(tensor({INT64_MIN}, DType::i64), 6).to_vector<std::int64_t>(), std::vector<std::int64_t>{2});
  EXPECT_EQ(lgamma(full({2}, 3, DType::f16)).dtype(), DType::f16);
  EXPECT_EQ(gammainc(full({2}, 3, DType::bf16), 2.0).dtype(), DType::bf16);
  EXPECT_EQ(lgamma(full({2}, 3, DType::i32)).dtype(), DType::f32);
  EXPECT_EQ(betainc(full({2}, 3, DType::f64), 2, full({2}, 0.5, DType::f32)).dtype(), DType::f64);
  EXPECT_THROW(gcd(full({2}, 1.5), 2), DTypeError);
}

/// Values of mpmath with 60 digits.
TEST(SpecialFunctions, derivatives_by_parameters) {
  const auto slope = [](auto f, double at) {
    Tensor p = full({}, at, DType::f64);
    p.requires_grad(true);
    f(p).backward();
    return p.grad().template item<double>();
  };
  const auto near = [](double got, double wanted) { EXPECT_NEAR(got, wanted, 1e-9 * std::abs(wanted)); };
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    for (const auto& [a, x, wanted] : {std::tuple{0.5, 0.3, -0.77057035137535192},
                                       {3.0, 2.5, -0.24711735748326824},
                                       {40.0, 44.0, -0.049940626239819619},
                                       {250.0, 260.0, -0.02036715335125067},
                                       {1e-3, 2.0, -0.049053345839364881}}) {
      near(slope([x = x](const Tensor& p) { return gammainc(p, x); }, a), wanted);
      near(slope([x = x](const Tensor& p) { return gammaincc(p, x); }, a), -wanted);
    }
    for (const auto& [a, b, x, by_a, by_b] : {std::tuple{0.5, 2.0, 0.3, -0.50684234554167633, 0.13315103712235119},
                                              {4.0, 3.0, 0.6, -0.13290060352830405, 0.19020736070041498},
                                              {60.0, 20.0, 0.8, -0.01384604610431413, 0.048124589187519117}}) {
      near(slope([b = b, x = x](const Tensor& p) { return betainc(p, b, x); }, a), by_a);
      near(slope([a = a, x = x](const Tensor& p) { return betainc(a, p, x); }, b), by_b);
    }
    for (const auto& [s, q, wanted] : {std::tuple{1.5, 2.0, -3.9322397374311015},
                                       {3.0, 0.7, 0.80115682933539191},
                                       {8.0, 1.0, -0.0029019525537106731}})
      near(slope([q = q](const Tensor& p) { return zeta(p, q); }, s), wanted);
  }
}

TEST(SpecialFunctions, derivatives_by_parameters_have_none_themselves) {
  const auto raised = [](auto f) -> std::string {
    const auto first = grad([f](const Tensor& a) { return sum(f(a)); });
    try {
      grad([first](const Tensor& a) { return sum(first(a)); })(full({2}, 1.5, DType::f64));
    } catch (const GradientError& e) { return e.what(); }
    return "";
  };
  const auto names = [](const std::string& text, std::string_view name) {
    EXPECT_NE(text.find(name), std::string::npos) << text;
  };
  names(raised([](const Tensor& a) { return gammainc(a, 2.0); }), "gammainc_by_order");
  names(raised([](const Tensor& a) { return betainc(a, 2.0, 0.5); }), "betainc_by_a");
  names(raised([](const Tensor& a) { return betainc(2.0, a, 0.5); }), "betainc_by_b");
  names(raised([](const Tensor& a) { return zeta(a, 2.0); }), "zeta_by_exponent");
}

}  // namespace
}  // namespace fermata
