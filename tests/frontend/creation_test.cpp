// New tensors: filled, counted, from C++ values, and random.
#include "fermata/creation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <thread>

#include "fermata/fermata.h"

namespace fermata {
namespace {

class Creation : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Creation, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Doubles = std::vector<double>;

TEST_P(Creation, Filled) {
  EXPECT_EQ(zeros({2, 3}).shape(), Shape({2, 3}));
  EXPECT_EQ(zeros({2}).to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(ones(3, DType::u8).to_vector<int>(), (Ints{1, 1, 1}));
  EXPECT_EQ(ones({}).item<float>(), 1);
  EXPECT_EQ(zeros({0, 4}).to_vector<float>(), Floats{});
  EXPECT_EQ(full({2}, 7).dtype(), DType::i64);
  EXPECT_EQ(full({2}, 7.5).dtype(), DType::f32);
  EXPECT_EQ(full({2}, true).dtype(), DType::boolean);
  EXPECT_EQ(full({2}, 255, DType::u8).to_vector<int>(), (Ints{255, 255}));
  EXPECT_EQ(full({1}, 1e6, DType::f16).item<float>(), INFINITY);
  const Tensor like = ones({2, 1}, DType::bf16);
  EXPECT_EQ(zeros_like(like).dtype(), DType::bf16);
  EXPECT_EQ(ones_like(like, DType::i8).dtype(), DType::i8);
  EXPECT_EQ(full_like(like, 3).to_vector<int>(), (Ints{3, 3}));
  const std::vector<std::int64_t> sizes{4, 5};
  EXPECT_EQ(zeros(sizes).shape(), Shape({4, 5}));
  EXPECT_EQ(zeros(like.shape()).shape(), like.shape());
}

TEST_P(Creation, Ranges) {
  EXPECT_EQ(arange(4).to_vector<int>(), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(arange(4).dtype(), DType::i64);
  EXPECT_EQ(arange(2, 9, 3).to_vector<int>(), (Ints{2, 5, 8}));
  EXPECT_EQ(arange(3, 0, -1).to_vector<int>(), (Ints{3, 2, 1}));
  EXPECT_EQ(arange(5, 5).shape(), Shape({0}));
  EXPECT_EQ(arange(0, 1, 0.25).to_vector<float>(), (Floats{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(2.0).dtype(), DType::f32);
  EXPECT_EQ(arange(3, DType::f64).to_vector<double>(), (Doubles{0, 1, 2}));
  EXPECT_EQ(arange(INT64_MAX - 1, INT64_MAX).to_vector<long>(), std::vector<long>{INT64_MAX - 1});
  // Computed in f64: the 10 millionth step has not lost its fraction.
  EXPECT_EQ(arange(0, 1, 0.1).to_vector<float>()[7], 0.7f);
}

TEST_P(Creation, LinspaceEyeIota) {
  EXPECT_EQ(linspace(0, 1, 5).to_vector<float>(), (Floats{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(0, 0.7, 11, DType::f64).to_vector<double>().back(), 0.7);
  EXPECT_EQ(linspace(3, 9, 1).to_vector<float>(), Floats{3});
  EXPECT_EQ(linspace(3, 9, 0).shape(), Shape({0}));
  EXPECT_EQ(eye(2).to_vector<float>(), (Floats{1, 0, 0, 1}));
  EXPECT_EQ(eye(1, 3, DType::boolean).to_vector<int>(), (Ints{1, 0, 0}));
  EXPECT_EQ(iota({2, 3}, -1).to_vector<int>(), (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(iota({2, 3}).to_vector<int>(), (Ints{0, 0, 0, 1, 1, 1}));
}

TEST_P(Creation, Values) {
  EXPECT_EQ(tensor(3).shape(), Shape({}));
  EXPECT_EQ(tensor(3).dtype(), DType::i64);
  EXPECT_EQ(tensor(2.5).dtype(), DType::f32);
  EXPECT_EQ(tensor({1, 2}).shape(), Shape({2}));
  EXPECT_EQ(tensor({1.5, 2.0}, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(tensor({{1}, {2}}).shape(), Shape({2, 1}));
  EXPECT_EQ(tensor({{{1, 2, 3}}, {{4, 5, 6}}}).shape(), Shape({2, 1, 3}));
  EXPECT_EQ(tensor({{true, false}}).to_vector<int>(), (Ints{1, 0}));
  EXPECT_EQ(tensor({16777217}, DType::f32).item<float>(), 16777216);
  EXPECT_EQ(tensor(std::vector<double>{1, 2}).dtype(), DType::f64);
  EXPECT_EQ(tensor<std::uint8_t>({128, 64}).dtype(), DType::u8);
  EXPECT_EQ(tensor<std::int32_t>({{1, 2}, {3, 4}}).dtype(), DType::i32);
  EXPECT_EQ(tensor<double>(0.1).item<double>(), 0.1);
  EXPECT_EQ(tensor<std::complex<double>>({{1, 2}}).dtype(), DType::c128);
  EXPECT_EQ(tensor<float>(std::vector<float>{1, 2}).dtype(), DType::f32);
  EXPECT_EQ(tensor(std::vector<std::uint8_t>{1, 2, 3, 4}, {2, 2}).to_vector<int>(), (Ints{1, 2, 3, 4}));
  std::vector<float> buffer{1, 2, 3};
  const Tensor x = from_buffer(buffer.data(), DType::f32, {3, 1});
  buffer[0] = 100;
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(tensor(std::span<const float>(buffer).first(2), {1, 2}).shape(), Shape({1, 2}));
}

TEST_P(Creation, ItemsAndVectorsConvert) {
  const Tensor x = tensor({-1.5f, 300.0f, std::nanf("")});
  EXPECT_EQ(x.to_vector<int>(), (Ints{-1, 300, 0}));
  EXPECT_EQ(x.to_vector<unsigned char>(), (std::vector<unsigned char>{0, 255, 0}));
  EXPECT_EQ(x.to_vector<bool>(), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(tensor(1e300, DType::f64).item<float>(), INFINITY);
  EXPECT_EQ(full({1, 1}, 2.5, DType::bf16).item<double>(), 2.5);
}

TEST_P(Creation, RandomNumbersDependOnTheSeedAlone) {
  manual_seed(42);
  const Tensor a = rand({1000}), b = randn({10});
  const std::vector<float> first = a.to_vector<float>(), second = b.to_vector<float>();
  manual_seed(42);
  EXPECT_EQ(rand({1000}).to_vector<float>(), first);
  EXPECT_NE(rand({10}).to_vector<float>(), second);
  manual_seed(43);
  EXPECT_NE(rand({1000}).to_vector<float>(), first);
  std::vector<float> other;
  std::thread([&] {
    ModeGuard mode(GetParam());
    manual_seed(42);
    other = rand({1000}).to_vector<float>();
  }).join();
  EXPECT_EQ(other, first);
}

TEST_P(Creation, OffsetsAreTakenWhenTheCallIsMade) {
  Generator g(7);
  const Tensor dropped = uniform({5}, 0, 1, DType::f32, g), kept = uniform({5}, 0, 1, DType::f32, g);
  EXPECT_EQ(g.offset(), 16u);
  const std::vector<float> late = kept.to_vector<float>();
  g.set_offset(8);
  EXPECT_EQ(uniform({5}, 0, 1, DType::f32, g).to_vector<float>(), late);
}

TEST_P(Creation, RandomNumbersAreDistributedAsTheySay) {
  manual_seed(1);
  constexpr std::int64_t kCount = 100000;
  const auto moments = [](const Tensor& x) {
    const std::vector<double> v = x.to_vector<double>();
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    double square = 0;
    for (const double e : v) square += (e - mean) * (e - mean);
    return std::pair(mean, square / static_cast<double>(v.size()));
  };
  const auto [um, uv] = moments(uniform({kCount}, -1, 3));
  EXPECT_NEAR(um, 1, 0.02);
  EXPECT_NEAR(uv, 16.0 / 12, 0.03);
  const auto [nm, nv] = moments(normal({kCount}, 5, 2, DType::f64));
  EXPECT_NEAR(nm, 5, 0.04);
  EXPECT_NEAR(nv, 4, 0.1);
  const auto [bm, bv] = moments(bernoulli(0.25, {kCount}));
  EXPECT_NEAR(bm, 0.25, 0.01);
  EXPECT_NEAR(bv, 0.1875, 0.01);
  const Tensor integers = randint(-2, 3, {kCount}, DType::i8);
  EXPECT_EQ(integers.dtype(), DType::i8);
  EXPECT_EQ(min(integers).item<int>(), -2);
  EXPECT_EQ(max(integers).item<int>(), 2);
  EXPECT_NEAR(moments(integers).first, 0, 0.03);
  EXPECT_EQ(bernoulli(tensor({0.0, 1.0})).to_vector<int>(), (Ints{0, 1}));
}

TEST_P(Creation, HalfPrecisionNeverRoundsUpToOne) {
  manual_seed(5);
  for (const DType t : {DType::f16, DType::bf16}) {
    const Tensor x = rand({20000}, t);
    EXPECT_EQ(x.dtype(), t);
    EXPECT_LT(max(x).item<float>(), 1);
    EXPECT_GE(min(x).item<float>(), 0);
    EXPECT_NEAR(mean(x).item<float>(), 0.5, 0.01);
    EXPECT_EQ(normal({3}, 1, 2, t).dtype(), t);
  }
}

TEST_P(Creation, Permutations) {
  manual_seed(3);
  const std::vector<int> p = permutation(100).to_vector<int>();
  EXPECT_EQ(std::set<int>(p.begin(), p.end()).size(), 100u);
  EXPECT_NE(p, permutation(100).to_vector<int>());
  EXPECT_NE(p, arange(100).to_vector<int>());
  EXPECT_EQ(permutation(0).shape(), Shape({0}));
}

TEST(CreationThreads, ThreadsStartWithDifferentKeys) {
  std::set<std::uint64_t> keys;
  for (int i = 0; i < 4; ++i) std::thread([&] { keys.insert(default_generator().key()); }).join();
  EXPECT_EQ(keys.size(), 4u);
}

}  // namespace
}  // namespace fermata
