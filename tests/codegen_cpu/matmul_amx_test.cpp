// Tests of the products by AMX tiles beyond those that every matmul has (matmul_test.cpp): edges of tiles, cuts,
// accuracy, what cannot be split, and how to turn them off.
#include "codegen_cpu/library/matmul_amx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "tests/codegen_cpu/matmul_product.h"

namespace fermata {
namespace {

class MatmulAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << "this processor has no tiles, or FERMATA_CPU turns them off";
    if (!splits_f32()) GTEST_SKIP() << "FERMATA_F32_PRODUCTS=fma";
  }
};

TEST_F(MatmulAmx, PanelsStepsAndBlocksThatAreNotWhole) {
  std::mt19937_64 random(seed());
  constexpr std::int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129},
                         kDepths[] = {1, 2, 31, 32, 33, 63, 65, 255, 257, 600};
  std::size_t round = 0;
  for (const DType t : {DType::f32, DType::bf16, DType::i8, DType::u8})
    for (const std::int64_t m : kSizes)
      for (const std::int64_t n : kSizes) {
        const std::int64_t k = kDepths[round++ % std::size(kDepths)];
        Product p(t, {m, k}, {k, n}, kLayouts[round % 5], kLayouts[round / 5 % 5], random);
        ASSERT_TRUE(matmul_amx_fits(p.args()));
        matmul_amx(p.args());
        expect_product(p, to_string(t, p.lhs.sizes) + " @ " + to_string(t, p.rhs.sizes));
        if (HasFatalFailure()) return;
      }
}

TEST_F(MatmulAmx, RowsDoNotDependOnHowTheyAreCut) {
  std::mt19937_64 random(seed());
  for (const DType t : {DType::f32, DType::bf16}) {
    Product whole(t, {300, 700}, {700, 130}, Layout::rows, Layout::rows, random);
    ASSERT_TRUE(matmul_amx_fits(whole.args()));
    matmul_amx(whole.args());
    for (const std::int64_t rows : {1, 7, 33, 128}) {
      Product part(t, {rows, 700}, {700, 130}, Layout::rows, Layout::rows, random);
      const auto row_bytes = static_cast<std::ptrdiff_t>(byte_size(t));
      for (std::int64_t i = 0; i + rows <= 300; i += rows) {
        part.inputs[0].data = whole.lhs.bytes.data() + i * 700 * row_bytes,
        part.inputs[1].data = whole.rhs.bytes.data();
        matmul_amx(part.args());
        ASSERT_EQ(std::memcmp(part.out.bytes.data(), whole.out.bytes.data() + i * 130 * row_bytes,
                              static_cast<std::size_t>(rows * 130 * row_bytes)),
                  0)
            << rows << " " << i;
      }
    }
  }
}

TEST_F(MatmulAmx, ErrorsOfF32AreThoseOfFma) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(-1, 1);
  const std::pair<const char*, std::function<double()>> kData[] = {
      {"uniform", [&] { return uniform(random); }},
      {"positive", [&] { return 1 + uniform(random); }},
      {"normal", [&] { return normal(random); }},
      {"small", [&] { return 1e-10 * normal(random); }},
      {"wide", [&] { return std::exp2(35 * uniform(random)) * (random() % 2 == 0 ? 1 : -1); }},
      {"sparse", [&] { return random() % 8 == 0 ? normal(random) : 0; }}};
  for (const auto& [name, draw] : kData)
    for (const std::int64_t k : {1, 2, 5, 32, 33, 100, 257, 1024, 4096}) {
      Product p(DType::f32, {64, k}, {k, 80}, Layout::rows, Layout::rows, random);
      ASSERT_TRUE(matmul_amx_fits(p.args()));
      for (Array* side : {&p.lhs, &p.rhs})
        for (std::size_t i = 0; i + 16 < side->bytes.size() / 4; ++i) {
          const auto x = static_cast<float>(draw());
          std::memcpy(side->bytes.data() + 4 * i, &x, 4);
        }
      double largest[2] = {}, squares[2] = {};
      for (const bool amx : {false, true}) {
        amx ? matmul_amx(p.args()) : matmul_portable(p.args());
        for (std::int64_t i = 0; i < 64 * 80; ++i) {
          const auto e = p.element(i);
          long double sum = 0, size = 1e-300L;
          for (std::int64_t q = 0; q < k; ++q) {
            const long double product = static_cast<long double>(p.lhs.real(e.lhs + q)) * p.rhs.real(e.rhs + q * 80);
            sum += product, size += std::fabs(product);
          }
          const auto error = static_cast<double>(std::fabs(p.out.real(i) - sum) / size);
          largest[amx] = std::max(largest[amx], error), squares[amx] += error * error;
        }
      }
      EXPECT_LE(largest[1], 1.5 * largest[0]) << name << " k " << k << ", seed " << seed();
      EXPECT_LE(squares[1], 1.5 * 1.5 * squares[0]) << name << " k " << k << ", seed " << seed();
    }
}

TEST_F(MatmulAmx, WhatCannotBeSplitIsComputedByFma) {
  std::mt19937_64 random(seed());
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr std::int64_t m = 70, k = 300, n = 66;
  for (const float special : {kInfinity, -kInfinity, kNan, 3e38f, 0x1p50f, 0x1p-149f, 0x1p-130f, -0.0f})
    for (const std::int64_t row : {0, 15, 16, 33, 69})
      for (const std::int64_t depth : {0, 31, 255, 256, 299})
        for (const bool left : {true, false}) {
          Product p(DType::f32, {m, k}, {k, n}, Layout::rows, left ? Layout::rows : Layout::columns, random);
          ASSERT_TRUE(matmul_amx_fits(p.args()));
          const std::int64_t line = left ? row : std::min(row, n - 1);
          std::memcpy((left ? p.lhs : p.rhs).bytes.data() + 4 * (line * k + depth), &special, 4);
          matmul_portable(p.args());
          const auto wanted = p.out.bytes;
          matmul_amx(p.args());
          for (std::int64_t i = 0; i < m * n; ++i) {
            float w;
            std::memcpy(&w, wanted.data() + 4 * i, 4);
            const float x = p.out.read<float>(i);
            if (std::isnan(w)) {
              ASSERT_TRUE(std::isnan(x)) << special << " " << line << " " << depth << " " << left;
            } else if (std::fabs(special) >= 0x1p50f && (left ? i / n : i % n) == line) {
              ASSERT_EQ(x, w) << special << " " << line << " " << depth << " " << left;
            } else {
              ASSERT_NEAR(x, w, 1e-3) << special << " " << line << " " << depth << " " << left;
            }
          }
        }
  // Many rows and columns that cannot be split, each by itself.
  {
    Product p(DType::f32, {m, k}, {k, n}, Layout::rows, Layout::columns, random);
    for (std::int64_t i = 0; i < m; i += 3) std::memcpy(p.lhs.bytes.data() + 4 * (i * k + i), &kInfinity, 4);
    const float huge = 0x1p60f;
    for (std::int64_t j = 1; j < n; j += 2) std::memcpy(p.rhs.bytes.data() + 4 * (j * k + j), &huge, 4);
    matmul_portable(p.args());
    const auto wanted = p.out.bytes;
    matmul_amx(p.args());
    for (std::int64_t i = 0; i < m * n; ++i) {
      float w;
      std::memcpy(&w, wanted.data() + 4 * i, 4);
      if (i / n % 3 == 0 || i % n % 2 == 1)
        ASSERT_EQ(std::memcmp(wanted.data() + 4 * i, p.out.bytes.data() + 4 * i, 4), 0) << i;
      else
        ASSERT_NEAR(p.out.read<float>(i), w, 1e-3) << i;
    }
  }
  // A whole side that is very small, of which the parts would be flushed.
  Product p(DType::f32, {m, k}, {k, n}, Layout::rows, Layout::rows, random);
  for (std::int64_t i = 0; i < m * k; ++i) {
    const float x = p.lhs.read<float>(i) * 0x1p-120f;
    std::memcpy(p.lhs.bytes.data() + 4 * i, &x, 4);
  }
  matmul_portable(p.args());
  const auto wanted = p.out.bytes;
  matmul_amx(p.args());
  EXPECT_TRUE(wanted == p.out.bytes);
}

void say_whether_there_is_amx() {
  std::mt19937_64 random(seed());
  Product p(DType::f32, {64, 64}, {64, 64}, Layout::rows, Layout::rows, random);
  std::fputs(!has_amx() ? "none" : matmul_amx_fits(p.args()) ? "all" : "not f32", stderr);
  std::exit(0);
}

TEST(MatmulAmxDeathTest, IsTurnedOffByTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto expect = [](const char* variable, const char* value, const char* answer) {
    setenv(variable, value, 1);  // read when the process starts: the test runs in a new one
    EXPECT_EXIT(say_whether_there_is_amx(), testing::ExitedWithCode(0), answer) << variable << " " << value;
    unsetenv(variable);
  };
  expect("FERMATA_CPU", "avx512", "^none$");
  expect("FERMATA_CPU", "avx2", "^none$");
  expect("FERMATA_F32_PRODUCTS", "fma", "^(none|not f32)$");
}

}  // namespace
}  // namespace fermata
