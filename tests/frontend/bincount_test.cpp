// bincount against a plain loop, for every dtype and in both modes; its gradient, its batching rule, its errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fermata/fermata.h"
#include "frontend/ops/calls.h"
#include "runtime/thread_pool.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using testing::message;
using Ints = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

class Bincount : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Bincount, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

Ints ints(const Tensor& x) { return x.to_vector<std::int64_t>(); }
Doubles doubles(const Tensor& x) { return x.to_vector<double>(); }

/// Integers below `limit`, some of them more often than others.
Tensor some_bins(const Shape& shape, std::int64_t limit, DType dtype = DType::i64) {
  Ints values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(i * i * 7 % 1009 * (i % 3) % limit);
  return astype(tensor(values, shape), dtype).sync();
}

/// Row by row, in double.
Doubles loop(const Tensor& x, const Tensor& weights, std::int64_t length) {
  const Ints bins = ints(x);
  const Doubles given = weights.defined() ? doubles(weights) : Doubles(bins.size(), 1);
  const auto size = static_cast<std::size_t>(x.size(-1)), count = static_cast<std::size_t>(length);
  Doubles sums(size == 0 ? 0 : bins.size() / size * count, 0);
  for (std::size_t i = 0; i < bins.size(); ++i)
    if (bins[i] < length) sums[i / size * count + static_cast<std::size_t>(bins[i])] += given[i];
  return sums;
}

TEST_P(Bincount, CountsIntegersOfEveryDtype) {
  for (const DType dtype :
       {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64})
    for (const Shape& shape : {Shape{50}, Shape{3, 40}, Shape{2, 3, 1}, Shape{70000}}) {
      const Tensor x = some_bins(shape, 11, dtype);
      for (const std::int64_t length : {0, 1, 5, 11, 40}) {
        const Tensor counts = bincount(x, {}, 0, length);
        EXPECT_EQ(counts.dtype(), DType::i64);
        EXPECT_EQ(counts.size(-1), length);
        EXPECT_EQ(doubles(counts), loop(x, {}, length)) << name(dtype) << to_string(shape) << length;
      }
    }
}

TEST_P(Bincount, AddsWeightsOfEveryDtype) {
  for (const Shape& shape : {Shape{50}, Shape{3, 40}, Shape{70000}}) {
    const Tensor x = some_bins(shape, 11, DType::i32);
    const Tensor whole = some_bins(shape, 9);
    for (const DType dtype :
         {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i64, DType::u64, DType::u8, DType::boolean}) {
      const Tensor weights = astype(is_floating(dtype) ? whole * 0.25 : whole, dtype);
      const Tensor sums = bincount(x, weights, 0, 9);
      EXPECT_EQ(sums.dtype(), is_floating(dtype)                          ? dtype
                              : dtype == DType::u64 || dtype == DType::u8 ? DType::u64
                                                                          : DType::i64);
      const Doubles have = doubles(sums), wanted = loop(x, weights, 9);
      const double unit = is_floating(dtype) ? finfo(dtype).eps : 0;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(have[i], wanted[i], unit * std::abs(wanted[i])) << name(dtype) << to_string(shape);
    }
  }
}

TEST_P(Bincount, IsWhatTheReferenceSays) {
  const Tensor x = some_bins({3, 40}, 11, DType::u64), weights = some_bins({3, 40}, 9) * 0.5;
  for (const std::vector<Tensor>& inputs :
       {std::vector{x}, std::vector{x, weights}, std::vector{x, astype(x, DType::i64)}}) {
    const Tensor sums = general_call<Op::bincount>({.length = {7}}, inputs, Location::current());
    Doubles wanted;
    for (const testing::Complex z : testing::reference(Op::bincount, inputs, type_of(sums), {7}))
      wanted.push_back(z.real());
    EXPECT_EQ(doubles(sums), wanted);
  }
}

TEST_P(Bincount, HasAsManyResultsAsTheLargestIntegerNeeds) {
  const Tensor x = tensor({1, 4, 1, 0});
  EXPECT_EQ(ints(bincount(x)), (Ints{1, 2, 0, 0, 1}));
  EXPECT_EQ(ints(x.bincount()), (Ints{1, 2, 0, 0, 1}));
  EXPECT_EQ(ints(bincount(x, {}, 3)), (Ints{1, 2, 0, 0, 1}));
  EXPECT_EQ(ints(bincount(x, {}, 7)), (Ints{1, 2, 0, 0, 1, 0, 0}));
  EXPECT_EQ(doubles(bincount(x, tensor({0.5, 1.5, 2.0, 8.0}))), (Doubles{8, 2.5, 0, 0, 1.5}));
  const Tensor none = zeros({0}, DType::i64);
  EXPECT_EQ(bincount(none).shape(), Shape{0});
  EXPECT_EQ(ints(bincount(none, {}, 2)), (Ints{0, 0}));
  EXPECT_EQ(ints(bincount(zeros({2, 0}, DType::u8), {}, 2)), (Ints{0, 0, 0, 0}));
}

TEST_P(Bincount, TakesAnyStrides) {
  const Tensor x = some_bins({40, 3}, 7), weights = some_bins({40, 3}, 5) * 0.5;
  const Tensor turned = transpose(x), of_it = transpose(weights);
  EXPECT_EQ(doubles(bincount(turned, of_it, 0, 7)), loop(turned, of_it, 7));
  EXPECT_EQ(doubles(bincount(turned[1].slice(0, kNone, kNone, -2), {}, 0, 7)),
            loop(copy(turned[1].slice(0, kNone, kNone, -2)), {}, 7));
  EXPECT_EQ(doubles(bincount(x + 1, weights + 1, 0, 9)), loop(x + 1, weights + 1, 9));
}

/// Parts are counted apart where a row is long: their sums have one order.
TEST_P(Bincount, GivesTheSameBitsWithAnyNumberOfThreads) {
  const std::int64_t count = 300000;
  const Tensor x = some_bins({count}, 1000), weights = sin(astype(arange(count), DType::f32)).sync();
  const int before = thread_count();
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3, 7}) {
    set_thread_count(threads);
    found.push_back(bincount(x, weights, 0, 1000).to_vector<float>());
    EXPECT_EQ(doubles(bincount(x, {}, 0, 1000)), loop(x, {}, 1000));
  }
  set_thread_count(before);
  for (const auto& f : found) EXPECT_EQ(f, found[0]);
}

TEST_P(Bincount, HasTheGradientOfItsWeights) {
  for (const std::int64_t length : {0, 3, 8}) {
    const Tensor x = some_bins({2, 12}, 6, DType::u8);
    const testing::Function f = [&](const testing::Inputs& in) { return bincount(x, in[0] * in[0], 0, length); };
    testing::check_gradients("bincount", f, {testing::random_f64({2, 12}, 0.5, 2, true, 3)});
  }
}

TEST_P(Bincount, IsOneCallForABatch) {
  const Tensor a = some_bins({10}, 6), b = (some_bins({10}, 5) + 1).sync(),
               w = testing::random_f64({10}, 1, 2, true, 1), v = testing::random_f64({10}, 1, 2, true, 2);
  const std::uint64_t before = stats().vmap_loops;
  const testing::Function count = [](const testing::Inputs& in) { return bincount(in[0], {}, 0, 6); };
  const testing::Function add = [](const testing::Inputs& in) { return bincount(in[0], in[1], 0, 6); };
  testing::check_vmap("counts", count, {{{a, b}, 0}}, 2);
  testing::check_vmap("both", add, {{{a, b}, 0}, {{w, v}, 0}}, 2);
  testing::check_vmap("weights", add, {{{a}, testing::kShared}, {{w, v}, 0}}, 2);
  testing::check_vmap("integers", add, {{{a, b}, 0}, {{w}, testing::kShared}}, 2);
  EXPECT_EQ(stats().vmap_loops, before);
}

TEST_P(Bincount, CompilesWithALength) {
  auto count = compile([](const Tensor& x, const Tensor& w) { return bincount(x, w, 0, 4) * 2; });
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(doubles(count(tensor({0, 3, 3}), tensor({1.0, 2.0, 3.0 + round}))), (Doubles{2, 0, 0, 10.0 + 2 * round}));
  if (GetParam() == Mode::eager) return;
  auto open = compile([](const Tensor& x) { return bincount(x); });
  EXPECT_NE(message<UnsupportedError>([&] {
              open(tensor({1, 2}));
            }).find("pass the number of elements as `length`"),
            std::string::npos);
}

TEST_P(Bincount, NamesTheLineOfAWrongCall) {
  EXPECT_EQ(message<ValueError>([] {
              bincount(tensor({3, -1, 2}), {}, 0, 4).sync();
            }),
            "FM1343 ValueError: bincount: a negative integer has no bin\n"
            "  x    i64[3]   element 1 is -1\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              bincount(tensor({-3, -1}), tensor({1.0f, 2.0f})).sync();
            }),
            "FM1343 ValueError: bincount: a negative integer has no bin\n"
            "  x       i64[2]   element 0 is -3\n  weights f32[2]\n  at      HERE");
  EXPECT_EQ(message<ShapeError>([] {
              bincount(tensor({1, 2}), tensor({1.0f}), 0, 4);
            }),
            "FM1011 ShapeError: bincount: weights must have one number per integer\n"
            "  x       i64[2]\n  weights f32[1]   should be [2]\n  at      HERE");
  EXPECT_EQ(message<DTypeError>([] {
              bincount(tensor({1.0f, 2.0f}));
            }).substr(0, 47),
            "FM1101 DTypeError: bincount: does not take f32\n");
  EXPECT_NE(message<DTypeError>([] {
              bincount(tensor({1, 2}), complex(ones({2}), ones({2})), 0, 2);
            }).find("FM1101"),
            std::string::npos);
  EXPECT_EQ(message<IndexError>([] { bincount(full({}, 3, DType::i64), {}, 0, 4); }).substr(0, 30),
            "FM1201 IndexError: bincount: a");
  EXPECT_NE(message<Error>([] { bincount(tensor({1}), {}, 0, -1); }), "no error");
  EXPECT_NE(message<Error>([] { bincount(full({1}, std::uint64_t{1} << 63, DType::u64)); }), "no error");
}

}  // namespace
}  // namespace fermata
