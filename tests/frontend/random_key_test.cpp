// Explicit keys and the distributions: known answers, independence of what runs them, and how well they fit. Seeds are
// fixed, so nothing here fails by chance.
#include "fermata/random_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class RandomKeys : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, RandomKeys, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

constexpr std::int64_t kCount = 20000;

/// The largest distance between the distribution of a sample and another one (Kolmogorov and Smirnov), times the root
/// of the count: above 1.95 in one of a thousand samples.
double distance(const Tensor& sample, const std::function<double(double)>& distribution) {
  std::vector<double> x = sample.to_vector<double>();
  std::ranges::sort(x);
  double worst = 0;
  const auto n = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = distribution(x[i]);
    worst = std::max(
        {worst, std::abs(static_cast<double>(i + 1) / n - expected), std::abs(static_cast<double>(i) / n - expected)});
  }
  return worst * std::sqrt(n);
}
double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// Pearson's statistic of integers from 0, against probabilities.
double chi_square(const Tensor& sample, const std::vector<double>& probabilities) {
  std::vector<double> counts(probabilities.size());
  const std::vector<std::int64_t> values = sample.to_vector<std::int64_t>();
  for (const std::int64_t v : values) counts.at(static_cast<std::size_t>(v)) += 1;
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(values.size());
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

// kat_vectors of Random123 1.14.0, philox4x32 with 10 rounds: words 0 and 1 of the zero vector. All words of all
// vectors are in tests/ir/scalar_math_test.cpp.
TEST_P(RandomKeys, KnownAnswers) {
  EXPECT_EQ(philox(full({}, 0, DType::u64), full({}, 0, DType::u64)).item<std::uint64_t>(), 0xe169c58d6627e8d5u);
  EXPECT_EQ(random_bits(random_key(0), {2}).to_vector<std::uint64_t>()[0], 0xe169c58d6627e8d5u);
  const std::vector<std::uint64_t> many = random_bits(random_key(7), {64}).to_vector<std::uint64_t>();
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(philox(full({}, i, DType::u64), random_key(7)).item<std::uint64_t>(), many[i]);
}

TEST_P(RandomKeys, StreamsAreFunctionsOfTheirKeys) {
  const Tensor key = random_key(3);
  EXPECT_EQ(uniform(key, {5}).to_vector<float>(), uniform(key, {5}).to_vector<float>());
  std::set<std::uint64_t> seen;
  for (const std::uint64_t k : split_key(key, 100).to_vector<std::uint64_t>()) seen.insert(k);
  for (int i = 0; i < 100; ++i) seen.insert(fold_in(key, i).item<std::uint64_t>());
  for (const std::uint64_t b : random_bits(key, {100}).to_vector<std::uint64_t>()) seen.insert(b);
  EXPECT_EQ(seen.size(), 300u);
  EXPECT_EQ(fold_in(key, full({}, 5)).item<std::uint64_t>(), fold_in(key, 5).item<std::uint64_t>());
  EXPECT_EQ(split_key(key)[1].item<std::uint64_t>(), split_key(key, 7)[1].item<std::uint64_t>());
}

TEST_P(RandomKeys, KeysAreTensors) {
  const Tensor keys = split_key(random_key(3), 4);
  const Tensor by_axis = normal(keys, {3}, 0, 1, DType::f64);
  Inputs one_by_one;
  for (int i = 0; i < 4; ++i) one_by_one.push_back(normal(keys[i], {3}, 0, 1, DType::f64));
  expect_close(by_axis, stack(one_by_one));
  expect_close(vmap([](const Tensor& k) { return normal(k, {3}, 0, 1, DType::f64); })(keys), stack(one_by_one));
  auto compiled = compile([](const Tensor& k) { return normal(k, {3}, 0, 1, DType::f64); });
  for (int i = 0; i < 4; ++i) expect_close(compiled(keys[i]), one_by_one[static_cast<std::size_t>(i)]);
  const auto [last, draws] = scan(
      [](const Tensor& k, const Tensor&) {
        const Tensor next = split_key(k);
        return std::pair(next[0], uniform(next[1], {}, 0, 1, DType::f64));
      },
      random_key(9), arange(3));
  Tensor k = random_key(9);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(draws[i].item<double>(), uniform(split_key(k)[1], {}, 0, 1, DType::f64).item<double>());
    k = split_key(k)[0];
  }
  EXPECT_EQ(last.item<std::uint64_t>(), k.item<std::uint64_t>());
}

TEST_P(RandomKeys, Distributions) {
  const Tensor key = random_key(11);
  for (const DType t : {DType::f32, DType::f64}) {
    EXPECT_LT(distance(uniform(key, {kCount}, -1, 3, t), [](double x) { return (x + 1) / 4; }), 1.95);
    EXPECT_LT(distance(normal(key, {kCount}, 2, 3, t), [](double x) { return normal_below((x - 2) / 3); }), 1.95);
    EXPECT_LT(distance(exponential(key, {kCount}, 2, t), [](double x) { return 1 - std::exp(-2 * x); }), 1.95);
    EXPECT_LT(distance(gumbel(key, {kCount}, t), [](double x) { return std::exp(-std::exp(-x)); }), 1.95);
    for (const auto& [low, high] :
         {std::pair(-2.0, 2.0), std::pair(0.5, 0.75), std::pair(3.0, 9.0), std::pair(-9.0, -1.0)}) {
      const Tensor x = truncated_normal(key, low, high, {kCount}, t);
      EXPECT_EQ(x.dtype(), t);
      EXPECT_GE(min(x).item<double>(), low);
      EXPECT_LE(max(x).item<double>(), high);
      // Of the mirror image where that has the digits.
      const double sign = low > 0 ? -1 : 1, from = normal_below(low > 0 ? -high : low),
                   to = normal_below(low > 0 ? -low : high);
      EXPECT_LT(distance(x * sign, [&](double v) { return (normal_below(v) - from) / (to - from); }), 1.95)
          << low << " to " << high;
    }
  }
  for (const DType t : {DType::f16, DType::bf16}) EXPECT_EQ(normal(key, {3}, 0, 1, t).dtype(), t);
}

TEST_P(RandomKeys, Integers) {
  const Tensor key = random_key(12);
  // The 0.999 quantile of chi-square with 9 degrees of freedom is 27.9.
  for (const DType t : {DType::i8, DType::u8, DType::i16, DType::i32, DType::u32, DType::i64, DType::u64}) {
    const Tensor x = randint(key, 3, 13, {kCount}, t);
    EXPECT_EQ(x.dtype(), t);
    EXPECT_LT(chi_square(astype(x, DType::i64) - 3, std::vector<double>(10, 0.1)), 27.9);
  }
  const Tensor signs = randint(key, -5, 5, {kCount}, DType::i8);
  EXPECT_EQ(min(signs).item<int>(), -5);
  EXPECT_EQ(max(signs).item<int>(), 4);
  // Ranges beyond 32 bits: the exact high half of the product.
  const std::int64_t low = -(std::int64_t{1} << 62), high = (std::int64_t{1} << 62) + 12345;
  const std::vector<std::int64_t> wide = randint(key, low, high, {100}).to_vector<std::int64_t>();
  const std::vector<std::uint64_t> words = random_bits(key, {100}).to_vector<std::uint64_t>();
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto range =
        static_cast<unsigned __int128>(static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low));
    EXPECT_EQ(wide[i], static_cast<std::int64_t>(static_cast<std::uint64_t>(words[i] * range >> 64) +
                                                 static_cast<std::uint64_t>(low)));
  }
}

TEST_P(RandomKeys, Choices) {
  const Tensor key = random_key(13), logits = log(tensor({0.1, 0.2, 0.3, 0.4}, DType::f64));
  const Tensor many = broadcast_to(logits, {kCount, 4});
  // The 0.999 quantile of chi-square with 3 degrees of freedom is 16.3.
  EXPECT_LT(chi_square(categorical(key, many), {0.1, 0.2, 0.3, 0.4}), 16.3);
  EXPECT_LT(chi_square(categorical(key, transpose(many), 0), {0.1, 0.2, 0.3, 0.4}), 16.3);
  EXPECT_NEAR(mean(bernoulli(key, full({kCount}, 0.3))).item<double>(), 0.3, 0.01);
  manual_seed(5);
  EXPECT_LT(chi_square(categorical(many), {0.1, 0.2, 0.3, 0.4}), 16.3);
  EXPECT_LT(distance(exponential({kCount}), [](double x) { return 1 - std::exp(-x); }), 1.95);
  EXPECT_LT(max(abs(truncated_normal(-1, 1, {kCount}))).item<double>(), 1.0001);
}

TEST_P(RandomKeys, Orders) {
  const Tensor key = random_key(14);
  const std::vector<int> p = permutation(key, 1000).to_vector<int>();
  EXPECT_EQ(std::set<int>(p.begin(), p.end()).size(), 1000u);
  EXPECT_EQ(p, permutation(key, 1000).to_vector<int>());
  EXPECT_EQ(sort(shuffle(key, tensor({5, 1, 3}))).to_vector<int>(), (std::vector<int>{1, 3, 5}));
  // All 6 orders of 3, equally often: the 0.999 quantile of chi-square with 5 degrees of freedom is 20.5.
  const Tensor orders = permutation(split_key(key, kCount), 3);
  EXPECT_LT(chi_square(orders.slice(1, 0, 1).reshape({kCount}) * 2 +
                           astype(orders.slice(1, 1, 2).reshape({kCount}) > orders.slice(1, 2, 3).reshape({kCount}),
                                  DType::i64),
                       std::vector<double>(6, 1.0 / 6)),
            20.5);
  EXPECT_EQ(vmap([](const Tensor& k) { return permutation(k, 5); })(split_key(key, 3)).shape(), (Shape{3, 5}));
  auto compiled = compile([] { return permutation(20); });
  manual_seed(3);
  const auto first = compiled().to_vector<int>(), second = compiled().to_vector<int>();
  EXPECT_NE(first, second);
  manual_seed(3);
  EXPECT_EQ(permutation(20).to_vector<int>(), first);
}

TEST_P(RandomKeys, ChoicesOfSlices) {
  const Tensor key = random_key(15), x = tensor({10, 20, 30, 40}), p = tensor({0.1, 0.2, 0.3, 0.4}, DType::f64);
  EXPECT_LT(chi_square(choice(key, arange(4), kCount), std::vector<double>(4, 0.25)), 16.3);
  EXPECT_LT(chi_square(choice(key, arange(4), kCount, true, p), {0.1, 0.2, 0.3, 0.4}), 16.3);
  EXPECT_EQ(sort(choice(key, x, 4, false)).to_vector<int>(), (std::vector<int>{10, 20, 30, 40}));
  EXPECT_EQ(sort(choice(key, x, 4, false, p)).to_vector<int>(), (std::vector<int>{10, 20, 30, 40}));
  // The first of two without replacement is drawn with the probabilities themselves.
  const Tensor firsts =
      vmap([&](const Tensor& k) { return choice(k, arange(4), 2, false, p)[0]; })(split_key(key, kCount));
  EXPECT_LT(chi_square(firsts, {0.1, 0.2, 0.3, 0.4}), 16.3);
  EXPECT_EQ(choice(key, x.reshape({2, 2}), 3).shape(), (Shape{3, 2}));
  EXPECT_EQ(message<ValueError>([&] { choice(key, x, 5, false); }),
            "FM1341 ValueError: choice: 5 of 4 slices without replacement\n"
            "  x    i64[4]\n"
            "  at   HERE\n"
            "  hint replace = true draws slices repeatedly");
  EXPECT_EQ(message<ShapeError>([&] { choice(key, x, 2, true, ones({3})); }),
            "FM1032 ShapeError: choice: requires one probability for each of 4 slices\n"
            "  x             i64[4]\n"
            "  probabilities f32[3]\n"
            "  at            HERE");
}

TEST(RandomKeyModes, DrawTheSame) {
  std::vector<std::vector<double>> by_mode;
  for (const Mode m : {Mode::eager, Mode::compiled}) {
    const ModeGuard mode(m);
    manual_seed(2);
    const Tensor key = next_key(default_generator());
    by_mode.push_back(concat({uniform(key, {9}, 0, 1, DType::f64), normal(key, {9}, 0, 1, DType::f64),
                              truncated_normal(key, -1, 2, {9}, DType::f64), astype(randint(0, 1000, {9}), DType::f64),
                              gumbel(key, {9}, DType::f64)})
                          .to_vector<double>());
  }
  EXPECT_EQ(by_mode[0], by_mode[1]);
}

TEST(RandomKeyReplays, AdvanceTheGeneratorAsARecordingWould) {
  auto compiled = compile([] { return randint(0, 1 << 30, {4}); });
  manual_seed(6);
  const auto first = compiled().to_vector<int>(), second = compiled().to_vector<int>();
  EXPECT_NE(first, second);
  manual_seed(6);
  EXPECT_EQ(randint(0, 1 << 30, {4}).to_vector<int>(), first);
  EXPECT_EQ(compiled().to_vector<int>(), second);
}

/// Only the thread's generator moves with a replay: drawing from another one is found out.
TEST(RandomKeyReplays, OtherGeneratorsAreNoArguments) {
  Generator other(77);
  auto compiled = compile([&] { return rand({2}) * 0 + uniform({2}, 0, 1, DType::f32, other); });
  const std::string line = std::to_string(__LINE__ - 1);
  const std::vector<float> first = compiled().to_vector<float>();
  EXPECT_EQ(
      message<UserError>([&] { compiled(); }),
      "FM1702 UserError: a compiled function recorded a different program than at its first call: the offset of "
      "random_uniform "
      "is 4, and was 0\n"
      "  at   frontend/random_key_test.cpp:" +
          line +
          "\n"
          "  hint it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting");
  auto fixed = compile([] {
    Generator own(77);
    return uniform({2}, 0, 1, DType::f32, own);
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fixed().to_vector<float>(), first);
}

TEST(RandomKeyReplays, FailingOnesTakeNoNumbers) {
  auto compiled = compile([](const Tensor& x, const Tensor& at) { return take(x, at) + rand({1}); });
  const Tensor x = ones({3}), good = tensor({1}), bad = tensor({7});
  compiled(x, good);
  manual_seed(4);
  const std::uint64_t before = default_generator().offset();
  EXPECT_THROW(compiled(x, bad).sync(), IndexError);
  EXPECT_EQ(default_generator().offset(), before);
  compiled(x, good);
  EXPECT_GT(default_generator().offset(), before);
}

TEST_P(RandomKeys, Errors) {
  const Tensor wrong = full({}, 3);
  EXPECT_EQ(message<DTypeError>([&] { uniform(wrong, {2}); }),
            "FM1170 DTypeError: uniform: a key must be u64, not i64\n"
            "  key  i64[]\n"
            "  at   HERE\n"
            "  hint create one with random_key(seed)");
  EXPECT_EQ(message<ValueError>([] { truncated_normal(2, 1, {3}); }),
            "FM1342 ValueError: truncated_normal: empty range from 2 to 1\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([] { randint(random_key(0), 0, 2, {3}, DType::f32); }),
            "FM1104 DTypeError: randint: the result must be integers, not f32\n"
            "  at   HERE");
}

}  // namespace
}  // namespace fermata
