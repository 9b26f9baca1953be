// Errors of results against what ir/ops/accuracy.def promises: unary and binary ops of f32 against the same ops of f64,
// whose own errors tests/ir/scalar_math_test.cpp bounds; and that eager and compiled mode give the same bits.
//
// FERMATA_NUMERICS_STRIDE: which bit patterns are tried, every so many of all 2^32; odd, 65537 by default, 1 for all.
// Of pairs as many are tried.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "frontend/engine/graph_runner.h"
#include "ir/accuracy.h"
#include "tests/dispatch/every_way.h"
#include "tests/frontend/op_calls.h"

namespace fermata {
namespace {

struct Unary {
  Op op;
  Tensor (*call)(const Operand&);
};
constexpr Unary kUnary[] = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) {Op::name, [](const Operand& x) { return name(x); }},
#include "ir/ops.def"
};

std::uint64_t stride() {
  const char* const given = std::getenv("FERMATA_NUMERICS_STRIDE");
  return given == nullptr ? 65537 : std::max<std::uint64_t>(1, std::strtoull(given, nullptr, 10));
}

/// |got - exact| in units of the last place of `exact`; infinity is the number after the largest one.
double ulp_error(float got, double exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : 1e30;
  const auto finite = [](double x) { return std::fabs(x) > 0x1p128 ? std::copysign(0x1p128, x) : x; };
  const double value = finite(exact), distance = std::fabs(finite(got) - value);
  if (distance == 0) return 0;
  const auto exponent = static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 2047) - 1023;
  return std::ldexp(distance, 23 - std::clamp(exponent, -126, 127));
}

class Numerics : public ::testing::TestWithParam<Unary> {};

TEST_P(Numerics, UnaryOpsOfF32KeepTheirBounds) {
  const auto& [op, call] = GetParam();
  const Accuracy& promised = accuracy(op);
  const auto result = apply_rule(info(op).rule, DType::f32);
  if (!result || result->result != DType::f32) return;
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32, kChunk = 1 << 18;
  double worst = 0;
  float worst_at = 0;
  std::vector<float> numbers;
  for (std::uint64_t pattern = 0; pattern < kAll;) {
    for (numbers.clear(); numbers.size() < kChunk && pattern < kAll; pattern += stride())
      numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(pattern)));
    const auto in = [&](Mode mode, bool wide) {
      const ModeGuard guard(mode);
      const PolicyGuard policy(CompilePolicy::immediate);
      const Tensor x = from_buffer(numbers.data(), DType::f32, {static_cast<std::int64_t>(numbers.size())});
      return call(wide ? astype(x, DType::f64) : x).sync();
    };
    const Tensor got = in(Mode::eager, false), compiled = in(Mode::compiled, false), exact = in(Mode::eager, true);
    const float *const in_eager = got.data<float>(), *const in_compiled = compiled.data<float>();
    const double* const right = exact.data<double>();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const float a = in_eager[i], b = in_compiled[i];
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
                  (std::isnan(a) && std::isnan(b)))
          << std::hexfloat << numbers[i] << ": " << a << " in eager mode, " << b << " compiled";
      if (const double error = ulp_error(a, right[i]); error > worst) worst = error, worst_at = numbers[i];
    }
  }
  std::printf("  %-12s %.4g ulp at %a\n", std::string(name(op)).c_str(), worst, static_cast<double>(worst_at));
  // The f64 result is itself rounded.
  const double bound = !promised.text.empty() ? INFINITY : promised.f32 + 1e-6;
  EXPECT_LE(worst, bound) << std::hexfloat << worst_at;
}

INSTANTIATE_TEST_SUITE_P(EveryOp, Numerics, ::testing::ValuesIn(kUnary),
                         [](const auto& at) { return std::string(name(at.param.op)); });

// ---- Two operands

struct Binary {
  Op op;
  Tensor (*call)(const Operand&, const Operand&);
};
constexpr Binary kBinary[] = {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  {Op::name, [](const Operand& a, const Operand& b) { return name(a, b); }},
#include "ir/ops.def"
};

/// Pairs of f32: any bit patterns, numbers near 1, and one of each; 2^32 of them in all.
struct Pairs {
  std::vector<float> a, b;
  void add(std::uint64_t number) {
    std::uint64_t bits = number + 0x9e3779b97f4a7c15u;  // splitmix64
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u, bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    const auto any = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    // An exponent of -8 to 7 in place of its own.
    const auto near_one = [](std::uint64_t x) {
      const auto all = static_cast<std::uint32_t>(x);
      return (all & 0x807fffffu) | ((all >> 23 & 15) + 119) << 23;
    };
    const bool is_wide_a = number % 4 == 0, is_wide_b = number % 2 == 0;
    a.push_back(std::bit_cast<float>(is_wide_a ? any(bits) : near_one(bits)));
    b.push_back(std::bit_cast<float>(is_wide_b ? any(bits >> 32) : near_one(bits >> 32)));
  }
};

class NumericsOfPairs : public ::testing::TestWithParam<Binary> {};

TEST_P(NumericsOfPairs, BinaryOpsOfF32KeepTheirBounds) {
  const auto& [op, call] = GetParam();
  const Accuracy& promised = accuracy(op);
  const auto result = apply_rule(info(op).rule, DType::f32);
  if (!promised.has_row || !result || result->result != DType::f32) return;
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32, kChunk = 1 << 18;
  double worst = 0;
  std::pair<double, double> worst_at;
  for (std::uint64_t number = 0; number < kAll;) {
    Pairs pairs;
    for (; pairs.a.size() < kChunk && number < kAll; number += stride()) pairs.add(number);
    const auto in = [&](Mode mode, bool wide) {
      const ModeGuard guard(mode);
      const PolicyGuard policy(CompilePolicy::immediate);
      const auto given = [&](const std::vector<float>& x) {
        const Tensor all = from_buffer(x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
        return wide ? astype(all, DType::f64) : all;
      };
      return call(given(pairs.a), given(pairs.b)).sync();
    };
    const Tensor got = in(Mode::eager, false), compiled = in(Mode::compiled, false), exact = in(Mode::eager, true);
    const float *const in_eager = got.data<float>(), *const in_compiled = compiled.data<float>();
    const double* const right = exact.data<double>();
    for (std::size_t i = 0; i < pairs.a.size(); ++i) {
      const float a = in_eager[i], b = in_compiled[i];
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
                  (std::isnan(a) && std::isnan(b)))
          << std::hexfloat << pairs.a[i] << ", " << pairs.b[i] << ": " << a << " in eager mode, " << b << " compiled";
      if (const double error = ulp_error(a, right[i]); error > worst)
        worst = error, worst_at = {pairs.a[i], pairs.b[i]};
    }
  }
  std::printf("  %-12s %.4g ulp at %a, %a\n", std::string(name(op)).c_str(), worst, worst_at.first, worst_at.second);
  const double bound = !promised.text.empty() ? INFINITY : promised.f32 + 1e-6;
  EXPECT_LE(worst, bound) << std::hexfloat << worst_at.first << ", " << worst_at.second;
}

INSTANTIATE_TEST_SUITE_P(EveryOp, NumericsOfPairs, ::testing::ValuesIn(kBinary),
                         [](const auto& at) { return std::string(name(at.param.op)); });

/// A new op that computes has a row.
TEST(Numerics, OpsWithoutABoundOnlyMoveNumbers) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    if (accuracy(op).has_row || is_pointwise(op)) continue;
    const Family kind = family(op);
    if (kind == Family::composite) continue;
    ASSERT_EQ(kind, Family::irregular) << name(op) << " needs a row in ir/ops/accuracy.def";
    const auto example = test::good_call(op);
    if (!example) continue;
    const ModeGuard eager(Mode::eager);
    const std::vector<Tensor> operands = test::operands_of(op, *example);
    if (operands.empty()) continue;  // its numbers are attributes
    std::set<double> known{0};
    for (const Tensor& x : operands)
      if (!is_complex(x.dtype()) && !is_quantized(x.dtype()))
        for (const double v : astype(x, DType::f64).to_vector<double>()) known.insert(v);
    const Tensor result = run_graph(parse_graph(test::text_of(op, *example)), operands).at(0);
    if (!is_floating(result.dtype())) continue;
    for (const double v : astype(result, DType::f64).to_vector<double>())
      EXPECT_TRUE(known.contains(v) || std::isnan(v))
          << name(op) << " needs a row in ir/ops/accuracy.def: it makes " << v;
  }
}

}  // namespace
}  // namespace fermata
