// The arguments of a recorded call as integers: they are read back, and damaged ones are refused, whatever they are.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <random>

#include "dispatch/value.h"
#include "ir/error.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

Stack some_arguments() {
  const Tensor x = ones({2});
  return {Value(x),
          Value(std::vector<Tensor>{x, x}),
          Value(Scalar(2.5)),
          Value(std::int64_t{-7}),
          Value(0.5),
          Value(true),
          Value(std::string("text of some length")),
          Value(DType::f64),
          Value(std::vector<std::int64_t>{1, 2, 3}),
          Value(std::vector<double>{1, 2}),
          Value()};
}

TEST(DecodeArguments, ReadsWhatWasWritten) {
  const Stack stack = some_arguments();
  const Stack back = decode_arguments(encode_arguments(stack), tensors_of(stack));
  ASSERT_EQ(back.size(), stack.size());
  for (std::size_t i = 0; i < stack.size(); ++i) EXPECT_EQ(to_string(back[i]), to_string(stack[i]));
}

TEST(DecodeArguments, RefusesDamagedOnes) {
  const Stack stack = some_arguments();
  const std::vector<std::int64_t> good = encode_arguments(stack);
  const std::vector<Tensor> tensors = tensors_of(stack);
  std::mt19937_64 random(testing::test_seed(7));
  constexpr std::int64_t kHostile[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 8, 1 << 30, 13, 255, 0, 1, 2, 3};
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::int64_t> words = good;
    for (int changes = 0; changes < 2; ++changes)
      words[random() % words.size()] = kHostile[random() % std::size(kHostile)];
    if (i % 4 == 0) words.resize(random() % words.size());
    try {
      static_cast<void>(decode_arguments(words, tensors));
    } catch (const InternalError&) { ++refused; }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace fermata
