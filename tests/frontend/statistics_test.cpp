// Statistics beyond the rows of the coverage table: what empty masks and equal elements give, sizes that the data
// decide, and that a mask costs no step of its own.
#include "fermata/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "dispatch/backend.h"
#include "fermata/fermata.h"

namespace fermata {
namespace {

class Statistics : public testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Statistics, testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

constexpr double kInfinity = INFINITY, kNaN = NAN;
using Integers = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

TEST_P(Statistics, a_mask_that_takes_nothing) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}}, DType::f64), none = zeros({2, 1}, DType::boolean);
  EXPECT_EQ(sum(x, 1, false, none).to_vector<double>(), (Doubles{0, 0}));
  EXPECT_EQ(prod(x, 1, false, none).to_vector<double>(), (Doubles{1, 1}));
  EXPECT_EQ(max(x, 1, false, none).to_vector<double>(), (Doubles{-kInfinity, -kInfinity}));
  EXPECT_EQ(min(astype(x, DType::u8), 1, false, none).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 255}));
  EXPECT_EQ(max(astype(x, DType::i8), 1, false, none).to_vector<std::int8_t>(), (std::vector<std::int8_t>{-128, -128}));
  EXPECT_TRUE(all(x, {}, false, none).item<bool>());
  EXPECT_FALSE(any(x, {}, false, none).item<bool>());
  EXPECT_EQ(argmax(x, 1, false, none).to_vector<std::int64_t>(), (Integers{0, 0}));
  EXPECT_TRUE(std::isnan(mean(x, {}, false, none).item<double>()));
  EXPECT_EQ(logsumexp(x, {}, false, none).item<double>(), -kInfinity);
  EXPECT_EQ(count_nonzero(x, {}, false, none).item<std::int64_t>(), 0);
}

TEST_P(Statistics, positions_of_masked_extremes_are_of_elements_that_are_taken) {
  const Tensor x = tensor({-kInfinity, 3.0, -kInfinity, kNaN}, DType::f64);
  const auto taken = [](std::initializer_list<bool> mask) { return tensor(mask); };
  EXPECT_EQ(argmax(x, 0, false, taken({false, false, true, false})).item<std::int64_t>(), 2);
  EXPECT_EQ(argmax(x, 0, false, taken({false, true, true, true})).item<std::int64_t>(), 3);
  EXPECT_EQ(argmin(x, 0, false, taken({false, true, false, false})).item<std::int64_t>(), 1);
  const Tensor integers = tensor({INT64_MIN, INT64_MIN}, DType::i64);
  EXPECT_EQ(argmax(integers, 0, false, taken({false, true})).item<std::int64_t>(), 1);
}

TEST_P(Statistics, masks_keep_nan_out_of_values_and_gradients) {
  Tensor x = tensor({1.0, kNaN, 3.0}, DType::f64);
  x.requires_grad(true);
  const Tensor m = mean(x, {}, false, !isnan(x)) + var(x, {}, false, 0, !isnan(x)) + logsumexp(x, {}, false, !isnan(x));
  EXPECT_NEAR(m.item<double>(), 2 + 1 + std::log(std::exp(1) + std::exp(3)), 1e-14);
  m.backward();
  const double share = 1 / (1 + std::exp(-2.0));
  const Doubles g = x.grad().to_vector<double>();
  EXPECT_NEAR(g[0], 0.5 - 1 + (1 - share), 1e-14);
  EXPECT_EQ(g[1], 0);
  EXPECT_NEAR(g[2], 0.5 + 1 + share, 1e-14);
}

TEST(StatisticsFusion, a_mask_is_part_of_the_kernel_of_the_reduction) {
  if (std::string why; !backend(BackendKey::cpu)->can_compile(&why)) GTEST_SKIP() << why;
  const Tensor x = randn({64, 64}).sync();
  const Tensor y = sum(exp(x), 1, false, x > 0);
  const std::string text = explain(y);
  EXPECT_NE(text.find("step 0: kernel greater_exp_where_sum"), std::string::npos) << text;
  EXPECT_EQ(text.find("step 1:"), std::string::npos) << text;
}

TEST_P(Statistics, histograms_of_edges_and_equal_elements) {
  const Tensor x = tensor({0.0, 1.0, 1.0, 2.0, 5.0, kNaN}, DType::f64);
  const Tensor edges = tensor({0.0, 1.0, 2.0}, DType::f64);
  EXPECT_EQ(histogram(x, edges).counts.to_vector<std::int64_t>(), (Integers{1, 3}));
  const Histogram equal = histogram(full({4}, 7, DType::i32), 2);
  EXPECT_EQ(equal.counts.to_vector<std::int64_t>(), (Integers{0, 4}));
  EXPECT_EQ(equal.edges.to_vector<double>(), (Doubles{6.5, 7, 7.5}));
  EXPECT_EQ(histogram(zeros({0}), 2).counts.to_vector<std::int64_t>(), (Integers{0, 0}));
}

TEST_P(Statistics, unique_slices) {
  const Tensor x = tensor({{2, 1}, {0, 5}, {2, 1}, {2, 0}});
  const Unique u = unique(x, 0);
  EXPECT_EQ(u.values.to_vector<std::int64_t>(), (Integers{0, 5, 2, 0, 2, 1}));
  EXPECT_EQ(u.indices.to_vector<std::int64_t>(), (Integers{1, 3, 0}));
  EXPECT_EQ(u.inverse_indices.to_vector<std::int64_t>(), (Integers{2, 0, 2, 1}));
  EXPECT_EQ(u.counts.to_vector<std::int64_t>(), (Integers{1, 1, 2}));
  EXPECT_EQ(unique(x, 1).values.to_vector<std::int64_t>(), (Integers{1, 2, 5, 0, 1, 2, 0, 2}));
  EXPECT_EQ(unique(x, 0, 4).counts.to_vector<std::int64_t>(), (Integers{1, 1, 2, 0}));
  EXPECT_EQ(unique(zeros({0, 3}), 0).values.shape(), (Shape{0, 3}));
  const UniqueConsecutive runs = unique_consecutive(tensor({3, 3, 1, 1, 1, 3}));
  EXPECT_EQ(runs.values.to_vector<std::int64_t>(), (Integers{3, 1, 3}));
  EXPECT_EQ(runs.inverse_indices.to_vector<std::int64_t>(), (Integers{0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(runs.counts.to_vector<std::int64_t>(), (Integers{2, 3, 1}));
}

TEST_P(Statistics, order_statistics_with_nan) {
  const Tensor x = tensor({{3.0, kNaN, 1.0}, {kNaN, kNaN, kNaN}}, DType::f64);
  const Doubles q = nanquantile(x, 0.5, 1).to_vector<double>();
  EXPECT_EQ(q[0], 2);
  EXPECT_TRUE(std::isnan(q[1]));
  EXPECT_TRUE(std::isnan(quantile(x, full({}, 0.5, DType::f64), 1).to_vector<double>()[0]));
  EXPECT_TRUE(std::isnan(quantile(ones({3}), full({}, 1.5, DType::f64)).item<double>()));
  EXPECT_EQ(quantile(ones({2, 3}), full({4}, 0.5, DType::f64), 1, true).shape(), (Shape{4, 2, 1}));
  EXPECT_EQ(quantile(ones({2, 3}), full({4}, 0.5, DType::f64)).shape(), Shape{4});
  const ValuesAndIndices m = mode(tensor({2, 5, 5, 2, 7}));
  EXPECT_EQ(m.values.item<std::int64_t>(), 2);
  EXPECT_EQ(m.indices.item<std::int64_t>(), 3);
}

TEST_P(Statistics, segments) {
  const Tensor x = tensor({1.0, 2.0, 3.0}, DType::f64), ids = tensor({2, 0, 2});
  EXPECT_EQ(segment_sum(x, ids).to_vector<double>(), (Doubles{2, 0, 4}));
  EXPECT_EQ(segment_mean(x, ids, 4).to_vector<double>(), (Doubles{2, 0, 2, 0}));
  EXPECT_EQ(segment_prod(x, ids).to_vector<double>(), (Doubles{2, 1, 3}));
  EXPECT_EQ(segment_max(x, ids).to_vector<double>(), (Doubles{2, -kInfinity, 3}));
  EXPECT_EQ(segment_min(astype(x, DType::i32), ids).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{2, INT32_MAX, 1}));
}

TEST_P(Statistics, distances) {
  const Tensor x = tensor({{0.0, 0.0}, {3.0, -4.0}}, DType::f64);
  const auto between = [&](double p) { return cdist(x, x, p).to_vector<double>(); };
  EXPECT_EQ(between(2), (Doubles{0, 5, 5, 0}));
  EXPECT_EQ(between(1), (Doubles{0, 7, 7, 0}));
  EXPECT_EQ(between(0), (Doubles{0, 2, 2, 0}));
  EXPECT_EQ(between(kInfinity), (Doubles{0, 4, 4, 0}));
  EXPECT_EQ(pdist(x).to_vector<double>(), Doubles{5});
  EXPECT_EQ(pdist(ones({1, 3})).shape(), Shape{0});
  Tensor points = copy(sin(astype(iota({5 * 3}), DType::f64)).reshape({5, 3})).sync();
  points.requires_grad(true);
  for (const double p : {0., 1., 1.5, 2., kInfinity}) {
    const Tensor all = cdist(points.detach(), points.detach(), p), pairs = pdist(points, p);
    std::int64_t k = 0;
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t j = i + 1; j < 5; ++j, ++k)
        EXPECT_EQ(pairs[k].item<double>(), (all[i][j]).item<double>()) << p << ": " << i << ", " << j;
    EXPECT_EQ(pairs.shape(), Shape{k});
    if (p == 0) continue;
    points.zero_grad();
    sum(pairs * pairs).backward();
    EXPECT_TRUE(fermata::all(isfinite(points.grad())).item<bool>()) << p;
  }
  EXPECT_EQ(cdist(ones({2, 0}), ones({3, 0})).shape(), (Shape{2, 3}));
  Tensor leaf = copy(x).sync();
  leaf.requires_grad(true);
  sum(cdist(leaf, leaf)).backward();  // 0 where rows are equal
  const Doubles g = leaf.grad().to_vector<double>(), wanted{-1.2, 1.6, 1.2, -1.6};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(g[i], wanted[i], 1e-14);
}

TEST_P(Statistics, recurrences) {
  const Tensor y = linear_recurrence(tensor({9.0, 0.5, 2.0}, DType::f64), tensor({1.0, 1.0, 1.0}, DType::f64));
  EXPECT_EQ(y.to_vector<double>(), (Doubles{1, 1.5, 4}));
  const Tensor wide = tensor({-kInfinity, 1000.0, -1000.0, 1000.0}, DType::f64);
  const Doubles z = cumulative_logsumexp(wide).to_vector<double>();
  EXPECT_EQ(z[0], -kInfinity);
  EXPECT_EQ(z[1], 1000);
  EXPECT_NEAR(z[3], 1000 + std::log(2), 1e-12);
}

/// Along each axis: lines side by side, neighboring ones as rows, those that are left; decays that repeat, and operands
/// that are not dense.
TEST_P(Statistics, recurrences_along_each_axis) {
  Generator generator(3);
  const auto plain = [](const Tensor& decay, const Tensor& x, std::int64_t axis) {
    std::vector<Tensor> steps;
    for (std::int64_t i = 0; i < x.size(axis); ++i) {
      const Tensor step = select(x, axis, i);
      steps.push_back(i == 0 ? step : select(decay, axis, i) * steps.back() + step);
    }
    return stack(steps, axis);
  };
  for (const DType t : {DType::f32, DType::f64})
    for (const Shape& shape :
         {Shape{7}, Shape{19, 5}, Shape{3, 300}, Shape{2, 9, 17}, Shape{5, 1, 6}, Shape{2, 3, 4, 2}})
      for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(shape.rank()); ++axis) {
        const Tensor x = astype(normal(shape, 0, 1, DType::f64, generator), t).sync();
        Shape line(shape);
        for (unsigned i = 0; i < shape.rank(); ++i)
          if (i != axis) line[i] = 1;
        const Tensor decays[] = {full({1}, 0.9, t), astype(uniform(shape, 0, 1, DType::f64, generator), t),
                                 astype(uniform(line, 0, 1, DType::f64, generator), t), full({}, -0.5, t)};
        for (const Tensor& decay : decays)
          for (const Tensor& given : {x, flip(copy(flip(x))), x.rank() < 2 ? x : copy(x.mT()).mT()}) {
            const Tensor found = linear_recurrence(decay, given, axis),
                         expected = plain(broadcast_to(decay, shape), given, axis);
            ASSERT_EQ(found.shape(), shape);
            EXPECT_LE(max(abs(found - expected)).item<double>(), t == DType::f64 ? 1e-13 : 1e-5)
                << to_string(t, shape) << " along " << axis << ", decay " << to_string(t, decay.shape());
          }
      }
  EXPECT_EQ(linear_recurrence(ones({1}), zeros({0, 3}), 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(linear_recurrence(ones({1}), zeros({3, 0}), 0).shape(), (Shape{3, 0}));
}

}  // namespace
}  // namespace fermata
