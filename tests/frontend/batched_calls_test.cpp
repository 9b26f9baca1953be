// Equal products that do not depend on each other run as one call, and give the bits that they give one by one.
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "fermata/inspect.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Results = std::vector<Tensor>;

Tensor normal_of(std::uint64_t seed, const Shape& sizes, DType dtype = DType::f32) {
  Generator generator(seed);
  return astype(normal(sizes, 0, 1, DType::f32, generator) * 3, dtype).sync();
}

class BatchedCalls : public ::testing::Test {
 protected:
  BatchedCalls() { before_ = set_compile_policy(CompilePolicy::immediate); }
  ~BatchedCalls() override {
    set_thread_count(threads_);
    set_compile_policy(before_);
  }

  static std::vector<std::vector<double>> values_of(Results results) {
    sync(results);
    std::vector<std::vector<double>> values;
    for (const Tensor& r : results) values.push_back(astype(r, DType::f64).to_vector<double>());
    return values;
  }
  static void expect_the_same(const std::function<Results()>& program) {
    std::vector<std::vector<double>> wanted;
    {
      const ModeGuard guard(Mode::eager);
      wanted = values_of(program());
    }
    const ModeGuard guard(Mode::compiled);
    for (const int threads : {1, 3}) {
      set_thread_count(threads);
      for (int round = 0; round < 2; ++round)
        EXPECT_EQ(values_of(program()), wanted) << threads << " threads, round " << round;
    }
  }

 private:
  const int threads_ = thread_count();
  CompilePolicy before_;
};

Results products(const Results& a, const Results& b) {
  Results made;
  for (std::size_t i = 0; i < a.size(); ++i) made.push_back(matmul(a[i], b[i]));
  return made;
}

TEST_F(BatchedCalls, EveryDTypeAndLayout) {
  const Shape kShapes[][2] = {{{32, 32}, {32, 32}},   {{5, 7}, {7, 3}}, {{3, 4, 5}, {5, 6}},
                              {{2, 3, 4}, {2, 4, 5}}, {{9}, {9, 4}},    {{8, 6}, {6}},
                              {{70, 90}, {90, 110}},  {{4, 0}, {0, 3}}, {{1, 40}, {40, 90}}};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i8, DType::i64})
    for (const auto& [x, y] : kShapes) {
      Results a, b;
      for (std::uint64_t i = 0; i < 9; ++i)
        a.push_back(normal_of(2 * i, x, dtype)), b.push_back(normal_of(2 * i + 1, y, dtype));
      expect_the_same([&] { return products(a, b); });
      if (x.rank() < 2 || y.rank() < 2) continue;
      Results turned;  // the same sizes, other strides: some have to be packed
      for (const Tensor& t : b) turned.push_back(flip(t.mT(), 0).mT());
      expect_the_same([&] { return products(a, turned); });
    }
}

TEST_F(BatchedCalls, OthersAmongThem) {
  Results a, b;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::int64_t n = i % 5 == 4 ? 24 : 16;
    a.push_back(normal_of(2 * i, {16, n})), b.push_back(normal_of(2 * i + 1, {n, 16}));
  }
  expect_the_same([&] { return products(a, b); });
  expect_the_same([&] {  // each depends on the one before
    Tensor product = a[0];
    for (std::size_t i = 0; i < 4; ++i) product = matmul(product, b[i]);
    return Results{product};
  });
  expect_the_same([&] {  // pairs that depend on each other
    Results made;
    for (std::size_t i = 0; i < 4; ++i) made.push_back(matmul(matmul(a[i], b[i]), b[i + 5]));
    return made;
  });
}

TEST_F(BatchedCalls, ResultsThatAreOnlyRead) {
  Results a, b;
  for (std::uint64_t i = 0; i < 10; ++i)
    a.push_back(normal_of(2 * i, {20, 30})), b.push_back(normal_of(2 * i + 1, {30, 20}));
  expect_the_same([&] {
    Results made = products(a, b);
    Tensor total = made[0];
    for (std::size_t i = 1; i < made.size(); ++i) total = maximum(total, made[i]);
    made.clear();
    return Results{matmul(total, a[0]), matmul(total, a[1])};
  });
}

TEST_F(BatchedCalls, ExplainSaysSo) {
  const Tensor a = normal_of(1, {16, 16}), b = normal_of(2, {16, 16});
  const Tensor both = concat({matmul(a, b), matmul(b, a)}, 0);
  EXPECT_THAT(explain(both), HasSubstr("step 1: call matmul with step 0"));
  EXPECT_THAT(explain(matmul(matmul(a, b), b)), Not(HasSubstr("with step")));
}

}  // namespace
}  // namespace fermata
