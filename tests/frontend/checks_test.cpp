// The search for NaN and the comparison of modes: what they name, where, and that nothing is lost by them.
#include "fermata/checks.h"

#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "frontend/engine/value_checks.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

class CheckNan : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, CheckNan, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& mode) { return mode.param == Mode::eager ? "eager" : "compiled"; });

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ValueError& error) {
    EXPECT_EQ(error.code() / 10, 240);
    return error.what();
  }
  return "no error";
}

TEST_P(CheckNan, NamesTheCallThatMadeIt) {
  const Tensor x = tensor({4.0f, -1.0f, 9.0f, 0.25f}).sync();
  const CheckNanGuard guard;
  const std::string line = std::to_string(__LINE__ + 1);
  const std::string error = error_of([&] { (exp(sqrt(x - 2)) * 2 + 1).sync(); });
  EXPECT_THAT(error, HasSubstr("FM2401 ValueError: sqrt: produced 2 NaN among 4 elements from operands that have none\n"
                               "  operand 0 f32[4]   from -3 to 7"));
  EXPECT_THAT(error, HasSubstr("checks_test.cpp:" + line));
}

TEST_P(CheckNan, NamesInfinities) {
  const Tensor x = tensor({1.0f, 0.0f}).sync();
  const CheckNanGuard guard;
  EXPECT_THAT(error_of([&] { sum(log(x)).sync(); }), HasSubstr("log: produced 1 infinite element among 2 elements"));
  EXPECT_THAT(error_of([&] { (1 / x).sync(); }), HasSubstr("produced 1 infinite element"));
}

TEST_P(CheckNan, LetsWhatWasThereBefore) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = tensor({1.0f, std::nanf(""), -2.0f}).sync();
  const CheckNanGuard guard;
  EXPECT_TRUE(std::isnan(sum(x * 2 + 1).item<float>()));
  const Tensor masked = where(x > 0, x, -infinity);
  EXPECT_EQ(max(masked).item<float>(), 1);
  EXPECT_EQ(full({2}, infinity).to_vector<float>()[1], infinity);
}

TEST_P(CheckNan, ValuesCanBeAskedForAfterwards) {
  const Tensor x = tensor({-1.0f, 4.0f}).sync();
  Tensor y = x;
  {
    const CheckNanGuard guard;
    EXPECT_THAT(error_of([&] { y = sqrt(x), y.sync(); }), HasSubstr("FM2401"));
    EXPECT_EQ((x + 1).to_vector<float>()[1], 5);
  }
  EXPECT_EQ(sqrt(x).to_vector<float>()[1], 2);
  EXPECT_TRUE(std::isnan(sqrt(x).to_vector<float>()[0]));
}

TEST(CheckNanOfCompiledFunctions, LooksInside) {
  const Tensor x = tensor({-1.0f, 4.0f}).sync(), good = tensor({1.0f, 4.0f}).sync();
  auto root = compile([](const Tensor& t) { return sqrt(t) + 1; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(root(good).to_vector<float>()[1], 3);
  const CheckNanGuard guard;
  EXPECT_EQ(root(good).to_vector<float>()[1], 3);
  EXPECT_THAT(error_of([&] { root(x).sync(); }), HasSubstr("sqrt: produced 1 NaN among 2 elements"));
}

TEST(CheckNanOfInPlaceWrites, KeepsTheOldValue) {
  Tensor x = tensor({1.0f, 4.0f}).sync();
  const CheckNanGuard guard;
  x -= 2;
  EXPECT_EQ(x.to_vector<float>()[0], -1);
  EXPECT_THAT(error_of([&] { sqrt(x).sync(); }), HasSubstr("operand 0 f32[2]   from -1 to 2"));
  EXPECT_EQ(x.to_vector<float>()[1], 2);
}

TEST(CheckModes, AgreesWithItself) {
  const ModeGuard compiled(Mode::compiled);
  const CheckModesGuard guard;
  const Tensor x = tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}}), w = ones({3, 4});
  const Tensor h = tanh(matmul(x, w) + 1);
  const Tensor loss = mean(h * h);
  EXPECT_NEAR(loss.item<float>(), 1, 1e-3);
  EXPECT_EQ((x > 2).to_vector<bool>()[2], true);
  Tensor y = x.sync();
  y += 1;
  EXPECT_EQ(y.to_vector<float>()[0], 2);
  manual_seed(3);
  EXPECT_EQ(uniform({3}).sync().size(0), 3);
}

TEST(CheckModes, NamesWhatDiffers) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = tensor({1.0f, 3.0f}).sync();
  Tensor y = x * 2;
  Node* const root = y.node();
  Walk walk;
  walk.run({&root, 1});
  std::vector<StoragePtr> computed(1);
  computed[0].reset(Storage::allocate(2 * sizeof(float)));
  auto* const elements = static_cast<float*>(computed[0]->data);
  elements[0] = 2, elements[1] = 6;
  compare_with_calls(walk, computed);
  elements[1] = 5;
  EXPECT_THAT(
      error_of([&] { compare_with_calls(walk, computed); }),
      HasSubstr(
          "FM2402 ValueError: multiply: the compiled value differs from the eager one: element 1 is 5, but 6 in eager "
          "mode\n  result f32[2]\n"));
  EXPECT_EQ(y.to_vector<float>()[1], 6);
}

}  // namespace
}  // namespace fermata
