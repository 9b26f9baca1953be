// Gathers and scatters: values, layouts, dtypes, derivatives and errors, in both modes.
#include <gtest/gtest.h>

#include <limits>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

class Indexing : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Indexing, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Floats floats(const Tensor& x) { return x.astype(DType::f32).to_vector<float>(); }

constexpr DType kIntegerTypes[] = {DType::u8,  DType::i8,  DType::u16, DType::i16,
                                   DType::u32, DType::i32, DType::u64, DType::i64};

/// The same elements in memory laid out in other ways: backwards, transposed, every second one, and stretched in one
/// axis where that gives the same values.
std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<Tensor> all{x, flip(copy(flip(x))), transpose(copy(transpose(x)))};
  const Tensor wide = stack({x, full_like(x, 7)}, 2);
  all.push_back(select(wide, 2, 0));
  return all;
}

TEST_P(Indexing, GatherTakesOneElementForEachPosition) {
  const Tensor x = tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}});
  const Tensor index = tensor({{2, -3, 0, 2}, {1, 1, -1, 0}});
  for (const Tensor& a : layouts(x))
    for (const Tensor& i : layouts(index)) EXPECT_EQ(floats(gather(a, i, 1)), (Floats{3, 1, 1, 3, 5, 5, 6, 4}));
  EXPECT_EQ(floats(gather(x, tensor({{1, 0, -1}}), 0)), (Floats{4, 2, 6}));
  EXPECT_EQ(floats(gather(x, tensor({{1}, {-1}}), -1)), (Floats{2, 6}));
  // The index may be shorter along the other axes.
  EXPECT_EQ(floats(gather(x, tensor({{1, 0}}), 1)), (Floats{2, 1}));
  EXPECT_EQ(gather(x, zeros({2, 0}, DType::i32), 1).shape(), (Shape{2, 0}));
  EXPECT_EQ(gather(zeros({0, 3}), zeros({0, 3}, DType::i64), 0).shape(), (Shape{0, 3}));
}

TEST_P(Indexing, EveryDtypeIsGatheredAndScattered) {
  const Tensor index = tensor({2, 0, 2});
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    if (!kRealOrBoolean.has(t)) continue;
    const Tensor x = tensor({0, 1, 3}).astype(t), source = tensor({1, 0, 1}).astype(t);
    EXPECT_EQ(gather(x, index).astype(DType::i64).to_vector<std::int64_t>(),
              (t == DType::boolean ? Integers{1, 0, 1} : Integers{3, 0, 3}))
        << name(t);
    EXPECT_EQ(scatter(x, index, source).astype(DType::i64).to_vector<std::int64_t>(), (Integers{0, 1, 1})) << name(t);
    for (const DType positions : kIntegerTypes)
      EXPECT_EQ(gather(x, index.astype(positions)).dtype(), t) << name(positions);
  }
}

TEST_P(Indexing, TheLastOfSeveralStays) {
  const Tensor x = zeros({3}), index = tensor({1, 1, 0, 1, -1});
  EXPECT_EQ(floats(scatter(x, index, tensor({1.0f, 2.0f, 3.0f, 4.0f, 5.0f}))), (Floats{3, 4, 5}));
  EXPECT_EQ(floats(scatter(x, index, 8)), (Floats{8, 8, 8}));
  EXPECT_EQ(floats(x), (Floats{0, 0, 0}));
  // Sources may be longer than the index; the rest is not read.
  EXPECT_EQ(floats(scatter(x, tensor({2}), tensor({9.0f, 1.0f, 1.0f}))), (Floats{0, 0, 9}));
  const Tensor rows = scatter(zeros({2, 3}), tensor({{2, 0}}), tensor({{5.0f, 6.0f}}), 1);
  EXPECT_EQ(floats(rows), (Floats{6, 0, 5, 0, 0, 0}));
}

TEST_P(Indexing, ScattersCombineElements) {
  const Tensor x = tensor({10.0f, 20.0f, 30.0f}), index = tensor({0, 2, 0}), source = tensor({1.0f, 50.0f, 5.0f});
  using enum ScatterReduction;
  const auto reduced = [&](ScatterReduction r, bool self) {
    return floats(scatter_reduce(x, index, source, 0, r, self));
  };
  EXPECT_EQ(floats(scatter_add(x, index, source)), (Floats{16, 20, 80}));
  EXPECT_EQ(reduced(sum, true), (Floats{16, 20, 80}));
  EXPECT_EQ(reduced(sum, false), (Floats{6, 20, 50}));
  EXPECT_EQ(reduced(prod, true), (Floats{50, 20, 1500}));
  EXPECT_EQ(reduced(prod, false), (Floats{5, 20, 50}));
  EXPECT_EQ(reduced(mean, true), (Floats{16.0f / 3, 20, 40}));
  EXPECT_EQ(reduced(mean, false), (Floats{3, 20, 50}));
  EXPECT_EQ(reduced(amax, true), (Floats{10, 20, 50}));
  EXPECT_EQ(reduced(amax, false), (Floats{5, 20, 50}));
  EXPECT_EQ(reduced(amin, true), (Floats{1, 20, 30}));
  EXPECT_EQ(reduced(amin, false), (Floats{1, 20, 50}));
  EXPECT_TRUE(std::isnan(floats(scatter_reduce(x, index, tensor({std::nanf(""), 1.0f, 1.0f}), 0, amax))[0]));
  EXPECT_EQ(scatter_reduce(tensor({7}), tensor({0, 0}), tensor({-2, -1}), 0, mean).item<std::int64_t>(), 1);
  for (const DType t : kIntegerTypes) {
    const Tensor big = full({1}, 100, t), places = tensor({0, 0, 0});
    const Tensor wrapped = scatter_add(big, places, full({3}, 100, t));
    if (byte_size(t) > 1)
      EXPECT_EQ(wrapped.astype(DType::i64).item<std::int64_t>(), 400) << name(t);
    else
      EXPECT_EQ(wrapped.astype(DType::i64).item<std::int64_t>(), t == DType::u8 ? 144 : -112) << name(t);
  }
}

TEST_P(Indexing, HalvesAreAddedInFloats) {
  for (const DType t : {DType::f16, DType::bf16}) {
    // Each addition on its own would round to 2048, or 256.
    const Tensor sums = scatter_add(full({1}, t == DType::f16 ? 2048 : 256, t), zeros({64}, DType::i64), ones({64}, t));
    EXPECT_EQ(sums.item<float>(), t == DType::f16 ? 2112.0f : 320.0f);
  }
}

TEST_P(Indexing, LongLanesAndManyLanes) {
  // Enough to be split between threads, of which the result does not depend.
  const Tensor index = (iota({1 << 18}) * 7919) % 1000;
  const Tensor sums = scatter_add(zeros({1000}, DType::i64), index, ones({1 << 18}, DType::i64));
  EXPECT_EQ(sum(sums).item<std::int64_t>(), 1 << 18);
  EXPECT_EQ(min(sums).item<std::int64_t>(), 262);
  const Tensor wide = (iota({512, 512}) * 31 + iota({512, 512}, 1) * 17) % 512;
  const Tensor x = iota({512, 512}, 1);
  EXPECT_TRUE(all(gather(x, wide, 1) == wide).item<bool>());
  EXPECT_EQ(sum(scatter_add(zeros({512, 512}, DType::i64), wide, ones({512, 512}, DType::i64), 0)).item<std::int64_t>(),
            512 * 512);
}

TEST_P(Indexing, AlongAxis) {
  const Tensor x = tensor({{3.0f, 1.0f, 2.0f}, {6.0f, 5.0f, 4.0f}});
  EXPECT_EQ(floats(take_along_axis(x, tensor({{1, 2, 0}, {2, 1, 0}}))), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(floats(take_along_axis(x, tensor({{0}}), 1)), (Floats{3, 6}));  // broadcast over rows
  EXPECT_EQ(floats(take_along_axis(tensor({{1.0f, 2.0f}}), tensor({{1}, {0}, {1}}), 1)), (Floats{2, 1, 2}));
  EXPECT_EQ(floats(put_along_axis(x, tensor({{1}}), tensor(9.0f), 1)), (Floats{3, 9, 2, 6, 9, 4}));
  EXPECT_EQ(floats(index_copy(x, tensor({2, 0}), tensor({{7.0f, 8.0f}, {9.0f, 0.0f}}), 1)), (Floats{8, 1, 7, 0, 5, 9}));
  EXPECT_EQ(floats(index_fill(x, tensor({-1}), 0, 0)), (Floats{3, 1, 2, 0, 0, 0}));
}

TEST_P(Indexing, DerivativesOfBothOrders) {
  const Tensor index = tensor({{2, 0, 1, 2}, {1, 1, 2, 0}}), once = tensor({{2, 0}, {1, 2}});
  const Inputs x{random_f64({2, 3}, 0.5, 1.5, true, 1)};
  const Inputs both{random_f64({2, 3}, 0.5, 1.5, true, 1), random_f64({2, 4}, 0.5, 1.5, true, 2)};
  const auto scattered = [&](auto function) {
    return [=](const Inputs& in) { return function(square(in[0]), index, in[1] * in[1] * in[1], 1); };
  };
  check_both_orders(
      "gather", [&](const Inputs& in) { return square(gather(in[0], index, 1)); }, x);
  check_both_orders("scatter", scattered([](auto... a) { return scatter(a...); }), both);
  check_both_orders("scatter_add", scattered([](auto... a) { return scatter_add(a...); }), both);
  using enum ScatterReduction;
  for (const auto r : {sum, prod, mean, amax, amin})
    for (const bool self : {true, false})
      check_both_orders("scatter_reduce " + std::to_string(static_cast<int>(r)) + (self ? " with self" : ""),
                        scattered([=](const Tensor& a, const Tensor& i, const Tensor& s, int axis) {
                          return scatter_reduce(a, i, s, axis, r, self);
                        }),
                        both);
  check_both_orders(
      "index_copy",
      [&](const Inputs& in) {
        return square(index_copy(in[0], tensor({1, 0}), in[0] * 2, 0));
      },
      x);
}

TEST_P(Indexing, ProductsWithZerosHaveDerivatives) {
  const Tensor index = tensor({0, 0, 1});
  for (const std::vector<double>& row : {std::vector<double>{0, 2, 3}, {0, 0, 3}, {2, 3, 0}})
    check_gradients("scatter_reduce prod",
                    [&](const Inputs& in) { return scatter_reduce(in[1], index, in[0], 0, ScatterReduction::prod); },
                    {tensor(row), tensor({1.5, -2.0}, DType::f64)});
}

TEST_P(Indexing, ErrorsNameTheOperands) {
  const Tensor x = zeros({2, 3}), index = zeros({2, 3}, DType::i64);
  EXPECT_EQ(message<Error>([&] {
              gather(x, zeros({3, 3}, DType::i64), 1);
            }),
            "FM1070 ShapeError: gather: index must have the rank of x and be no longer than x, except along axis 1\n"
            "  x     f32[2, 3]\n  index i64[3, 3]\n  at    HERE");
  EXPECT_EQ(
      message<Error>([&] {
        gather(x, zeros({2, 3}), 1);
      }),
      "FM1103 DTypeError: gather: positions must be integers, not f32\n  x     f32[2, 3]\n  index f32[2, 3]\n  at    HERE");
  EXPECT_EQ(message<Error>([&] {
              gather(zeros({2, 0}), zeros({2, 1}, DType::i64), 1);
            }),
            "FM1009 ShapeError: gather: no elements\n  x     f32[2, 0]   axis 1 is 0\n  index i64[2, 1]\n  at    HERE");
  EXPECT_EQ(message<Error>([&] {
              scatter(x, index, zeros({2, 2}));
            }),
            "FM1011 ShapeError: scatter: the shape of source does not match\n"
            "  x      f32[2, 3]\n  index  i64[2, 3]\n  source f32[2, 2]   should be [2, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { scatter_add(x.astype(DType::boolean), index, index); }),
            "FM1101 DTypeError: scatter_add: does not take bool\n"
            "  x      bool[2, 3]\n  index  i64[2, 3]\n  source bool[2, 3]\n  at     HERE\n"
            "  hint   convert it first, for example to i32");
  EXPECT_EQ(message<Error>([&] {
              take_along_axis(x, zeros({3, 1}, DType::i64));
            }),
            "FM1001 ShapeError: take_along_axis: shapes do not broadcast along the axes other than 1\n"
            "  x     f32[2, 3]\n  index i64[3, 1]\n  at    HERE");
  EXPECT_EQ(
      message<Error>([&] { index_copy(x, index, x); }),
      "FM1015 ShapeError: index_copy: positions must be a vector\n  x     f32[2, 3]\n  index i64[2, 3]\n  at    HERE");
  EXPECT_EQ(message<Error>([&] { index_copy(x, tensor({1}), x); }),
            "FM1011 ShapeError: index_copy: the shape of source does not match\n"
            "  x      f32[2, 3]\n  index  i64[1]\n  source f32[2, 3]   should be [1, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] {
              gather(x, tensor({{0, 3, 0}}), 1).sync();
            }),
            "FM1204 IndexError: gather: position 3 leaves axis 1 of size 3\n"
            "  x     f32[2, 3]   axis 1 is 3\n  index i64[1, 3]   element 1 is 3\n  at    HERE");
  EXPECT_EQ(
      message<Error>([&] {
        scatter(x, tensor({{0, -4, 0}}), x, 1).sync();
      }),
      "FM1204 IndexError: scatter: position -4 leaves axis 1 of size 3\n"
      "  x      f32[2, 3]   axis 1 is 3\n  index  i64[1, 3]   element 1 is -4\n  source f32[1, 3]\n  at     HERE");
  EXPECT_EQ(floats(gather(x + 1, index)), (Floats{1, 1, 1, 1, 1, 1}));  // the engine still works
}

}  // namespace
}  // namespace fermata
