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
#include "tests/conformance/ulp_errors.h"
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

constexpr std::uint64_t kAll = std::uint64_t{1} << 32, kChunk = 1 << 18;

template <class F> Tensor in(Mode mode, F&& call) {
  const ModeGuard guard(mode);
  return call().sync();
}

testing::UlpErrors errors_of(const Tensor& got, const Tensor& compiled, const Tensor& exact) {
  const auto count = static_cast<std::size_t>(got.element_count());
  return testing::ulp_errors({got.data<float>(), count}, {compiled.data<float>(), count},
                             {exact.data<double>(), count});
}

class Numerics : public ::testing::TestWithParam<Unary> {};

TEST_P(Numerics, UnaryOpsOfF32KeepTheirBounds) {
  const auto& [op, call] = GetParam();
  const Accuracy& promised = accuracy(op);
  const auto result = apply_rule(info(op).rule, DType::f32);
  if (!result || result->result != DType::f32) return;
  double worst = 0;
  float worst_at = 0;
  const PolicyGuard policy(CompilePolicy::immediate);
  std::vector<float> numbers(kChunk);
  for (std::uint64_t pattern = 0; pattern < kAll;) {
    pattern = testing::fill_with_patterns(numbers, pattern, stride(), kAll);
    const Tensor x = from_buffer(numbers.data(), DType::f32, {static_cast<std::int64_t>(numbers.size())});
    const Tensor got = in(Mode::eager, [&] { return call(x); }), compiled = in(Mode::compiled, [&] { return call(x); });
    const Tensor exact = in(Mode::eager, [&] { return call(astype(x, DType::f64)); });
    const testing::UlpErrors found = errors_of(got, compiled, exact);
    ASSERT_EQ(found.different, testing::UlpErrors::kNone)
        << std::hexfloat << numbers[found.different] << ": " << got.data<float>()[found.different] << " in eager mode, "
        << compiled.data<float>()[found.different] << " compiled";
    if (found.worst > worst) worst = found.worst, worst_at = numbers[found.worst_at];
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
  double worst = 0;
  std::pair<double, double> worst_at;
  const PolicyGuard policy(CompilePolicy::immediate);
  Pairs pairs;
  for (std::uint64_t number = 0; number < kAll;) {
    pairs.a.clear(), pairs.b.clear();
    for (; pairs.a.size() < kChunk && number < kAll; number += stride()) pairs.add(number);
    const auto all = [](const std::vector<float>& x) {
      return from_buffer(x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
    };
    const Tensor a = all(pairs.a), b = all(pairs.b);
    const Tensor got = in(Mode::eager, [&] { return call(a, b); });
    const Tensor compiled = in(Mode::compiled, [&] { return call(a, b); });
    const Tensor exact = in(Mode::eager, [&] { return call(astype(a, DType::f64), astype(b, DType::f64)); });
    const testing::UlpErrors found = errors_of(got, compiled, exact);
    ASSERT_EQ(found.different, testing::UlpErrors::kNone)
        << std::hexfloat << pairs.a[found.different] << ", " << pairs.b[found.different] << ": "
        << got.data<float>()[found.different] << " in eager mode, " << compiled.data<float>()[found.different]
        << " compiled";
    if (found.worst > worst) worst = found.worst, worst_at = {pairs.a[found.worst_at], pairs.b[found.worst_at]};
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
