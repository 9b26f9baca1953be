// Two products with kernels on rows between them run block of rows by block of rows, and give what they give one after
// the other, whatever stands between; what they leave between is never whole in memory.
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "fermata/inspect.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kChained = "on each block of rows of steps 0 and 1";

Tensor normal_of(std::uint64_t seed, const Shape& sizes) {
  Generator generator(seed);
  return normal(sizes, 0, 1, DType::f32, generator).sync();
}

class ProductChains : public ::testing::Test {
 protected:
  ProductChains() { before_ = set_compile_policy(CompilePolicy::immediate); }
  ~ProductChains() override {
    set_thread_count(threads_);
    set_compile_policy(before_);
  }

  /// The same to rounding as eagerly, and the same bits on one thread and on three.
  static void expect_chained(const std::function<Tensor()>& program) {
    std::vector<float> wanted;
    {
      const ModeGuard guard(Mode::eager);
      wanted = program().to_vector<float>();
    }
    const ModeGuard guard(Mode::compiled);
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      set_thread_count(threads);
      const Tensor result = program();
      EXPECT_THAT(explain(result), HasSubstr(kChained));
      const std::vector<float> got = result.to_vector<float>();
      ASSERT_EQ(wanted.size(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], 1e-4 * std::max(1.0f, std::fabs(wanted[i]))) << i << " of " << got.size();
      if (first.empty()) first = got;
      EXPECT_EQ(first, got);
    }
  }

 private:
  const int threads_ = thread_count();
  CompilePolicy before_;
};

Tensor written_out(Tensor scores) {
  scores = exp(scores - max(scores, -1, true));
  return scores / sum(scores, -1, true);
}

TEST_F(ProductChains, AttentionAsItIsCalled) {
  const Tensor q = normal_of(1, {2, 3, 301, 40}), k = normal_of(2, {2, 3, 333, 40}), v = normal_of(3, {2, 3, 333, 24});
  expect_chained([&] { return matmul(softmax(matmul(q, k.mT()) * 0.2, -1), v); });
}

TEST_F(ProductChains, AttentionWrittenOutWithABiasAndAMask) {
  const Tensor q = normal_of(1, {2, 2, 515, 33}), k = normal_of(2, {2, 2, 515, 33}), v = normal_of(3, {2, 2, 515, 65});
  const Tensor bias = normal_of(4, {2, 1, 515}), rows = arange(515).sync();
  expect_chained([&] {
    const Tensor scores =
        where(expand_dims(rows, 1) >= rows, matmul(q, k.mT()) + bias, -std::numeric_limits<double>::infinity());
    return matmul(written_out(scores), v);
  });
}

TEST_F(ProductChains, BroadcastHeadsAndOtherLayouts) {
  const Tensor q = normal_of(1, {2, 400, 3, 16}), k = normal_of(2, {2, 1, 16, 400}), v = normal_of(3, {3, 400, 8});
  expect_chained([&] { return matmul(written_out(matmul(permute_dims(q, {0, 2, 1, 3}), k)), v); });
  const Tensor x = normal_of(1, {5000, 20}), y = normal_of(2, {20, 130}), z = normal_of(3, {7, 130});
  expect_chained([&] { return matmul(softmax(matmul(x, y), -1), z.mT()); });
}

TEST_F(ProductChains, ElementsAlone) {
  const Tensor x = normal_of(1, {2, 700, 48}), y = normal_of(2, {48, 640}), z = normal_of(3, {2, 640, 50}),
               b = normal_of(4, {640});
  expect_chained([&] { return matmul(relu(matmul(x, y)), z); });
  expect_chained([&] { return matmul(tanh(matmul(x, y) + b), z); });
}

TEST_F(ProductChains, WhatOthersReadIsWhole) {
  const Tensor q = normal_of(1, {2, 3, 301, 40}), k = normal_of(2, {2, 3, 333, 40}), v = normal_of(3, {2, 3, 333, 24});
  const Tensor weights = softmax(matmul(q, k.mT()) * 0.2, -1), result = matmul(weights, v);
  EXPECT_THAT(explain(result), Not(HasSubstr("on each block of rows")));
  const Tensor scores = matmul(q, k.mT()), other = matmul(softmax(scores, -1), v);
  EXPECT_THAT(explain(other), Not(HasSubstr("on each block of rows")));
  const std::vector<float> sums = sum(weights, -1).to_vector<float>();
  for (const float s : sums) EXPECT_NEAR(s, 1, 1e-5);
}

TEST_F(ProductChains, SmallAndWideOnesRunAsTheyAre) {
  // Too small to leave a cache; right sides that take longer to prepare for each block than what is between takes to
  // move.
  for (const auto& [m, k, n, last] : {std::array<std::int64_t, 4>{60, 16, 60, 16}, {600, 900, 600, 300}}) {
    const Tensor x = normal_of(1, {m, k}), y = normal_of(2, {k, n}), z = normal_of(3, {n, last});
    const auto program = [&] { return matmul(softmax(matmul(x, y) * 0.03, -1), z); };
    const std::vector<float> got = program().to_vector<float>();
    const ModeGuard guard(Mode::eager);
    const std::vector<float> wanted = program().to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4);
  }
}

TEST_F(ProductChains, ScoresAreNeverWholeInMemory) {
  const Tensor q = normal_of(1, {4, 1024, 32}), k = normal_of(2, {4, 1024, 32}), v = normal_of(3, {4, 1024, 32});
  const auto program = [&] { return matmul(softmax(matmul(q, k.mT()), -1), v); };
  set_thread_count(2);
  program().sync();
  trim_cache();
  reset_peak_memory();
  const std::size_t before = memory_stats().peak_bytes;
  program().sync();
  EXPECT_LT(memory_stats().peak_bytes, before + (12u << 20)) << "the scores take 16 MiB, and so do the weights";
}

}  // namespace
}  // namespace fermata
