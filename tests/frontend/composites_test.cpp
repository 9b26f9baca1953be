// Composite ops against formulas in double, at the edges where the naive formula fails, and recorded as their parts.
#include "fermata/composites.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fermata/fermata.h"

namespace fermata {
namespace {

class Composites : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Composites, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Doubles = std::vector<double>;

constexpr std::int64_t kRows = 5, kColumns = 37;
Tensor sample(std::uint64_t seed, DType dtype = DType::f32) {
  Generator g(seed);
  return normal({kRows, kColumns}, 0.5, 2, dtype, g);
}
void expect_near(const Tensor& got, const Doubles& wanted, double tolerance) {
  const Doubles values = got.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], tolerance * (1 + std::fabs(wanted[i]))) << "at " << i;
}
/// f of each row of x, in double.
Doubles by_row(const Tensor& x, const std::function<Doubles(const Doubles&)>& f) {
  const Doubles all = x.to_vector<double>();
  Doubles result;
  for (std::size_t row = 0; row < all.size(); row += kColumns)
    for (const double v : f({all.begin() + static_cast<long>(row), all.begin() + static_cast<long>(row) + kColumns}))
      result.push_back(v);
  return result;
}
double mean_of(const Doubles& row) {
  double total = 0;
  for (const double v : row) total += v;
  return total / static_cast<double>(row.size());
}
double log_sum_exp(const Doubles& row) {
  double total = 0;
  for (const double v : row) total += std::exp(v);
  return std::log(total);
}

TEST_P(Composites, Means) {
  const Tensor x = sample(1);
  expect_near(mean(x, -1), by_row(x, [](const Doubles& r) { return Doubles{mean_of(r)}; }), 1e-6);
  EXPECT_EQ(mean(tensor({1, 2})).item<float>(), 1.5);
  EXPECT_EQ(mean(tensor({true, false, false, false})).item<float>(), 0.25);
  EXPECT_EQ(mean(tensor(3.0)).item<float>(), 3);
  EXPECT_EQ(mean(x, {}, true).shape(), Shape({1, 1}));
  EXPECT_TRUE(std::isnan(mean(zeros({0})).item<float>()));
  // A sum in f16 would overflow.
  EXPECT_EQ(mean(full({4096}, 60, DType::f16)).item<float>(), 60);
  EXPECT_EQ(mean(full({2}, 60, DType::f16)).dtype(), DType::f16);
}

TEST_P(Composites, Variances) {
  const auto variance = [](double correction) {
    return [=](const Doubles& r) {
      double total = 0;
      for (const double v : r) total += (v - mean_of(r)) * (v - mean_of(r));
      return Doubles{total / (kColumns - correction)};
    };
  };
  const Tensor x = sample(2);
  expect_near(var(x, 1), by_row(x, variance(0)), 1e-5);
  expect_near(var(x, 1, false, 1), by_row(x, variance(1)), 1e-5);
  // The difference of two large squares would be noise here.
  expect_near(var(x.astype(DType::f64) + 1e8, 1), by_row(x, variance(0)), 1e-6);
  EXPECT_TRUE(std::isnan(var(ones({1}), 0, false, 1).item<float>()));
}

TEST_P(Composites, LogSumExp) {
  const Tensor x = sample(3);
  expect_near(logsumexp(x, -1), by_row(x, [](const Doubles& r) { return Doubles{log_sum_exp(r)}; }), 1e-6);
  EXPECT_EQ(logsumexp(x, -1, true).shape(), Shape({kRows, 1}));
  EXPECT_FLOAT_EQ(logsumexp(tensor({1000.0, 1000.0})).item<float>(), 1000 + std::log(2.0f));
  EXPECT_EQ(logsumexp(tensor({-INFINITY, -INFINITY})).item<float>(), -INFINITY);
  EXPECT_EQ(logsumexp(tensor({INFINITY, 0.0f})).item<float>(), INFINITY);
}

TEST_P(Composites, Softmax) {
  const Tensor x = sample(4);
  const auto formula = [](const Doubles& r) {
    Doubles y;
    for (const double v : r) y.push_back(std::exp(v - log_sum_exp(r)));
    return y;
  };
  expect_near(softmax(x), by_row(x, formula), 1e-6);
  expect_near(softmax(x.mT(), 0).mT(), by_row(x, formula), 1e-6);
  EXPECT_EQ(softmax(tensor({1e30, 0.0})).to_vector<float>(), (std::vector<float>{1, 0}));
  EXPECT_EQ(softmax(tensor({-INFINITY, 0.0f})).to_vector<float>(), (std::vector<float>{0, 1}));
  EXPECT_EQ(softmax(sample(4, DType::bf16)).dtype(), DType::bf16);
  EXPECT_EQ(softmax(tensor({1, 2})).dtype(), DType::f32);
  // Rounded once: as near to the exact value as bf16 can be.
  expect_near(softmax(sample(4, DType::bf16)), by_row(sample(4, DType::bf16), formula), 0.0021);
}

TEST_P(Composites, LogSoftmax) {
  const Tensor x = sample(5);
  expect_near(log_softmax(x),
              by_row(x,
                     [](const Doubles& r) {
                       Doubles y;
                       for (const double v : r) y.push_back(v - log_sum_exp(r));
                       return y;
                     }),
              1e-6);
  EXPECT_EQ(log_softmax(tensor({0.0, 1000.0})).to_vector<float>(), (std::vector<float>{-1000, 0}));
}

TEST_P(Composites, CrossEntropy) {
  const Tensor x = sample(6), labels = tensor({0, 36, 5, 5, 17});
  const Doubles all = x.to_vector<double>();
  double loss = 0;
  for (std::size_t row = 0; row < kRows; ++row) {
    const Doubles r(all.begin() + static_cast<long>(row * kColumns),
                    all.begin() + static_cast<long>((row + 1) * kColumns));
    loss -= (r[static_cast<std::size_t>(labels.to_vector<int>()[row])] - log_sum_exp(r)) / kRows;
  }
  EXPECT_NEAR(cross_entropy(x, labels).item<double>(), loss, 1e-5);
  EXPECT_NEAR(cross_entropy(x, labels.astype(DType::u8)).item<double>(), loss, 1e-5);
  EXPECT_NEAR(cross_entropy(x.reshape({kRows, 1, kColumns}), labels.reshape({kRows, 1}), {.axis = -1}).item<double>(),
              loss, 1e-5);
  EXPECT_NEAR(cross_entropy(x.reshape({kRows, kColumns, 1}), labels.reshape({kRows, 1})).item<double>(), loss, 1e-5);
  // A label that is ignored by default counts for nothing, with options or without.
  const Tensor some = tensor({0, 36, -100, 5, 17}), kept = tensor({0, 1, 3, 4});
  const double of_kept = cross_entropy(take(x, kept), take(labels, kept)).item<double>();
  EXPECT_NEAR(cross_entropy(x, some).item<double>(), of_kept, 1e-5);
  EXPECT_NEAR(cross_entropy(x, some, {.weight = ones({kColumns})}).item<double>(), of_kept, 1e-5);
  EXPECT_EQ(cross_entropy(tensor({0.0f, -INFINITY}), tensor(0)).item<float>(), 0);
  EXPECT_TRUE(std::isnan(cross_entropy(x, tensor({0, 37, 5, 5, 17})).item<float>()));
  EXPECT_TRUE(std::isnan(cross_entropy(x, tensor({0, -1, 5, 5, 17})).item<float>()));
}

TEST_P(Composites, Norms) {
  const Tensor x = sample(7), weight = linspace(0.5, 1.5, kColumns), bias = linspace(-1, 1, kColumns);
  const auto layer = [](bool affine) {
    return [=](const Doubles& r) {
      double variance = 0;
      for (const double v : r) variance += (v - mean_of(r)) * (v - mean_of(r)) / kColumns;
      Doubles y;
      for (std::size_t i = 0; i < kColumns; ++i) {
        const double t = static_cast<double>(i) / (kColumns - 1), z = (r[i] - mean_of(r)) / std::sqrt(variance + 1e-5);
        y.push_back(affine ? z * (0.5 + t) - 1 + 2 * t : z);
      }
      return y;
    };
  };
  expect_near(layer_norm(x), by_row(x, layer(false)), 2e-6);
  expect_near(layer_norm(x, weight, bias), by_row(x, layer(true)), 2e-6);
  EXPECT_EQ(layer_norm(x, {}, bias).shape(), x.shape());
  expect_near(rms_norm(x, weight),
              by_row(x,
                     [](const Doubles& r) {
                       double square = 0;
                       for (const double v : r) square += v * v / kColumns;
                       Doubles y;
                       for (std::size_t i = 0; i < kColumns; ++i)
                         y.push_back(r[i] / std::sqrt(square + 1e-6) * (0.5 + static_cast<double>(i) / (kColumns - 1)));
                       return y;
                     }),
              2e-6);
  EXPECT_EQ(layer_norm(sample(7, DType::f16), weight).dtype(), DType::f16);
}

TEST_P(Composites, Linear) {
  const Tensor x = tensor({{1.0, 2.0}}), weight = tensor({{3.0, 4.0}, {5.0, 6.0}, {7.0, 8.0}});
  EXPECT_EQ(linear(x, weight).to_vector<float>(), (std::vector<float>{11, 17, 23}));
  EXPECT_EQ(linear(x, weight, tensor({1.0, 0.0, -1.0})).to_vector<float>(), (std::vector<float>{12, 17, 22}));
  EXPECT_EQ(linear(x[0], weight).shape(), Shape({3}));
}

TEST(CompositesRecording, PartsAreRecordedAtTheCallersLine) {
  const Tensor x = ones({2, 3});
  const Tensor y = softmax(x);
  const auto line = std::source_location::current().line() - 1;
  const Node* scaled = y.node();
  EXPECT_EQ(scaled->op, Op::multiply);
  EXPECT_EQ(scaled->inputs[0]->op, Op::exp);
  EXPECT_EQ(scaled->inputs[1]->op, Op::reciprocal);
  EXPECT_EQ(scaled->inputs[1]->inputs[0]->op, Op::sum);
  EXPECT_EQ(scaled->where.line(), line);
  EXPECT_EQ(scaled->inputs[0]->where.line(), line);
  EXPECT_EQ(scaled->inputs[0]->inputs[0]->inputs[1]->where.line(), line);
}

}  // namespace
}  // namespace fermata
