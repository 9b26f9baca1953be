// Losses against their formulas in plain C++, in both modes.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using Doubles = std::vector<double>;

class Losses : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Losses, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Doubles values(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }

/// A loss of two operands: the function, and what it makes of two elements.
struct Pointwise {
  const char* name;
  std::function<Tensor(const Tensor&, const Tensor&, LossReduction)> f;
  double (*wanted)(double, double);
  bool probabilities = false;  // both operands in (0, 1)
};
const Pointwise kPointwise[] = {
    {"mse", [](auto& x, auto& t, auto r) { return mse_loss(x, t, r); },
     [](double x, double t) { return (x - t) * (x - t); }},
    {"l1", [](auto& x, auto& t, auto r) { return l1_loss(x, t, r); },
     [](double x, double t) { return std::abs(x - t); }},
    {"smooth_l1", [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, r, 0.5); },
     [](double x, double t) {
       const double d = std::abs(x - t);
       return d < 0.5 ? d * d : d - 0.25;
     }},
    {"huber", [](auto& x, auto& t, auto r) { return huber_loss(x, t, r, 0.5); },
     [](double x, double t) {
       const double d = std::abs(x - t);
       return d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25);
     }},
    {"bce", [](auto& x, auto& t, auto r) { return binary_cross_entropy(x, t, {}, r); },
     [](double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); }, true},
    {"bce with logits", [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {}, r); },
     [](double x, double t) {
       const double p = 1 / (1 + std::exp(-x));
       return -t * std::log(p) - (1 - t) * std::log(1 - p);
     }},
    {"bce of positives",
     [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {}, r, tensor(3.0, x.dtype())); },
     [](double x, double t) {
       const double p = 1 / (1 + std::exp(-x));
       return -3 * t * std::log(p) - (1 - t) * std::log(1 - p);
     }},
    {"kl_div", [](auto& x, auto& t, auto r) { return kl_div(x, t, r); },
     [](double x, double t) { return t * (std::log(t) - x); }, true},
    {"kl_div of logarithms", [](auto& x, auto& t, auto r) { return kl_div(x, t, r, true); },
     [](double x, double t) { return std::exp(t) * (t - x); }},
    {"soft_margin", [](auto& x, auto& t, auto r) { return soft_margin_loss(x, t, r); },
     [](double x, double t) { return std::log1p(std::exp(-t * x)); }},
    {"hinge_embedding", [](auto& x, auto& t, auto r) { return hinge_embedding_loss(x, sign(t), 1, r); },
     [](double x, double t) { return t > 0 ? x : std::max(1 - x, 0.0); }},
    {"margin_ranking", [](auto& x, auto& t, auto r) { return margin_ranking_loss(x, t, ones_like(x), 0.1, r); },
     [](double x, double t) { return std::max(t - x + 0.1, 0.0); }},
    {"gaussian_nll",
     [](auto& x, auto& t, auto r) {
       return gaussian_nll_loss(x, t, broadcast_to(square(t) + 1, x.shape()), true, 1e-6, r);
     },
     [](double x, double t) {
       const double v = t * t + 1;
       return 0.5 * (std::log(v) + (x - t) * (x - t) / v + std::log(2 * std::numbers::pi));
     }},
    {"poisson_nll", [](auto& x, auto& t, auto r) { return poisson_nll_loss(x, t, true, false, 1e-8, r); },
     [](double x, double t) { return std::exp(x) - t * x; }},
    {"poisson_nll of rates", [](auto& x, auto& t, auto r) { return poisson_nll_loss(x, t * 5, false, true, 1e-8, r); },
     [](double x, double t) {
       const double n = 5 * t, stirling = n > 1 ? n * std::log(n) - n + 0.5 * std::log(2 * std::numbers::pi * n) : 0;
       return x - n * std::log(x + 1e-8) + stirling;
     },
     true},
};

TEST_P(Losses, OfElements) {
  for (const Pointwise& loss : kPointwise)
    for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const double low = loss.probabilities ? 0.1 : 0, high = loss.probabilities ? 0.9 : 1.5;
      const Tensor x = random_f64({3, 4}, low, high, !loss.probabilities, 1).astype(t),
                   target = random_f64({3, 4}, low, high, !loss.probabilities, 2).astype(t);
      const Doubles a = values(x), b = values(target);
      Doubles wanted;
      double total = 0;
      for (std::size_t i = 0; i < a.size(); ++i) total += wanted.emplace_back(loss.wanted(a[i], b[i]));
      const double tolerance = t == DType::f64 ? 1e-13 : t == DType::f32 ? 2e-6 : t == DType::f16 ? 2e-3 : 1e-2;
      const auto expect = [&](const Tensor& found, const Doubles& right) {
        EXPECT_EQ(found.dtype(), t) << loss.name;
        expect_close(found.astype(DType::f64), tensor(right, found.shape()), tolerance);
      };
      SCOPED_TRACE(loss.name);
      expect(loss.f(x, target, LossReduction::none), wanted);
      expect(loss.f(x, target, LossReduction::sum), {total});
      expect(loss.f(x, target, LossReduction::mean), {total / 12});
      expect(loss.f(x, target, LossReduction::batch_mean), {total / 3});
    }
}

TEST_P(Losses, OfElementsHaveDerivatives) {
  for (const Pointwise& loss : kPointwise) {
    const double low = loss.probabilities ? 0.3 : 0.1, high = loss.probabilities ? 0.7 : 1.5;
    check_both_orders(
        loss.name, [&](const Inputs& in) { return loss.f(in[0], in[1], LossReduction::none); },
        {random_f64({2, 3}, low, high, !loss.probabilities, 4), random_f64({3}, low, high, !loss.probabilities, 5)});
  }
  // Where a probability of 0 or 1 has a logarithm that is not finite.
  EXPECT_EQ(binary_cross_entropy(tensor({0.0, 1.0}, DType::f64), tensor({0.0, 1.0}, DType::f64)).item<double>(), 0);
  EXPECT_EQ(binary_cross_entropy(tensor({0.0}, DType::f64), tensor({1.0}, DType::f64)).item<double>(), 100);
  EXPECT_EQ(kl_div(tensor({-1.0}, DType::f64), tensor({0.0}, DType::f64)).item<double>(), 0);
  EXPECT_EQ(binary_cross_entropy_with_logits(tensor({-800.0, 800.0}, DType::f64), tensor({0.0, 1.0}, DType::f64))
                .item<double>(),
            0);
}

/// Cross entropy by loops: x [N, C, P], labels [N, P].
double class_loss(const Doubles& x, const std::vector<std::int64_t>& labels, std::size_t n, std::size_t c,
                  std::size_t p, const Doubles& weight, std::int64_t ignore, double smoothing, bool mean) {
  double total = 0, weights = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < p; ++j) {
      const std::int64_t label = labels[i * p + j];
      if (label == ignore) continue;
      double sum = 0, spread = 0;
      for (std::size_t k = 0; k < c; ++k) sum += std::exp(x[(i * c + k) * p + j]);
      for (std::size_t k = 0; k < c; ++k) spread -= weight[k] * (x[(i * c + k) * p + j] - std::log(sum));
      const auto l = static_cast<std::size_t>(label);
      total += (1 - smoothing) * -weight[l] * (x[(i * c + l) * p + j] - std::log(sum)) +
               smoothing / static_cast<double>(c) * spread;
      weights += weight[l];
    }
  return mean ? total / weights : total;
}

TEST_P(Losses, OfClasses) {
  const Tensor x = random_f64({3, 4, 5}, 0, 2, true, 1);
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 15; ++i) labels.push_back(i % 7 == 3 ? -1 : i * 5 % 4);
  const Tensor target = tensor(labels, {3, 5});
  const Doubles w{0.5, 1, 2, 0.25}, one(4, 1);
  for (const double smoothing : {0.0, 0.3})
    for (const bool weighted : {false, true})
      for (const auto r : {LossReduction::mean, LossReduction::sum}) {
        const ClassOptions o{.weight = weighted ? tensor(w) : Tensor(),
                             .ignore_index = -1,
                             .reduction = r,
                             .label_smoothing = smoothing};
        const double wanted =
            class_loss(values(x), labels, 3, 4, 5, weighted ? w : one, -1, smoothing, r == LossReduction::mean);
        EXPECT_NEAR(cross_entropy(x, target, o).item<double>(), wanted, 1e-12) << smoothing << weighted;
        if (smoothing == 0) { EXPECT_NEAR(nll_loss(log_softmax(x, 1), target, o).item<double>(), wanted, 1e-12); }
        const Tensor last = permute(x, {0, 2, 1});
        ClassOptions behind = o;
        behind.axis = -1;
        EXPECT_NEAR(cross_entropy(last, target, behind).item<double>(), wanted, 1e-12);
      }
  EXPECT_EQ(cross_entropy(x, target, {.ignore_index = -1, .reduction = LossReduction::none}).shape(), (Shape{3, 5}));
  EXPECT_EQ(values(cross_entropy(x, target, {.ignore_index = -1, .reduction = LossReduction::none}))[3], 0);
  EXPECT_TRUE(std::isnan(values(cross_entropy(x, target, {.reduction = LossReduction::none}))[3]));  // out of range
  EXPECT_NEAR(cross_entropy(x[0], target[0], {.ignore_index = -1, .axis = 0}).item<double>(),
              cross_entropy(slice(x, 0, 0, 1), slice(target, 0, 0, 1), {.ignore_index = -1}).item<double>(), 1e-13);
  // The two arguments of fermata/composites.h have classes along the last axis.
  const Tensor rows = random_f64({6, 4}, 0, 1, true, 2), of_rows = tensor({0, 1, 2, 3, 0, 1});
  EXPECT_NEAR(cross_entropy(rows, of_rows, ClassOptions{}).item<double>(), cross_entropy(rows, of_rows).item<double>(),
              1e-13);
  EXPECT_EQ(cross_entropy(rows.astype(DType::bf16), of_rows, ClassOptions{}).dtype(), DType::bf16);
  // Of u8 labels none is the -100 that is ignored, though 156 has its low bits.
  const Tensor many = zeros({1, 200}, DType::f64), narrow = tensor({156}).astype(DType::u8);
  EXPECT_NEAR(cross_entropy(many, narrow, ClassOptions{}).item<double>(), std::log(200.0), 1e-13);
  EXPECT_NEAR(cross_entropy(tensor({1.0, 2.0}, DType::f64), tensor(1), ClassOptions{}).item<double>(),
              std::log1p(std::exp(-1.0)), 1e-14);
}

TEST_P(Losses, OfProbabilities) {
  const Tensor x = random_f64({3, 4, 5}, 0, 2, true, 1), labels = (iota({3, 5}) + iota({3, 5}, 1)) % 4;
  const Tensor certain = permute(one_hot(labels, 4), {0, 2, 1}).astype(DType::f64);
  for (const double smoothing : {0.0, 0.2})
    EXPECT_NEAR(cross_entropy(x, certain, {.label_smoothing = smoothing}).item<double>(),
                cross_entropy(x, labels, {.label_smoothing = smoothing}).item<double>(), 1e-13);
  check_both_orders(
      "probabilities",
      [](const Inputs& in) { return cross_entropy(in[0], softmax(in[1], 1), {.reduction = LossReduction::none}); },
      {random_f64({2, 3}, 0.5, 1, true, 1), random_f64({2, 3}, 0.5, 1, true, 2)});
  const Tensor target = tensor({2, 0});
  check_both_orders(
      "labels",
      [&](const Inputs& in) { return cross_entropy(in[0], target, {.weight = in[1], .label_smoothing = 0.1}); },
      {random_f64({2, 3}, 0.5, 1, true, 1), random_f64({3}, 0.5, 1, false, 2)});
}

TEST_P(Losses, OfPairsAndTriplets) {
  const Tensor a = tensor({{3.0, 4.0}, {1.0, 0.0}, {0.0, 0.0}}, DType::f64),
               b = tensor({{4.0, 3.0}, {0.0, 2.0}, {1.0, 1.0}}, DType::f64);
  expect_close(cosine_similarity(a, b), tensor({0.96, 0.0, 0.0}, DType::f64), 1e-14);
  expect_close(pairwise_distance(a, b, 2, 0), tensor({std::sqrt(2.0), std::sqrt(5.0), std::sqrt(2.0)}, DType::f64),
               1e-14);
  expect_close(pairwise_distance(a, b, 1, 0, true), tensor({{2.0}, {3.0}, {2.0}}, DType::f64), 1e-14);
  expect_close(pairwise_distance(a, b, INFINITY, 0), tensor({1.0, 2.0, 1.0}, DType::f64), 1e-14);
  expect_close(cosine_embedding_loss(a, b, tensor({1, -1, -1}), 0.1, LossReduction::none),
               tensor({0.04, 0.0, 0.0}, DType::f64), 1e-14);
  const Tensor c = tensor({{3.0, 4.0}, {1.0, 3.0}, {0.5, 0.5}}, DType::f64);
  const Doubles ab = values(pairwise_distance(a, b)), ac = values(pairwise_distance(a, c)),
                bc = values(pairwise_distance(b, c));
  Doubles wanted, swapped;
  for (std::size_t i = 0; i < 3; ++i) {
    wanted.push_back(std::max(ab[i] - ac[i] + 1, 0.0));
    swapped.push_back(std::max(ab[i] - std::min(ac[i], bc[i]) + 1, 0.0));
  }
  expect_close(triplet_margin_loss(a, b, c, 1, 2, 1e-6, false, LossReduction::none), tensor(wanted), 1e-13);
  expect_close(triplet_margin_loss(a, b, c, 1, 2, 1e-6, true, LossReduction::none), tensor(swapped), 1e-13);
  const Inputs three{random_f64({2, 3}, 0.5, 1, true, 1), random_f64({2, 3}, 0.5, 1, true, 2),
                     random_f64({2, 3}, 0.5, 1, true, 3)};
  check_both_orders(
      "triplet", [](const Inputs& in) { return triplet_margin_loss(in[0], in[1], in[2], 5); }, three);
  check_both_orders(
      "cosine_embedding",
      [](const Inputs& in) {
        return cosine_embedding_loss(in[0], in[1], tensor({1, -1}), -1);
      },
      three);
  check_both_orders("pairwise_distance", [](const Inputs& in) { return pairwise_distance(in[0], in[1], 3); },
                    {three[0], three[1]});
  // Lengths of 0 have derivatives.
  Tensor zero = zeros({1, 2}, DType::f64).requires_grad(true);
  for (const double g :
       values(gradients(sum(pairwise_distance(zero, zero * 2, 2, 0) + cosine_similarity(zero, zero * 3)), {zero})[0]))
    EXPECT_EQ(g, 0);
}

TEST_P(Losses, AreBatched) {
  const std::uint64_t loops = stats().vmap_loops;
  const BatchOperand x{{random_f64({3, 4}, 0.1, 1, true, 1), random_f64({3, 4}, 0.1, 1, true, 2)}, 1},
      y{{random_f64({3, 4}, 0.1, 1, true, 3)}, kShared};
  for (const Pointwise& loss : kPointwise)
    if (!loss.probabilities)
      check_vmap(
          loss.name, [&](const Inputs& in) { return loss.f(in[0], in[1], LossReduction::mean); }, {x, y}, 2, 0, 1e-12);
  const BatchOperand labels{{tensor({0, 1, 3}), tensor({2, 2, 0})}, 0};
  check_vmap(
      "cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); },
      {x, labels}, 2, 0, 1e-12);
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(Losses, ErrorsNameTheOperands) {
  const Tensor x = zeros({3, 4}), labels = zeros({3}, DType::i64);
  EXPECT_EQ(message<Error>([&] { mse_loss(x, zeros({3})); }),
            "FM1001 ShapeError: subtract: shapes do not broadcast (4 and 3)\n"
            "  lhs  f32[3, 4]   axis 1 is 4\n  rhs  f32[3]      axis 0 is 3\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { cross_entropy(x, zeros({4}, DType::i64), ClassOptions{}); }),
            "FM1022 ShapeError: cross_entropy: labels must have the axes of x without axis 1\n"
            "  x      f32[3, 4]\n  target i64[4]   should be [3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { nll_loss(x, zeros({3})); }),
            "FM1107 DTypeError: nll_loss: labels must be integers\n  x      f32[3, 4]\n  target f32[3]\n  at     HERE");
  EXPECT_EQ(
      message<Error>([&] { cross_entropy(x, labels, {.weight = ones({3})}); }),
      "FM1022 ShapeError: cross_entropy: weight must have one number per class\n  weight f32[3]   should be [4]\n  at "
      "    HERE");
  EXPECT_EQ(message<Error>([&] { cross_entropy(x, labels, {.label_smoothing = 2}); }),
            "FM1377 ValueError: cross_entropy: label_smoothing is not between 0 and 1\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { huber_loss(x, x, LossReduction::mean, 0); }),
            "FM1377 ValueError: huber_loss: delta is not positive\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { mse_loss(tensor(1.0f), tensor(2.0f), LossReduction::batch_mean); }),
            "FM1377 ValueError: mse_loss: batch_mean of a 0-d tensor\n  at   HERE");
  EXPECT_EQ(mse_loss(x + 1, x).item<float>(), 1);  // the engine still works
}

}  // namespace
}  // namespace fermata
