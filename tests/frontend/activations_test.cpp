// Activations, normalizations, dropout, embeddings and attention, in both modes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

class Layers : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Layers, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }
Floats floats(const Tensor& x) { return x.astype(DType::f32).to_vector<float>(); }

struct Activation {
  const char* name;
  Tensor (*f)(const Tensor&);
  double (*wanted)(double);
};
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
const Activation kActivations[] = {
    {"elu", [](const Tensor& x) { return elu(x, 1.5); }, [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }},
    {"celu", [](const Tensor& x) { return celu(x, 1.5); },
     [](double x) { return x > 0 ? x : 1.5 * std::expm1(x / 1.5); }},
    {"selu", [](const Tensor& x) { return selu(x); },
     [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }, [](double x) { return x > 0 ? x : 0.01 * x; }},
    {"relu6", [](const Tensor& x) { return relu6(x); }, [](double x) { return std::min(std::max(x, 0.0), 6.0); }},
    {"hardtanh", [](const Tensor& x) { return hardtanh(x, -2, 1.5); },
     [](double x) { return std::min(std::max(x, -2.0), 1.5); }},
    {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); },
     [](double x) { return std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
    {"hardswish", [](const Tensor& x) { return hardswish(x); },
     [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
    {"mish", [](const Tensor& x) { return mish(x); }, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {"softsign", [](const Tensor& x) { return softsign(x); }, [](double x) { return x / (1 + std::abs(x)); }},
    {"softplus", [](const Tensor& x) { return softplus(x, 2.0, 5.0); },
     [](double x) { return 2 * x > 5 ? x : std::log1p(std::exp(2 * x)) / 2; }},
    {"log_sigmoid", [](const Tensor& x) { return log_sigmoid(x); }, [](double x) { return std::log(sigmoid_of(x)); }},
    {"tanhshrink", [](const Tensor& x) { return tanhshrink(x); }, [](double x) { return x - std::tanh(x); }},
    {"hardshrink", [](const Tensor& x) { return hardshrink(x); }, [](double x) { return std::abs(x) > 0.5 ? x : 0; }},
    {"softshrink", [](const Tensor& x) { return softshrink(x); },
     [](double x) { return x > 0.5    ? x - 0.5
                           : x < -0.5 ? x + 0.5
                                      : 0; }},
    {"threshold", [](const Tensor& x) { return threshold(x, 0.3, 7); }, [](double x) { return x > 0.3 ? x : 7; }},
    {"prelu", [](const Tensor& x) { return prelu(x, tensor({0.25}, x.dtype())); },
     [](double x) { return x > 0 ? x : 0.25 * x; }},
    {"gelu", [](const Tensor& x) { return gelu(x, "tanh"); },
     [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x))); }},
};

TEST_P(Layers, ActivationsAreTheirFormulas) {
  const std::vector<double> points{-90,  -7.5, -3,   -2.9, -1,  -0.6, -0.4, -1e-3, 0,
                                   1e-3, 0.2,  0.45, 0.7,  1.3, 2.7,  3.1,  6.5,   90};
  for (const Activation& a : kActivations)
    for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const Tensor x = tensor(points).astype(t), y = a.f(x);
      const std::vector<double> given = values(x), got = values(y);
      EXPECT_EQ(y.dtype(), t);
      const double tolerance = t == DType::f64 ? 1e-14 : t == DType::f32 ? 1e-6 : t == DType::f16 ? 1e-3 : 8e-3;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double wanted = a.wanted(given[i]);
        EXPECT_NEAR(got[i], wanted, tolerance * std::max(1.0, std::abs(wanted)))
            << a.name << " " << name(t) << " at " << given[i];
      }
      EXPECT_TRUE(std::isnan(a.f(full({1}, std::nan(""), t)).item<double>()) || std::string(a.name) == "threshold")
          << a.name;
    }
}

TEST_P(Layers, ActivationsHaveDerivatives) {
  const Tensor x = tensor({-4.1, -2.2, -0.7, -0.2, 0.2, 0.8, 2.2, 4.2, 7.0}, DType::f64);
  for (const Activation& a : kActivations) {
    check_both_orders(a.name, [&](const Inputs& in) { return a.f(in[0]); }, {x});
    Tensor far = tensor({-200.0, 200.0}, DType::f64).requires_grad(true);
    for (const double g : values(gradients(sum(a.f(far)), {far})[0])) EXPECT_TRUE(std::isfinite(g)) << a.name;
  }
  check_both_orders("prelu of channels", [](const Inputs& in) { return prelu(in[0], in[1]); },
                    {random_f64({2, 3, 2}, 0.5, 1, true, 1), random_f64({3}, 0.1, 0.5, false, 2)});
  check_both_orders("glu", [](const Inputs& in) { return glu(in[0], 1); }, {random_f64({2, 4}, 0.5, 1, true, 1)});
  check_both_orders("softmin", [](const Inputs& in) { return softmin(in[0]); }, {random_f64({2, 3}, 0.5, 1, true, 1)});
}

TEST_P(Layers, ActivationsAreBatchedAndFused) {
  const std::uint64_t loops = stats().vmap_loops;
  for (const Activation& a : kActivations)
    check_vmap(
        a.name, [&](const Inputs& in) { return a.f(in[0]); },
        {{{random_f64({2, 3}, 0, 2, true, 1), random_f64({2, 3}, 0, 2, true, 2)}, 1}}, 2);
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(Layers, GumbelSoftmaxSamples) {
  Generator g(5);
  const Tensor logits = log(tensor({0.1f, 0.2f, 0.7f}));
  const Tensor hard = gumbel_softmax(broadcast_to(logits, {20000, 3}), 1, true, -1, g);
  EXPECT_EQ(floats(sum(hard, 1)), Floats(20000, 1));
  const Floats shares = floats(mean(hard, 0));
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(shares[static_cast<std::size_t>(i)], (std::array{0.1, 0.2, 0.7}[static_cast<std::size_t>(i)]), 0.012);
  Tensor leaf = copy(logits).requires_grad(true);
  EXPECT_NE(floats(gradients(weighted_sum(gumbel_softmax(leaf.astype(DType::f64), 1, true, -1, g)), {leaf})[0])[0], 0);
}

// ---- Normalizations
// ---------------------------------------------------------------------------------------------------

/// (x - mean) / sqrt(var + eps) over some axes, by other means than the functions under test.
Tensor standardized(const Tensor& x, const std::vector<std::int64_t>& axes, double eps = 1e-5) {
  return (x - mean(x, axes, true)) / sqrt(var(x, axes, true) + eps);
}

TEST_P(Layers, Normalizations) {
  const Tensor x = random_f64({4, 6, 3, 2}, 0, 3, true, 1), w = random_f64({6}, 0.5, 1, true, 2),
               b = random_f64({6}, 0.5, 1, true, 3);
  const Tensor wide = reshape(w, {6, 1, 1}), shift = reshape(b, {6, 1, 1});
  expect_close(batch_norm(x, {}, {}, w, b, true), standardized(x, {0, 2, 3}) * wide + shift, 1e-12);
  expect_close(instance_norm(x, {}, {}, w, b), standardized(x, {2, 3}) * wide + shift, 1e-12);
  const Tensor grouped = reshape(standardized(reshape(x, {4, 3, 12}), {2}), {4, 6, 3, 2});
  expect_close(group_norm(x, 3, w, b), grouped * wide + shift, 1e-12);
  const Tensor v = random_f64({3, 2}, 0.5, 1, true, 4);
  expect_close(layer_norm(x, NormalizedShape{3, 2}, v, v), standardized(x, {2, 3}) * v + v, 1e-12);
  expect_close(rms_norm(x, NormalizedShape{3, 2}, v), x / sqrt(mean(square(x), {2, 3}, true) + 1e-6) * v, 1e-12);
  expect_close(layer_norm(x, NormalizedShape{2}), layer_norm(x), 0);
  expect_close(normalize(x), x / sqrt(sum(square(x), 1, true)), 1e-12);
  expect_close(normalize(x, 1, -1), x / sum(abs(x), -1, true), 1e-12);
  expect_close(normalize(x, 3, 0), x / pow(sum(pow(abs(x), 3), 0, true), 1.0 / 3), 1e-12);
  expect_close(normalize(x, INFINITY, 0), x / max(abs(x), 0, true), 1e-12);
  EXPECT_EQ(floats(normalize(zeros({1, 2}))), (Floats{0, 0}));
  // Channels 0 to 3 of four that are all 1: windows of three channels hold 2, 3, 3 and 2 of them.
  const Tensor lrn = local_response_norm(ones({1, 4}), 3, 0.3, 1, 1);
  const Floats wanted{1 / 1.2f, 1 / 1.3f, 1 / 1.3f, 1 / 1.2f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(floats(lrn)[i], wanted[i], 1e-6);
  for (const DType t : {DType::f16, DType::bf16})
    expect_close(batch_norm(x.astype(t), {}, {}, {}, {}, true).astype(DType::f64), standardized(x, {0, 2, 3}),
                 t == DType::f16 ? 5e-3 : 3e-2);
}

TEST_P(Layers, BatchNormKeepsRunningStatistics) {
  const Tensor x = random_f64({8, 3, 5}, 0, 3, true, 1).astype(DType::f32);
  Tensor running_mean = zeros({3}), running_var = ones({3});
  const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, true, 0.25);
  expect_close(running_mean, mean(x, {0, 2}) * 0.25, 1e-6);
  expect_close(running_var, 0.75 + var(x, {0, 2}, false, 1) * 0.25, 1e-6);
  const Tensor inferred = batch_norm(x, running_mean, running_var);
  expect_close(inferred, (x - reshape(running_mean, {3, 1})) / sqrt(reshape(running_var, {3, 1}) + 1e-5), 1e-5);
  EXPECT_EQ(message<Error>([&] { batch_norm(x, {}, {}); }),
            "FM1377 ValueError: batch_norm: inference requires a running mean and variance\n  at   HERE");
}

TEST_P(Layers, NormalizationsHaveDerivatives) {
  const Inputs in{random_f64({2, 2, 3}, 0.5, 1.5, true, 1), random_f64({2}, 0.5, 1, true, 2),
                  random_f64({2}, 0.5, 1, true, 3)};
  check_both_orders(
      "batch_norm", [](const Inputs& v) { return batch_norm(v[0], {}, {}, v[1], v[2], true); }, in);
  check_both_orders(
      "group_norm", [](const Inputs& v) { return group_norm(v[0], 1, v[1], v[2]); }, in);
  check_both_orders(
      "instance_norm", [](const Inputs& v) { return instance_norm(v[0], {}, {}, v[1], v[2]); }, in);
  check_both_orders("layer_norm", [](const Inputs& v) { return layer_norm(v[0], NormalizedShape{2, 3}); }, {in[0]});
  check_both_orders("local_response_norm", [](const Inputs& v) { return local_response_norm(v[0], 2, 0.5); }, {in[0]});
  check_both_orders("normalize", [](const Inputs& v) { return normalize(v[0]) + normalize(v[0], 3); }, {in[0]});
}

// ---- Dropout, embeddings, attention
// -----------------------------------------------------------------------------------

TEST_P(Layers, Dropout) {
  Generator g(3);
  const Tensor x = ones({100, 200});
  const Tensor y = dropout(x, 0.25, true, g);
  const Floats all = floats(y);
  EXPECT_NEAR(static_cast<double>(std::count(all.begin(), all.end(), 0.0f)) / 20000, 0.25, 0.01);
  EXPECT_TRUE(std::ranges::all_of(all, [](float v) { return v == 0 || v == 1 / 0.75f; }));
  g.seed(3);
  EXPECT_EQ(floats(dropout(x, 0.25, true, g)), all);
  const ModeGuard other(GetParam() == Mode::eager ? Mode::compiled : Mode::eager);
  g.seed(3);
  EXPECT_EQ(floats(dropout(x, 0.25, true, g)), all);  // the same elements in both modes
  EXPECT_EQ(floats(dropout(x, 0.5, false)), floats(x));
  EXPECT_EQ(floats(dropout(x, 1)), Floats(20000, 0));
  const Tensor channels = feature_dropout(ones({10, 20, 3, 3}), 0.5, true, g);
  EXPECT_EQ(floats(max(channels, {2, 3})), floats(min(channels, {2, 3})));
  const Tensor noise = selu(randn({1000, 100})), kept = alpha_dropout(noise, 0.2, true, g);
  EXPECT_NEAR(mean(kept).item<double>(), 0, 0.02);
  EXPECT_NEAR(var(kept).item<double>(), 1, 0.05);
  Tensor leaf = ones({50}).requires_grad(true);
  const Tensor z = dropout(leaf, 0.5, true, g);
  EXPECT_EQ(floats(gradients(sum(z), {leaf})[0]), floats(z));
  EXPECT_EQ(message<Error>([&] { dropout(x, 1.5); }),
            "FM1377 ValueError: dropout: p is not between 0 and 1\n  at   HERE");
}

TEST_P(Layers, Embeddings) {
  Tensor table = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}}).requires_grad(true);
  const Tensor index = tensor({{2, 0}, {1, 2}});
  const Tensor rows = embedding(index, table, 2);
  EXPECT_EQ(floats(rows), (Floats{5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(floats(gradients(sum(rows), {table})[0]), (Floats{1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(floats(gradients(sum(embedding(index, table)), {table})[0]), (Floats{1, 1, 1, 1, 2, 2}));
  Tensor tall = ones({301, 1}).requires_grad(true);  // 300 has the low bits of 44
  EXPECT_EQ(floats(gradients(sum(embedding(tensor({44}).astype(DType::u8), tall, 300)), {tall})[0])[44], 1);
  EXPECT_EQ(one_hot(tensor({2, 0}), 3).to_vector<std::int64_t>(), (Integers{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(tensor({1, 3, 0})).shape(), (Shape{3, 4}));
  EXPECT_EQ(one_hot(tensor({5, -1}), 2).to_vector<std::int64_t>(), (Integers{0, 0, 0, 0}));
  EXPECT_EQ(one_hot(zeros({0, 2}, DType::u8), 3).sync().shape(), (Shape{0, 2, 3}));
  EXPECT_EQ(message<Error>([&] { one_hot(ones({2})); }),
            "FM1103 DTypeError: one_hot: classes must be integers, not f32\n  x    f32[2]\n  at   HERE");
  EXPECT_EQ(
      message<Error>([&] { embedding(index, ones({3})); }),
      "FM1015 ShapeError: embedding: a matrix must have two axes\n  index  i64[2, 2]\n  weight f32[3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { embedding(index, table, 3); }),
            "FM1377 ValueError: embedding: padding_idx 3 is out of range for 3 rows\n  at   HERE");
}

/// Attention by loops, for [L, E], [S, E], [S, V]; `seen` says which key a query sees.
template <class F> Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v, double scale, F&& seen) {
  const std::vector<double> a = values(q), b = values(k), c = values(v);
  const auto l = static_cast<std::size_t>(q.size(0)), s = static_cast<std::size_t>(k.size(0)),
             e = static_cast<std::size_t>(q.size(1)), w = static_cast<std::size_t>(v.size(1));
  std::vector<double> out(l * w);
  for (std::size_t i = 0; i < l; ++i) {
    std::vector<double> weight(s);
    double total = 0;
    for (std::size_t j = 0; j < s; ++j) {
      double dot = 0;
      for (std::size_t x = 0; x < e; ++x) dot += a[i * e + x] * b[j * e + x];
      total += weight[j] = seen(i, j) ? std::exp(dot * scale) : 0;
    }
    for (std::size_t j = 0; j < s && total > 0; ++j)
      for (std::size_t x = 0; x < w; ++x) out[i * w + x] += weight[j] / total * c[j * w + x];
  }
  return tensor(out, {q.size(0), v.size(1)});
}

TEST_P(Layers, Attention) {
  const Tensor q = random_f64({2, 3, 4}, 0, 1, true, 1), k = random_f64({2, 5, 4}, 0, 1, true, 2),
               v = random_f64({2, 5, 6}, 0, 1, true, 3);
  const auto by_loops = [&](double scale, auto&& seen) {
    return stack({attended(q[0], k[0], v[0], scale, seen), attended(q[1], k[1], v[1], scale, seen)});
  };
  expect_close(scaled_dot_product_attention(q, k, v), by_loops(0.5, [](auto, auto) { return true; }), 1e-13);
  expect_close(scaled_dot_product_attention(q, k, v, {.scale = 2.0}), by_loops(2, [](auto, auto) { return true; }),
               1e-13);
  expect_close(scaled_dot_product_attention(q, k, v, {.is_causal = true}),
               by_loops(0.5, [](auto i, auto j) { return i >= j; }), 1e-13);
  // A query that sees nothing gives 0.
  const Tensor mask = tensor(
      {{true, false, true, false, true}, {false, false, false, false, false}, {true, true, false, false, false}});
  const std::vector<bool> sees{true,  false, true, false, true,  false, false, false,
                               false, false, true, true,  false, false, false};
  const Tensor masked = by_loops(0.5, [&](auto i, auto j) { return sees[i * 5 + j]; });
  expect_close(scaled_dot_product_attention(q, k, v, {.mask = mask}), masked, 1e-13);
  const Tensor added = where(mask, zeros({3, 5}, DType::f64), -INFINITY);
  expect_close(scaled_dot_product_attention(q, k, v, {.mask = added}), masked, 1e-13);
  for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
    const Tensor y = scaled_dot_product_attention(q.astype(t), k.astype(t), v.astype(t), {.mask = mask});
    EXPECT_EQ(y.dtype(), t);
    expect_close(y.astype(DType::f64), masked, t == DType::f32 ? 1e-6 : t == DType::f16 ? 4e-3 : 3e-2);
  }
  check_both_orders(
      "attention",
      [&](const Inputs& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}); },
      {random_f64({2, 2}, 0, 1, true, 1), random_f64({3, 2}, 0, 1, true, 2), random_f64({3, 2}, 0, 1, true, 3)});
  // Dropout scales what is left of the probabilities.
  manual_seed(4);
  const Tensor dropped = scaled_dot_product_attention(q, k, ones({2, 5, 1}, DType::f64), {.dropout_p = 0.5});
  EXPECT_GT(var(dropped).item<double>(), 0.01);
}

double rms(const Tensor& x) { return std::sqrt(mean(square(x)).item<double>()); }

/// What is rounded to halves: operands, probabilities and the result, but no scores.
TEST_P(Layers, AttentionOfHalvesKeepsItsScores) {
  for (const DType t : {DType::f16, DType::bf16}) {
    manual_seed(7);
    const auto halves = [&] { return astype(2 * randn({2, 96, 64}), t); };
    const Tensor q = halves(), k = halves(), v = halves();
    const Tensor wide_q = astype(q, DType::f64), wide_k = astype(k, DType::f64), wide_v = astype(v, DType::f64);
    const Tensor exact = scaled_dot_product_attention(wide_q, wide_k, wide_v);
    const Tensor weights = softmax(matmul(wide_q, transpose(wide_k, -2, -1)) / 8, -1);
    const Tensor rounded = astype(matmul(astype(astype(weights, t), DType::f64), wide_v), t);
    const double least = rms(astype(rounded, DType::f64) - exact);
    const Tensor y = scaled_dot_product_attention(q, k, v);
    EXPECT_EQ(y.dtype(), t);
    EXPECT_LT(rms(astype(y, DType::f64) - exact), 1.1 * least) << name(t);
    const AutocastGuard region(t);
    const Tensor cast =
        scaled_dot_product_attention(astype(q, DType::f32), astype(k, DType::f32), astype(v, DType::f32));
    EXPECT_EQ(cast.dtype(), t);
    EXPECT_LT(rms(astype(cast, DType::f64) - exact), 1.1 * least) << name(t) << " by autocast";
  }
}

TEST_P(Layers, GroupedHeadsShareKeys) {
  const Tensor q = random_f64({2, 6, 3, 4}, 0, 1, true, 1), k = random_f64({2, 2, 5, 4}, 0, 1, true, 2),
               v = random_f64({2, 2, 5, 3}, 0, 1, true, 3);
  const Tensor mask = random_f64({6, 3, 5}, 0, 1, true, 4) > 0;
  const auto repeated = [](const Tensor& x) {
    std::vector<Tensor> heads;
    for (int h = 0; h < 6; ++h) heads.push_back(select(x, 1, h / 3));
    return stack(heads, 1);
  };
  expect_close(scaled_dot_product_attention(q, k, v, {.mask = mask, .enable_gqa = true}),
               scaled_dot_product_attention(q, repeated(k), repeated(v), {.mask = mask}), 1e-13);
  EXPECT_EQ(
      message<Error>([&] { scaled_dot_product_attention(q, v, k); }),
      "FM1079 ShapeError: scaled_dot_product_attention: query [.., L, E], key [.., S, E] and value [.., S, V] do not "
      "match\n"
      "  query f64[2, 6, 3, 4]\n  key   f64[2, 2, 5, 3]\n  value f64[2, 2, 5, 4]\n  at    HERE");
  EXPECT_EQ(
      message<Error>([&] { scaled_dot_product_attention(slice(q, 1, 0, 5), k, v, {.enable_gqa = true}); }),
      "FM1079 ShapeError: scaled_dot_product_attention: the number of query heads is not a multiple of that of key "
      "heads\n"
      "  query f64[2, 5, 3, 4]\n  key   f64[2, 2, 5, 4]\n  value f64[2, 2, 5, 3]\n  at    HERE");
}

TEST_P(Layers, AutocastNarrowsProductsAndWidensTheRest) {
  const Tensor x = randn({2, 4, 6, 6}), w = randn({4, 4, 3, 3});
  const AutocastGuard region;
  const Tensor y = conv2d(x, w);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(conv_transpose2d(x, w).dtype(), DType::bf16);
  EXPECT_EQ(batch_norm(y, {}, {}, {}, {}, true).dtype(), DType::bf16);
  EXPECT_EQ(mse_loss(y, y).dtype(), DType::f32);
  EXPECT_EQ(dropout(y).dtype(), DType::bf16);
  EXPECT_EQ(max_pool2d(y, 2).dtype(), DType::bf16);
  const Tensor q = randn({2, 3, 8});
  EXPECT_EQ(scaled_dot_product_attention(q, q, q).dtype(), DType::bf16);
  Tensor leaf = copy(w).requires_grad(true);
  const Tensor g = gradients(mse_loss(conv2d(x, leaf), zeros({2, 4, 4, 4})), {leaf})[0];
  EXPECT_EQ(g.dtype(), DType::f32);
  EXPECT_GT(sum(abs(g)).item<float>(), 0);
}

TEST_P(Layers, ErrorsNameTheOperands) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_EQ(message<Error>([&] { prelu(x, zeros({4})); }),
            "FM1078 ShapeError: prelu: weight must have one slope, or one per element of axis 1\n"
            "  x      f32[2, 3, 4]\n  weight f32[4]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { gelu(x, "erf"); }),
            "FM1376 ValueError: gelu: \"erf\" is neither \"none\" nor \"tanh\"\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { glu(x, 1); }),
            "FM1019 ShapeError: glu: the size of the axis is odd\n  x    f32[2, 3, 4]   axis 1 is 3\n  at   HERE");
  EXPECT_EQ(
      message<Error>([&] { group_norm(x, 2); }),
      "FM1019 ShapeError: group_norm: 2 groups do not divide the channels\n  x    f32[2, 3, 4]   axis 1 is 3\n  at   "
      "HERE");
  EXPECT_EQ(message<Error>([&] { batch_norm(x, {}, {}, zeros({4}), {}, true); }),
            "FM1021 ShapeError: batch_norm: the shape of weight does not match x\n"
            "  x      f32[2, 3, 4]\n  weight f32[4]   should be [3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { layer_norm(x, NormalizedShape{3}); }),
            "FM1021 ShapeError: layer_norm: the last axes of x are not [3]\n  x    f32[2, 3, 4]\n  at   HERE");
  EXPECT_EQ(sum(elu(x + 1)).item<float>(), 24);  // the engine still works
}

}  // namespace
}  // namespace fermata
