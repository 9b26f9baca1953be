// Kernels that run on the tiles of a product give the bits that they give alone, whatever the sizes.
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "fermata/inspect.h"
#include "runtime/storage.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Tensor normal_of(std::uint64_t seed, const Shape& sizes) {
  Generator generator(seed);
  return normal(sizes, 0, 1, DType::f32, generator).sync();
}

class Epilogues : public ::testing::TestWithParam<int> {
 protected:
  Epilogues() {
    set_thread_count(GetParam());
    before_ = set_compile_policy(CompilePolicy::immediate);
  }
  ~Epilogues() override {
    set_thread_count(threads_);
    set_compile_policy(before_);
  }
  static void expect_same_bits(const std::function<Tensor()>& program) {
    Tensor eager, compiled;
    {
      const ModeGuard guard(Mode::eager);
      eager = program();
    }
    {
      const ModeGuard guard(Mode::compiled);
      compiled = program();
      EXPECT_THAT(explain(compiled), HasSubstr("on each tile of step"));
    }
    const std::vector<float> wanted = eager.to_vector<float>(), got = compiled.to_vector<float>();
    ASSERT_EQ(wanted.size(), got.size());
    EXPECT_EQ(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(float)), 0);
  }

 private:
  const int threads_ = thread_count();
  CompilePolicy before_;
};

struct Sizes {
  Shape lhs, rhs;
};
const std::vector<Sizes> kSizes = {
    {{512, 64}, {64, 1024}},    {{300, 70}, {70, 1100}}, {{40, 32}, {32, 32}},
    {{1, 64}, {64, 640}},       {{130, 5}, {5, 1}},      {{3, 96, 64}, {3, 64, 200}},
    {{2, 3, 65, 16}, {16, 48}}, {{7, 0}, {0, 5}},        {{0, 4}, {4, 3}},
};

TEST_P(Epilogues, ProductsWithABias) {
  for (const Sizes& s : kSizes) {
    const Tensor x = normal_of(1, s.lhs), w = normal_of(2, s.rhs), b = normal_of(3, {s.rhs[s.rhs.rank() - 1]});
    SCOPED_TRACE(to_string(s.lhs) + to_string(s.rhs));
    expect_same_bits([&] { return gelu(matmul(x, w) + b); });
  }
}

TEST_P(Epilogues, ProductsElementByElement) {
  for (const Sizes& s : kSizes) {
    const Tensor x = normal_of(1, s.lhs), w = normal_of(2, s.rhs);
    SCOPED_TRACE(to_string(s.lhs) + to_string(s.rhs));
    expect_same_bits([&] { return maximum(matmul(x, w) * 2, 0); });
  }
}

TEST_P(Epilogues, WholeRows) {
  for (const Sizes& s : kSizes) {
    const Tensor x = normal_of(1, s.lhs), w = normal_of(2, s.rhs);
    SCOPED_TRACE(to_string(s.lhs) + to_string(s.rhs));
    const std::function<Tensor()> program = [&] { return rms_norm(matmul(x, w)); };
    const ModeGuard guard(Mode::compiled);
    const Tensor compiled = program();
    const std::string text = explain(compiled);
    const std::vector<float> got = compiled.to_vector<float>();
    const Tensor product = matmul(x, w).sync();  // the same kernel by itself
    const std::vector<float> wanted = rms_norm(product).to_vector<float>();
    ASSERT_EQ(wanted.size(), got.size());
    EXPECT_EQ(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(float)), 0) << text;
    EXPECT_THAT(text, HasSubstr("on each tile of step"));
  }
}

TEST_P(Epilogues, KeepWhatIsReadAgain) {
  // The second product reads what the first kernel wrote, and its own kernel the first product.
  const Tensor x = normal_of(1, {256, 64}), w = normal_of(2, {64, 128}), v = normal_of(3, {128, 128});
  expect_same_bits([&] {
    const Tensor first = matmul(x, w), second = matmul(sigmoid(first), v);
    return tanh(second * first) + first;
  });
}

TEST_P(Epilogues, LeaveOtherReadersAlone) {
  const Tensor x = normal_of(1, {64, 32}), w = normal_of(2, {32, 64});
  const ModeGuard guard(Mode::compiled);
  const Tensor p = matmul(x, w);
  EXPECT_THAT(explain(exp(p.mT())), Not(HasSubstr("on each tile")));
  EXPECT_THAT(explain(sum(p, 0)), Not(HasSubstr("on each tile")));
}

INSTANTIATE_TEST_SUITE_P(Threads, Epilogues, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace fermata
