// Views: the elements they show, and that every alias sees every write, in both modes.
#include "fermata/views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <thread>

#include "fermata/fermata.h"
#include "runtime/allocator.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

class Views : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Views, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Ints = std::vector<int>;
Ints ints(const Tensor& x) { return x.to_vector<int>(); }

TEST_P(Views, ReshapeAndAxes) {
  const Tensor x = arange(6);
  EXPECT_EQ(reshape(x, {2, 3}).shape(), Shape({2, 3}));
  EXPECT_EQ(reshape(x, {3, -1}).shape(), Shape({3, 2}));
  EXPECT_EQ(x.reshape({2, 3}).reshape({-1}).shape(), Shape({6}));
  EXPECT_EQ(reshape(x, -1).shape(), Shape({6}));
  const Tensor m = x.reshape({1, 2, 3});
  EXPECT_EQ(ints(permute(m, {2, 0, 1})), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(permute(m, {-1, 0, 1}).shape(), Shape({3, 1, 2}));
  EXPECT_EQ(transpose(m).shape(), Shape({1, 3, 2}));
  EXPECT_EQ(transpose(m, 0, 1).shape(), Shape({2, 1, 3}));
  EXPECT_EQ(ints(m.mT()), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(expand_dims(x, 0).shape(), Shape({1, 6}));
  EXPECT_EQ(expand_dims(m, {0, -1}).shape(), Shape({1, 1, 2, 3, 1}));
  EXPECT_EQ(squeeze(m).shape(), Shape({2, 3}));
  EXPECT_EQ(squeeze(expand_dims(m, 1), {0, 1}).shape(), Shape({2, 3}));
  EXPECT_EQ(squeeze(expand_dims(m, 1), -3).shape(), Shape({1, 2, 3}));
}

/// Kernels join axes along which all operands step evenly, and vectorize along other axes where the last one has one
/// element. One function meets all of these, so plans are used again for sizes that differ.
TEST(ViewsInKernels, OfAnyExtent) {
  const ModeGuard mode(Mode::compiled);
  std::mt19937_64 random(testing::test_seed(12));
  const auto below = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random); };
  for (int round = 0; round < 60; ++round) {
    std::array<std::int64_t, 3> sizes, start, stop, step;
    for (std::size_t d = 0; d < 3; ++d) {
      sizes[d] = 1 + below(6);
      start[d] = below(3) == 0 ? 0 : below(sizes[d]);
      stop[d] = below(3) == 0 ? sizes[d] : start[d] + 1 + below(sizes[d] - start[d]);
      step[d] = 1 + below(2);
    }
    const auto flipped = static_cast<std::int64_t>(below(4)), moved = below(3);
    const auto view = [&](Tensor x) {
      for (std::int64_t d = 0; d < 3; ++d) {
        const auto i = static_cast<std::size_t>(d);
        x = x.slice(d, start[i], stop[i], step[i]);
        if (d == flipped) x = flip(x, d);
      }
      return moveaxis(x, moved, 2);
    };
    const auto f = [&](const Tensor& x, const Tensor& y) {
      return std::vector{view(x) * 2 + view(y), astype(view(x * y), DType::u8), view(x + 1) - sum(view(y), {0}, true),
                         view(x) + iota(view(x).shape(), 2)};
    };
    const Tensor x = rand({sizes[0], sizes[1], sizes[2]}).sync() * 300;
    const Tensor y = arange(x.numel()).reshape({sizes[0], sizes[1], sizes[2]});
    sync({x, y});
    std::vector<Tensor> want;
    {
      const ModeGuard eager(Mode::eager);
      want = f(x, y);
    }
    std::vector<Tensor> recorded = f(x, y), replayed = compile(f)(x, y);
    sync(recorded), sync(replayed);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(all(recorded[i] == want[i]).item<bool>()) << "round " << round << ", result " << i;
      EXPECT_TRUE(all(replayed[i] == want[i]).item<bool>()) << "round " << round << ", result " << i;
    }
    // Sums of a view add in one order in both modes.
    for (const std::vector<std::int64_t>& axes :
         std::vector<std::vector<std::int64_t>>{{}, {0}, {2}, {0, 1}, {1, 2}, {0, 2}}) {
      const auto total = [&](const Tensor& t) { return sum(view(t), axes); };
      Tensor wanted;
      {
        const ModeGuard eager(Mode::eager);
        wanted = total(x);
      }
      EXPECT_TRUE(all(compile(total)(x) == wanted).item<bool>()) << "round " << round << ", view " << view(x).shape();
    }
  }
}

/// A result that is a reshaped value gets the buffer of the value. If that is a result, too, they are views of it.
TEST(ViewsInKernels, ReshapedResults) {
  const ModeGuard mode(Mode::compiled);
  const Tensor x = arange(6).reshape({2, 3}).sync();
  const auto steps = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = text.find("\nstep "); at != text.npos; at = text.find("\nstep ", at + 1)) ++count;
    return count;
  };
  const auto made = [&](auto&& f) {
    const Tensor y = f();
    return steps(explain(y));
  };
  EXPECT_EQ(made([&] { return tile(x, {2, 2}); }), 1u);
  EXPECT_EQ(made([&] { return flatten(broadcast_to(x, {4, 2, 3})); }), 1u);
  const auto f = [](const Tensor& t) {
    const Tensor y = t + 1;
    return std::tuple{y.reshape({3, 2}), expand_dims(y, 0), y, squeeze(expand_dims(sum(y), 0), 0)};
  };
  const auto compiled = compile(f);
  for (int round = 0; round < 3; ++round) {
    const auto [a, b, c, d] = compiled(x);
    EXPECT_EQ(a.shape(), Shape({3, 2}));
    EXPECT_EQ(b.shape(), Shape({1, 2, 3}));
    EXPECT_EQ(d.shape(), Shape());
    a.assign(zeros_like(a));
    for (const Tensor& t : {b, c}) EXPECT_EQ(ints(t), (Ints{0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(d.item<int>(), 21);
  }
  EXPECT_EQ(ints(tile(x, {1, 2})), (Ints{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  for (int round = 0; round < 3; ++round) {
    const Tensor y = x + round, z = y.reshape({6}), w = y.reshape({3, 2}), last = (y * 2).reshape({3, 2});
    sync({y, z, w, last});
    EXPECT_EQ(ints(last), ints(y * 2));
    EXPECT_EQ(w.shape(), Shape({3, 2}));
    z.assign(zeros_like(z));
    EXPECT_EQ(ints(y), Ints(6, 0));
    EXPECT_EQ(ints(w), Ints(6, 0));
    EXPECT_EQ(ints(last)[5], 2 * (5 + round));
  }
}

/// Slices of permutes of slices: the value of a view is derived again after a write to its base, in a few steps.
TEST_P(Views, ChainsFollowTheirBase) {
  std::mt19937_64 random(testing::test_seed(11));
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 40; ++round) {
    Tensor base = copy(reshape(arange(7 * 6 * 5, DType::f64), {7, 6, 5}));
    std::vector<std::function<Tensor(const Tensor&)>> steps;
    const auto follow = [&](Tensor x) {
      for (const auto& step : steps) x = step(x);
      return x;
    };
    Tensor view = base;
    for (int i = 0; i < 12; ++i) {
      if (random() % 2 == 0) {
        std::vector<std::int64_t> order{0, 1, 2};
        std::ranges::shuffle(order, random);
        steps.push_back([order](const Tensor& x) { return permute(x, order); });
      } else {
        const std::int64_t axis = below(3), size = view.shape()[static_cast<std::size_t>(axis)];
        const std::int64_t start = size == 0 ? 0 : below(std::min<std::int64_t>(size, 2)), step = 1 + below(2);
        const bool backwards = random() % 3 == 0;
        steps.push_back([=](const Tensor& x) {
          return backwards ? flip(x, axis) : slice(x, axis, start, std::int64_t{1} << 40, step);
        });
      }
      view = steps.back()(view);
    }
    EXPECT_LE(view.impl()->view->steps.size(), 2u);
    EXPECT_EQ(view.to_vector<double>(), follow(copy(base)).to_vector<double>());
    base *= 3;
    EXPECT_EQ(view.to_vector<double>(), follow(copy(base)).to_vector<double>());
    const Tensor x = full({7, 6, 5}, 2, DType::f64).requires_grad_();
    const Tensor gradient = grad([&](const Tensor& t) { return sum(follow(t) * follow(base)); })(x);
    Tensor marks = zeros({7, 6, 5}, DType::f64);
    Tensor part = follow(marks);
    part += 1;
    EXPECT_EQ(gradient.to_vector<double>(), (marks * base).to_vector<double>());
  }
}

TEST_P(Views, LongChainsTakeNoLongerForEachStep) {
  Tensor x = ones({4, 6});
  for (int i = 0; i < 20'000; ++i) x = i % 2 == 0 ? permute(x, {1, 0}) : slice(x, 0, 0, 100);
  EXPECT_LE(x.impl()->view->steps.size(), 2u);
  EXPECT_EQ(sum(x).item<int>(), 24);
}

TEST_P(Views, BroadcastAndFlip) {
  const Tensor x = tensor({{1}, {2}});
  EXPECT_EQ(ints(broadcast_to(x, {2, 3})), (Ints{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(broadcast_to(x, {4, 2, 3}).shape(), Shape({4, 2, 3}));
  const Tensor m = arange(6).reshape({2, 3});
  EXPECT_EQ(ints(flip(m)), (Ints{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(ints(flip(m, 0)), (Ints{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(ints(flip(m, {-1})), (Ints{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(flip(zeros({0, 2})).shape(), Shape({0, 2}));
}

TEST_P(Views, SlicesClampLikePython) {
  const Tensor x = arange(5);
  EXPECT_EQ(ints(slice(x, 0, 1, 3)), (Ints{1, 2}));
  EXPECT_EQ(ints(slice(x, 0, -2, kNone)), (Ints{3, 4}));
  EXPECT_EQ(ints(slice(x, 0, 0, 100, 2)), (Ints{0, 2, 4}));
  EXPECT_EQ(ints(slice(x, 0, -100, -3)), (Ints{0, 1}));
  EXPECT_EQ(ints(slice(x, 0, 3, 1)), (Ints{}));
  EXPECT_EQ(ints(slice(x, 0, 100, 200)), (Ints{}));
  EXPECT_EQ(ints(slice(x, 0, -1, kNone, -1)), (Ints{4, 3, 2, 1, 0}));
  EXPECT_EQ(ints(slice(x, 0, 3, 0, -2)), (Ints{3, 1}));
  EXPECT_EQ(ints(slice(x, 0, 100, -100, -3)), (Ints{4, 1}));
  EXPECT_EQ(ints(slice(x, 0, 2, kNone, INT64_MAX)), (Ints{2}));
  EXPECT_EQ(ints(slice(x, 0, 2, kNone, INT64_MIN)), (Ints{2}));
  EXPECT_EQ(ints(x.slice(0, 1, 4).slice(0, 1, 2)), (Ints{2}));
  EXPECT_EQ(ints(slice(arange(0), 0, 0, kNone)), (Ints{}));
  EXPECT_EQ(ints(slice(arange(0), 0, -1, kNone, -1)), (Ints{}));
}

TEST_P(Views, PositionsAndParts) {
  const Tensor m = arange(6).reshape({2, 3});
  EXPECT_EQ(ints(m[1]), (Ints{3, 4, 5}));
  EXPECT_EQ(m[-1][2].item<int>(), 5);
  EXPECT_EQ(m[0][0].shape(), Shape({}));
  EXPECT_EQ(ints(select(m, 1, 1)), (Ints{1, 4}));
  const std::vector<Tensor> halves = split(m, 3, 1);
  ASSERT_EQ(halves.size(), 3u);
  EXPECT_EQ(ints(halves[2]), (Ints{2, 5}));
  const std::vector<Tensor> parts = split(m, {1, 0, 2}, -1);
  EXPECT_EQ(parts[1].shape(), Shape({2, 0}));
  EXPECT_EQ(ints(parts[2]), (Ints{1, 2, 4, 5}));
}

TEST_P(Views, WritesThroughAViewReachTheBaseAndOtherViews) {
  const Tensor x = zeros({2, 3}, DType::i32);
  const Tensor row = x[1], column = select(x, 1, 0), flat = x.reshape({6});
  row.assign(7);
  EXPECT_EQ(ints(x), (Ints{0, 0, 0, 7, 7, 7}));
  EXPECT_EQ(ints(column), (Ints{0, 7}));
  column.assign(tensor({1, 2}));
  EXPECT_EQ(ints(flat), (Ints{1, 0, 0, 2, 7, 7}));
  EXPECT_EQ(ints(row), (Ints{2, 7, 7}));
  flip(flat).assign(arange(6));
  EXPECT_EQ(ints(x), (Ints{5, 4, 3, 2, 1, 0}));
  x.mT()[1].assign(9);
  EXPECT_EQ(ints(x), (Ints{5, 9, 3, 2, 9, 0}));
  EXPECT_EQ(ints(row), (Ints{2, 9, 0}));
}

TEST_P(Views, WritesToTheBaseAreSeenThroughViewsOfViews) {
  Tensor x = arange(12).reshape({3, 4});  // itself a view
  const Tensor inner = x.slice(0, 1, 3).mT().slice(0, 0, 4, 2);
  EXPECT_EQ(ints(inner), (Ints{4, 8, 6, 10}));
  x += 100;
  EXPECT_EQ(ints(inner), (Ints{104, 108, 106, 110}));
  x[2] *= 2;
  EXPECT_EQ(ints(inner), (Ints{104, 216, 106, 220}));
  slice(inner, 0, 0, 1) -= 4;
  EXPECT_EQ(ints(x[1]), (Ints{100, 105, 106, 107}));
  EXPECT_EQ(ints(x[2]), (Ints{212, 218, 220, 222}));
}

TEST_P(Views, CopiesOfAHandleAreTheSameTensor) {
  Tensor x = zeros({2});
  const Tensor y = x;
  x += 1;
  EXPECT_EQ(ints(y), (Ints{1, 1}));
  EXPECT_EQ(x.version(), 1u);
}

TEST_P(Views, ValuesReadBeforeAWriteStay) {
  Tensor x = arange(3);
  const Tensor before = x + 0, view_before = x[1] * 1;
  x += 10;
  x[1].assign(0);
  EXPECT_EQ(ints(before), (Ints{0, 1, 2}));
  EXPECT_EQ(view_before.item<int>(), 1);
  EXPECT_EQ(ints(x), (Ints{10, 0, 12}));
}

TEST_P(Views, WritesThroughManyViewsKeepOneBuffer) {
  constexpr std::int64_t kRows = 60, kColumns = 16384;
  const Tensor x = zeros({kRows, kColumns}).sync();
  const std::size_t bytes = static_cast<std::size_t>(kRows * kColumns) * sizeof(float);
  std::vector<Tensor> rows;
  for (std::int64_t i = 0; i < kRows; ++i) rows.push_back(x[i]);
  reset_peak_memory();
  const std::size_t before = memory_stats().peak_bytes;
  for (std::int64_t i = 0; i < kRows; ++i) rows[static_cast<std::size_t>(i)] += i;
  for (std::int64_t i = 0; i < kRows; ++i) x[i] += 1;
  x.sync();
  EXPECT_LE(memory_stats().peak_bytes - before, 8 * bytes);  // not one of them for each view
  for (std::int64_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(sum(rows[static_cast<std::size_t>(i)]).item<double>(), static_cast<double>((i + 1) * kColumns));
    EXPECT_EQ(sum(x[i]).item<double>(), static_cast<double>((i + 1) * kColumns));
  }
}

TEST_P(Views, WhatSharesABufferKeepsItsValueWhenAViewIsWritten) {
  Tensor x = zeros({4, 3}).sync();
  const Tensor detached = x.detach(), same = reshape(x.detach(), {12}), other = x[1].detach();
  Tensor leaf = full({3}, 2, DType::f32).sync();
  leaf.requires_grad(true);
  const Tensor product = sum(leaf * (x[0] + 0) * x[0]);  // saves a row
  Tensor late;
  {
    const ModeGuard compiled(Mode::compiled);
    late = x + 1;  // pending while x is written
  }
  x[0] += 5;
  x[1].assign(7);
  x[2] += x[1];
  x[3].assign(x[2] + x[0]);
  EXPECT_EQ(ints(x), (Ints{5, 5, 5, 7, 7, 7, 7, 7, 7, 12, 12, 12}));
  EXPECT_EQ(ints(detached), Ints(12, 0));
  EXPECT_EQ(ints(same), Ints(12, 0));
  EXPECT_EQ(ints(other), Ints(3, 0));
  EXPECT_EQ(ints(late), Ints(12, 1));
  product.backward();
  EXPECT_EQ(ints(leaf.grad()), Ints(3, 0));
}

TEST_P(Views, SlicesOfAVastViewTakeNoMemoryForTheRest) {
  constexpr std::int64_t kVast = std::int64_t{1} << 40;
  const Tensor three = full({1}, 3, DType::f32) * 1, x = broadcast_to(three, {kVast});
  EXPECT_EQ(ints(x.slice(0, 5, 8)), (Ints{3, 3, 3}));
  EXPECT_EQ(ints(x.slice(0, 7, 9) + three), (Ints{6, 6}));
  EXPECT_EQ(x[kVast - 1].item<int>(), 3);
}

TEST_P(Views, OfVastViewsTakeNoMemoryForTheRest) {
  constexpr std::int64_t kLong = std::int64_t{1} << 38, kSide = std::int64_t{1} << 19;
  const Tensor column = arange(3).reshape({3, 1}) * 1, x = broadcast_to(column, {3, kLong});
  EXPECT_EQ(ints(x.T().slice(0, 5, 7)), (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ints(x.reshape({3, kSide, kSide}).slice(1, 7, 8).slice(2, 0, 2)), (Ints{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(ints(x.T().reshape({kSide, kSide, 3})[kSide - 1][5]), (Ints{0, 1, 2}));
  EXPECT_EQ(ints(x.flip({0}).reshape({3, kSide, kSide}).slice(0, 0, 2)[1][3].slice(0, 0, 2)), (Ints{1, 1}));
  EXPECT_EQ(ints(x.expand_dims({1}).slice(0, 0, 3, 2).reshape({2, kSide, kSide}).permute({2, 0, 1})[4].select(1, 6)),
            (Ints{0, 2}));
  const Tensor all = broadcast_to(column.reshape({3}), {kSide, kSide, 3});
  EXPECT_EQ(ints(all.reshape({kLong, 3}).slice(0, 1, 2) + 1), (Ints{1, 2, 3}));
}

TEST_P(Views, ThatWouldNeedTerabytesAreTheSameErrorInBothModes) {
  constexpr std::int64_t kLong = std::int64_t{1} << 38;
  const Tensor x = broadcast_to(arange(3).reshape({3, 1}) * 1, {3, kLong});
  try {
    x.reshape({3 * kLong}).slice(0, 0, 2).sync();  // no strides can express it
    FAIL() << "it was written out";
  } catch (const OutOfMemoryError& error) { EXPECT_EQ(error.code(), 3001); }
}

TEST_P(Views, RowsWrittenInTurnAreWhatTheNextOnesRead) {
  constexpr int kCount = 40;
  Tensor x = ones({kCount, 5}, DType::f64);  // the rows form a chain of updates, which stays in one place
  const Tensor at_first = x.detach() * 1;
  for (int i = 1; i < kCount; ++i) {
    Tensor row = x[i];
    row += x[i - 1];
    if (i % 7 == 0) x[i].slice(0, 1, 3).assign(x[i].slice(0, 0, 2) * 2);
  }
  std::vector<double> wanted(kCount * 5, 1);
  for (std::size_t i = 1; i < kCount; ++i) {
    double* const row = &wanted[i * 5];
    for (std::size_t k = 0; k < 5; ++k) row[k] += wanted[(i - 1) * 5 + k];
    if (i % 7 == 0) {
      const double first = row[0], second = row[1];
      row[1] = 2 * first, row[2] = 2 * second;
    }
  }
  EXPECT_EQ(x.to_vector<double>(), wanted);
  EXPECT_EQ(at_first.to_vector<double>(), std::vector<double>(kCount * 5, 1));
}

TEST_P(Views, OverlappingAssignmentsReadTheOldValues) {
  const Tensor x = arange(5);
  x.slice(0, 1, 5).assign(x.slice(0, 0, 4));
  EXPECT_EQ(ints(x), (Ints{0, 0, 1, 2, 3}));
  const Tensor square_matrix = arange(4).reshape({2, 2});
  square_matrix.assign(square_matrix.mT());
  EXPECT_EQ(ints(square_matrix), (Ints{0, 2, 1, 3}));
}

TEST_P(Views, InPlaceWritesKeepTheDtype) {
  Tensor x = ones({2}, DType::i32);
  x += tensor({1, 2});  // i64
  EXPECT_EQ(x.dtype(), DType::i32);
  Tensor half = ones({2}, DType::f16);
  half *= tensor({3.0, 4.0});
  EXPECT_EQ(half.dtype(), DType::f16);
  half.assign(tensor({5, 6}));
  EXPECT_EQ(ints(half), (Ints{5, 6}));
  half /= 2;
  EXPECT_EQ(half.to_vector<float>(), (std::vector<float>{2.5, 3}));
  half -= 1;
  x.assign(tensor({{7}, {8}})[0]);
  EXPECT_EQ(ints(x), (Ints{7, 7}));
}

TEST_P(Views, AssignmentCopies) {
  Tensor x = ones({2}), y = zeros({2});
  x.assign(y);
  y += 5;
  EXPECT_EQ(ints(x), (Ints{0, 0}));
  y.data<float>();
  x.assign(y);
  y.data<float>()[0] = 9;
  EXPECT_EQ(ints(x), (Ints{5, 5}));
}

TEST_P(Views, ReshapeWithoutStridesCopies) {
  const Tensor x = arange(4).reshape({2, 2});
  const Tensor flat = x.mT().reshape({4});
  EXPECT_EQ(ints(flat), (Ints{0, 2, 1, 3}));
  flat.assign(7);
  EXPECT_EQ(ints(x), (Ints{0, 1, 2, 3}));
}

TEST_P(Views, AnAddressStaysThatOfItsTensor) {
  Tensor x = arange(4).astype(DType::f32) + 0;
  const Tensor view = x.reshape({2, 2})[1];
  float* const address = x.data<float>();
  EXPECT_EQ(address[3], 3);
  address[2] = 20;
  EXPECT_EQ(ints(view), (Ints{20, 3}));
  const Tensor earlier = x * 1;
  x += 1;
  EXPECT_EQ(address[2], 21);
  EXPECT_EQ(address, x.data<float>());
  EXPECT_EQ(ints(earlier), (Ints{0, 1, 20, 3}));
  view.assign(0);
  EXPECT_EQ(address[3], 0);
  EXPECT_EQ(view.data<float>(), address + 2);
}

TEST_P(Views, WhatWasRecordedKeepsItsValueWhenTheAddressIsTaken) {
  const Tensor x = zeros({2});
  float* const address = x.data<float>();
  const Tensor before = x + 1, view = x.reshape({2, 1});
  EXPECT_EQ(x.data<float>(), address);
  address[0] = 5;
  EXPECT_EQ(ints(before), (Ints{1, 1}));
  EXPECT_EQ(ints(x + 1), (Ints{6, 1}));
  EXPECT_EQ(ints(view), (Ints{5, 0}));
}

TEST_P(Views, WhatWasRecordedOfViewsKeepsItsValueWhenATensorWithAnAddressIsWritten) {
  Tensor older = arange(4).astype(DType::f32) + 0;
  const Tensor older_view = older.slice(0, 1);
  for (const bool through_view : {false, true}) {
    Tensor x = arange(4).astype(DType::f32) + 0;
    float* const address = x.data<float>();
    const Tensor view = x.slice(0, 1), backwards = flip(x, 0);
    const Tensor part = view * 2, joined = concat({x.slice(0, 2), x.slice(0, 0, 2)}, 0), one = x[3] + 0;
    const Tensor mapped = vmap([](const Tensor& row) { return row * 10; })(x.reshape({2, 2}));
    const Tensor again = reshape(backwards, {2, 2}).T() * 1;
    (through_view ? view : x).assign(7);
    EXPECT_EQ(ints(part), (Ints{2, 4, 6}));
    EXPECT_EQ(ints(joined), (Ints{2, 3, 0, 1}));
    EXPECT_EQ(ints(one), (Ints{3}));
    EXPECT_EQ(ints(mapped), (Ints{0, 10, 20, 30}));
    EXPECT_EQ(ints(again), (Ints{3, 1, 2, 0}));
    EXPECT_EQ(ints(view), (Ints{7, 7, 7}));
    EXPECT_EQ(address[3], 7);
    EXPECT_EQ(x.data<float>(), address);
    const Tensor then = view + 1;  // and so for later writes
    x += 1;
    EXPECT_EQ(ints(then), (Ints{8, 8, 8}));
    EXPECT_EQ(ints(view), (Ints{8, 8, 8}));
    EXPECT_EQ(address[3], 8);
  }
  older.data<float>()[3] = 30;
  const Tensor part = older_view * 2;
  older_view.assign(0);
  EXPECT_EQ(ints(part), (Ints{2, 4, 60}));
}

TEST_P(Views, GradientsOfViewsKeepWhatTheyNeedWhenATensorWithAnAddressIsWritten) {
  Tensor x = arange(4).astype(DType::f32) + 0;
  x.data<float>();
  x.requires_grad(true);
  const Tensor part = x.slice(0, 1), y = sum(part * part);
  no_grad([&] { x += 1; });
  y.backward();
  EXPECT_EQ(ints(x.grad()), (Ints{0, 2, 4, 6}));
}

TEST_P(Views, HandingOutAnAddressSharesWithNobody) {
  const Tensor x = arange(3), same = x.detach();
  x.data<std::int64_t>()[0] = 50;
  EXPECT_EQ(ints(same), (Ints{0, 1, 2}));
  EXPECT_EQ(ints(x), (Ints{50, 1, 2}));
}

TEST_P(Views, ABaseLivesAsLongAsItsViews) {
  Tensor view;
  {
    const Tensor x = arange(6) * 1;
    view = x.slice(0, 2, 4);
  }
  view += 1;
  EXPECT_EQ(ints(view), (Ints{3, 4}));
}

TEST_P(Views, ThreadsMayReadOneViewAtOnce) {
  Tensor x = zeros({64});
  const Tensor view = x.slice(0, 8, 16);
  for (int round = 1; round <= 20; ++round) {
    x += 1;
    x.sync();
    std::array<int, 4> seen{};
    std::vector<std::thread> threads;
    for (int& s : seen)
      threads.emplace_back([&] {
        const ModeGuard mode(GetParam());
        s = view.to_vector<int>()[7];
      });
    for (std::thread& t : threads) t.join();
    for (const int s : seen) EXPECT_EQ(s, round);
  }
}

TEST_P(Views, WritesInALoop) {
  const Tensor x = zeros({16}, DType::i64);
  for (int i = 0; i < 16; ++i) x[i].assign(i * i);
  EXPECT_EQ(x[15].item<int>(), 225);
  EXPECT_EQ(sum(x).item<int>(), 1240);
}

}  // namespace
}  // namespace fermata
