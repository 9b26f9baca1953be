// Losses, bags of embeddings and optimizers against PyTorch: golden/networks.safetensors, which
// golden/write_networks.py writes. Score functions of attention. Derivatives, batching, errors.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using testing::message;
using namespace testing;

using Networks = InBothModes;
INSTANTIATE_TEST_SUITE_P(Modes, Networks, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

const NamedTensors& golden() {
  static const NamedTensors values = load_safetensors(fermata::test_folder() + "/frontend/golden/networks.safetensors");
  return values;
}
/// The inputs of a case.
Inputs inputs(const std::string& name) {
  Inputs all;
  while (golden().contains(name + "/x" + std::to_string(all.size())))
    all.push_back(golden().at(name + "/x" + std::to_string(all.size())));
  EXPECT_FALSE(all.empty()) << name;
  return all;
}
/// Compares a function with a case, and the gradient of its sum for the first input.
void check(const std::string& name, const Function& f) {
  SCOPED_TRACE(name);
  Inputs in = inputs(name);
  expect_close(f(in), golden().at(name + "/y0"), 1e-11);
  in[0] = copy(in[0]).requires_grad(true);
  const Tensor y = f(in);
  expect_close(gradients(sum(where(isfinite(y), y, 0)), {in[0]})[0], golden().at(name + "/g"), 1e-11);
}

TEST_P(Networks, LossesOfMarginsAgreeWithPyTorch) {
  const auto none = LossReduction::none;
  check("multi_margin", [&](const Inputs& in) { return multi_margin_loss(in[0], in[1], 1, 1, {}, none); });
  check("multi_margin_2", [](const Inputs& in) { return multi_margin_loss(in[0], in[1], 2, 0.7, in[2]); });
  check("multilabel_margin", [&](const Inputs& in) { return multilabel_margin_loss(in[0], in[1], none); });
  check("multilabel_soft_margin",
        [&](const Inputs& in) { return multilabel_soft_margin_loss(in[0], in[1], in[2], none); });
  const Tensor x = random_f64({4}, 0, 1, true, 1);
  EXPECT_EQ(multi_margin_loss(x, tensor(2)).shape(), Shape{});
  EXPECT_TRUE(std::isnan(multi_margin_loss(x, tensor(4)).item<double>()));
  const Tensor a = random_f64({3, 4}, 0, 1, true, 1), p = random_f64({3, 4}, 0, 1, true, 2),
               n = random_f64({3, 4}, 0, 1, true, 3);
  for (const bool swap : {false, true})
    expect_close(triplet_margin_with_distance_loss(
                     a, p, n, [](const Tensor& u, const Tensor& v) { return pairwise_distance(u, v); }, 0.5, swap),
                 triplet_margin_loss(a, p, n, 0.5, 2, 1e-6, swap), 1e-12);
}

TEST_P(Networks, CtcAgreesWithPyTorch) {
  const auto ctc = [](CtcOptions o) {
    return [o](const Inputs& in) { return ctc_loss(log_softmax(in[0]), in[1], in[2], in[3], o); };
  };
  check("ctc_none", ctc({.reduction = LossReduction::none}));
  check("ctc_mean", ctc({.zero_infinity = true}));
  check("ctc_sum", ctc({.reduction = LossReduction::sum, .zero_infinity = true}));
  check("ctc_blank", ctc({.blank = 4, .reduction = LossReduction::none}));
  check("ctc_empty", ctc({.reduction = LossReduction::none}));
  // One sequence without an axis for a batch, one step, no labels at all.
  const Inputs in = inputs("ctc_none");
  const Tensor log_probs = log_softmax(in[0]);
  expect_close(ctc_loss(select(log_probs, 1, 0), in[1][0], in[2][0], in[3][0], {.reduction = LossReduction::sum}),
               golden().at("ctc_none/y0")[0], 1e-11);
  const Tensor none = zeros({4, 0}, DType::i64), zero = zeros({4}, DType::i64), one = ones({4}, DType::i64);
  expect_close(ctc_loss(log_probs.slice(0, 0, 1), none, one, zero, {.reduction = LossReduction::none}),
               -select(log_probs[0], 1, 0), 1e-12);
  EXPECT_EQ(ctc_loss(log_probs, in[1], one, in[3]).item<double>(), INFINITY);
  EXPECT_EQ(ctc_loss(log_probs, in[1], one, one * 2, {.zero_infinity = true}).item<double>(), 0);
  const auto compiled =
      compile([&](const Tensor& x) { return ctc_loss(x, in[1], in[2], in[3], {.reduction = LossReduction::none}); });
  expect_close(compiled(log_probs), golden().at("ctc_none/y0"), 1e-11);
  check_gradients("ctc_loss", [&](const Inputs& x) { return ctc_loss(x[0], in[1], in[2], in[3]); }, {log_probs});
  // The loop runs as one step of a plan, not as a chain of calls.
  EXPECT_EQ(ctc_loss(log_softmax(randn({200, 2, 9})), ones({2, 20}, DType::i64), full({2}, 200), full({2}, 20)).shape(),
            Shape{});
}

TEST_P(Networks, BagsAgreeWithPyTorch) {
  for (const auto& [mode, name] : {std::pair{BagMode::sum, "sum"}, {BagMode::mean, "mean"}, {BagMode::max, "max"}}) {
    const std::string of = std::string("bag_") + name;
    check(of, [mode = mode](const Inputs& in) { return embedding_bag(in[1], in[0], in[2], {.mode = mode}); });
    check(of + "_padding", [mode = mode](const Inputs& in) {
      return embedding_bag(in[1], in[0], in[2], {.mode = mode, .padding_idx = 2});
    });
    check(of + "_matrix", [mode = mode](const Inputs& in) {
      return embedding_bag(in[1], in[0], {}, {.mode = mode, .padding_idx = -2});
    });
  }
  check("bag_weights", [](const Inputs& in) {
    return embedding_bag(in[1], in[0], in[2], {.mode = BagMode::sum, .weights = in[3], .include_last_offset = true});
  });
  check_vmap(
      "embedding_bag",
      [](const Inputs& in) {
        return embedding_bag(tensor({0, 1, 1}), in[0], tensor({0, 2}));
      },
      {{{random_f64({2, 3}, 0, 1, true, 1), random_f64({2, 3}, 0, 1, true, 2)}, 0}}, 2, 0, 1e-12);
  EXPECT_EQ(embedding_bag(zeros({2, 0}, DType::i64), ones({3, 4}), {}, {.mode = BagMode::max}).shape(), (Shape{2, 4}));
}

/// Beside rows that are taken and added up.
TEST_P(Networks, BagsAreSumsOfRows) {
  const Tensor table = random_f64({7, 37}, 0, 1, true, 1), index = tensor({{0, -1, 3}, {2, 2, 6}, {-7, 5, 0}});
  const Tensor weights = random_f64({3, 3}, 0, 1, true, 2);
  const auto rows = [&](const Tensor& w) { return sum(take(w, index, 0) * expand_dims(weights, -1), 1); };
  const auto bags = [&](const Tensor& w) {
    return embedding_bag(index, w, {}, {.mode = BagMode::sum, .weights = weights});
  };
  expect_close(bags(table), rows(table), 1e-12);
  expect_close(grad([&](const Tensor& w) { return sum(square(bags(w))); })(table),
               grad([&](const Tensor& w) { return sum(square(rows(w))); })(table), 1e-12);
  check_gradients(
      "embedding_bag",
      [&](const Inputs& in) { return embedding_bag(index, in[0], {}, {.mode = BagMode::sum, .weights = in[1]}); },
      {table, weights});
  for (const BagMode mode : {BagMode::sum, BagMode::mean}) {
    EXPECT_EQ(embedding_bag(zeros({2, 0}, DType::i64), table, {}, {.mode = mode}).to_vector<double>(),
              std::vector<double>(74, 0));
    // Elements before the first bag and after the last one count for nothing.
    const Tensor flat = tensor({6, 1, 2, 3, 4, 5}), offsets = tensor({1, 3, 3, 5});
    const Tensor y = embedding_bag(flat, table, offsets, {.mode = mode, .include_last_offset = true});
    const double share = mode == BagMode::mean ? 0.5 : 1;
    expect_close(y, stack({(table[1] + table[2]) * share, zeros({37}, DType::f64), (table[3] + table[4]) * share}),
                 1e-12);
  }
  const Tensor half = embedding_bag(index, astype(table, DType::bf16), {}, {.mode = BagMode::sum});
  EXPECT_EQ(half.dtype(), DType::bf16);
  check_vmap(
      "bags of a table", [&](const Inputs& in) { return embedding_bag(in[0], table, {}, {.mode = BagMode::sum}); },
      {{{tensor({{0, 1}, {2, 3}}), tensor({{6, 6}, {1, 0}})}, 0}}, 2, 0, 1e-12);
  check_vmap(
      "gradients of weighted bags",
      [&](const Inputs& in) {
        const auto loss = [&](const Tensor& t, const Tensor& w) {
          return sum(square(embedding_bag(in[0], t, {}, {.mode = BagMode::sum, .weights = w})));
        };
        return grad([&](const Tensor& w) {
          return sum(square(grad([&](const Tensor& t) { return loss(t, w); })(table)));
        })(in[1]);
      },
      {{{tensor({{0, 1}, {2, 3}}), tensor({{6, 6}, {1, 0}})}, 0},
       {{random_f64({2, 2}, 0, 1, true, 3), random_f64({2, 2}, 0, 1, true, 4)}, 0}},
      2, 0, 1e-12);
  EXPECT_THROW(embedding_bag(tensor({{0, 7}}), table, {}, {.mode = BagMode::sum}).sync(), IndexError);
}

TEST_P(Networks, ScoreFunctionsChangeAttention) {
  const Tensor q = random_f64({2, 4, 5, 3}, 0, 1, true, 1), k = random_f64({2, 4, 5, 3}, 0, 1, true, 2),
               v = random_f64({2, 4, 5, 2}, 0, 1, true, 3);
  // A causal mask, a bias and a soft cap as functions.
  expect_close(
      scaled_dot_product_attention(q, k, v, {.keeps = [](const ScorePlace& at) { return at.query >= at.key; }}),
      scaled_dot_product_attention(q, k, v, {.is_causal = true}), 1e-12);
  const Tensor slopes = alibi_slopes(4), place = astype(arange(5), DType::f64);
  const Tensor bias = slopes.astype(DType::f64).reshape({4, 1, 1}) * (place.reshape({1, 5}) - place.reshape({5, 1}));
  expect_close(scaled_dot_product_attention(q, k, v, {.score = alibi(slopes)}),
               scaled_dot_product_attention(q, k, v, {.mask = bias}), 1e-12);
  const Tensor scores = matmul(q, transpose(k)) / std::sqrt(3.0);
  expect_close(scaled_dot_product_attention(
                   q, k, v, {.score = [](const Tensor& s, const ScorePlace&) { return 2 * tanh(s / 2); }}),
               matmul(softmax(2 * tanh(scores / 2)), v), 1e-12);
  // Grouped heads see the numbers of query heads, batches their own.
  const Tensor shared_k = k.slice(1, 0, 2), shared_v = v.slice(1, 0, 2);
  expect_close(scaled_dot_product_attention(q, shared_k, shared_v, {.enable_gqa = true, .score = alibi(slopes)}),
               scaled_dot_product_attention(q, repeat(shared_k, 2, 1), repeat(shared_v, 2, 1), {.mask = bias}), 1e-12);
  const Tensor document = tensor({{0, 0, 1, 1, 1}, {0, 1, 1, 2, 2}});
  const auto same = [document](const ScorePlace& at) {
    const Tensor flat = document.reshape({10});
    return take(flat, at.batch * 5 + at.query, 0) == take(flat, at.batch * 5 + at.key, 0);
  };
  expect_close(scaled_dot_product_attention(q, k, v, {.keeps = same}),
               scaled_dot_product_attention(
                   q, k, v, {.mask = (expand_dims(document, 2) == expand_dims(document, 1)).reshape({2, 1, 5, 5})}),
               1e-12);
  check_gradients("attention",
                  [&](const Inputs& in) {
                    return scaled_dot_product_attention(in[0], in[1], in[2], {.score = alibi(slopes), .keeps = same});
                  },
                  {q, k, v});
  EXPECT_EQ(alibi_slopes(8).to_vector<float>()[7], 1.0f / 256);
  EXPECT_EQ(alibi_slopes(6).to_vector<float>(),
            (std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f}));
}

TEST(NetworksCompiled, AScoreFunctionFusesWithTheSoftmax) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor q = randn({2, 4, 32, 8}), k = randn({2, 4, 32, 8}), v = randn({2, 4, 32, 8}), slopes = alibi_slopes(4);
  sync({q, k, v, slopes});
  const std::string plan = explain(scaled_dot_product_attention(
      q, k, v,
      {.score = [](const Tensor& s, const ScorePlace& at) { return tanh(s) + 0.1f * (at.key - at.query); },
       .keeps = [](const ScorePlace& at) { return abs(at.key - at.query) < 8; }}));
  // On the tiles of the first product; what places alone decide is computed once for all heads.
  EXPECT_NE(plan.find("kernel multiply_tanh_add_where"), plan.npos) << plan;
}

/// Eight steps of an optimizer with the gradient x * x + step, as in the case; interrupted and resumed, and compiled.
template <class O, class Options> void follow(const std::string& name, const Options& options) {
  SCOPED_TRACE(name);
  const Tensor start = inputs("optim_" + name)[0];
  const Tensor x = copy(start), other = copy(start), third = copy(start);
  O optimizer({x}, options), before({other}, options), recorded({third}, options);
  auto resumed = std::make_unique<O>(std::vector{other}, options);
  const auto step = compile([&](const Tensor& number) { recorded.step(std::vector{square(third) + number}); });
  for (int k = 1; k <= 8; ++k) {
    optimizer.step(std::vector{square(x) + k});
    expect_close(x, golden().at("optim_" + name + "/y" + std::to_string(k)), 1e-9);  // some of its numbers are f32
    (k <= 3 ? before : *resumed).step(std::vector{square(other) + k});
    if (k == 3) {
      const std::vector<Tensor> from = before.state(), to = resumed->state();
      ASSERT_EQ(from.size(), to.size());
      for (std::size_t i = 0; i < from.size(); ++i) Tensor(to[i]).assign(from[i]);
    }
    step(tensor(static_cast<double>(k)));
  }
  EXPECT_TRUE(array_equal(x, other));
  expect_close(third, x, 1e-13);
}

TEST_P(Networks, OptimizersFollowPyTorch) {
  using namespace optim;
  follow<RMSprop>("rmsprop", RMSpropOptions{.learning_rate = 0.01, .weight_decay = 0.1});
  follow<RMSprop>("rmsprop_centered", RMSpropOptions{.learning_rate = 0.01, .momentum = 0.9, .centered = true});
  follow<Adagrad>(
      "adagrad",
      AdagradOptions{
          .learning_rate = 0.1, .learning_rate_decay = 0.1, .weight_decay = 0.1, .initial_accumulator_value = 0.2});
  follow<Adadelta>("adadelta", AdadeltaOptions{.learning_rate = 0.5, .weight_decay = 0.1});
  follow<Adamax>("adamax", AdamaxOptions{.learning_rate = 0.01, .weight_decay = 0.1});
  follow<NAdam>("nadam", NAdamOptions{.learning_rate = 0.01, .weight_decay = 0.1});
  follow<NAdam>("nadam_decoupled",
                NAdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true});
  follow<RAdam>("radam", RAdamOptions{.learning_rate = 0.01, .beta2 = 0.9, .weight_decay = 0.1});
  follow<RAdam>(
      "radam_decoupled",
      RAdamOptions{.learning_rate = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true, .maximize = true});
}

TEST_P(Networks, BlocksOfScoresThatDoNotCountAreLeftOut) {
  const Tensor q = random_f64({2, 4, 37, 6}, 0.1, 1, true, 1), k = random_f64({2, 2, 29, 6}, 0.1, 1, true, 2),
               v = random_f64({2, 2, 29, 5}, 0.1, 1, true, 3), bias = random_f64({37, 29}, 0.1, 1, true, 4);
  const ScoreMask masks[] = {
      [](const ScorePlace& at) { return abs(at.query - at.key) < 4; },
      [](const ScorePlace& at) { return at.query >= at.key; },
      [](const ScorePlace& at) { return (at.query < 8) | (remainder(at.key, 13) == 0); },
      [](const ScorePlace& at) { return at.query < 0; },
  };
  for (const ScoreMask& keeps : masks)
    for (const std::int64_t block : {4, 8, 64}) {
      const auto blocks = block_mask(keeps, 37, 29, block);
      EXPECT_LE(blocks->density(), 1);
      for (const bool causal : {false, true}) {
        AttentionOptions plain{.mask = bias, .is_causal = causal, .enable_gqa = true, .keeps = keeps};
        plain.score = [](const Tensor& score, const ScorePlace& at) { return score - 0.1 * abs(at.query - at.key); };
        AttentionOptions by_blocks = plain;
        by_blocks.keeps = {}, by_blocks.blocks = blocks;
        const auto attend = [&](const AttentionOptions& options) {
          return [&](const Tensor& x) { return sum(square(scaled_dot_product_attention(x, k, v, options))); };
        };
        expect_close(scaled_dot_product_attention(q, k, v, by_blocks), scaled_dot_product_attention(q, k, v, plain),
                     1e-12);
        expect_close(grad(attend(by_blocks))(q), grad(attend(plain))(q), 1e-11);
      }
    }
  EXPECT_LT(block_mask(masks[0], 37, 29, 4)->density(), 0.5);
  EXPECT_EQ(message<ShapeError>([&] {
              scaled_dot_product_attention(q, k, v, {.enable_gqa = true, .blocks = block_mask(masks[0], 4, 4)});
            }),
            "FM1079 ShapeError: scaled_dot_product_attention: the block mask is for 4 queries and 4 keys\n"
            "  query f64[2, 4, 37, 6]\n  key   f64[2, 2, 29, 6]\n  value f64[2, 2, 29, 5]\n  at    HERE");
}

/// Values of PyTorch 2.15 with f64 as its default dtype.
TEST_P(Networks, AsgdRpropAndAmsgradFollowPyTorch) {
  const auto follow_numbers = [](auto make, std::initializer_list<double> wanted, auto check) {
    const Tensor x = tensor(std::vector{1.0, -2.0, 3.0});
    auto optimizer = make(std::vector{x});
    for (const std::array<double, 3>& g : {std::array{2.0, -1.0, 0.5},
                                           {-1.0, -0.5, 0.25},
                                           {0.5, 3.0, -0.75},
                                           {1.5, 0.0, -0.25},
                                           {-0.1, 0.2, 4.0},
                                           {0.3, 0.1, -2.0}})
      optimizer->step(std::vector{tensor(std::vector(g.begin(), g.end()))});
    expect_close(x, tensor(std::vector<double>(wanted)), 1e-12);
    check(*optimizer);
  };
  const auto nothing = [](const auto&) {};
  const optim::AdamOptions adam{.learning_rate = 0.1, .beta2 = 0.5, .weight_decay = 0.1, .amsgrad = true};
  follow_numbers([&](auto x) { return std::make_unique<optim::Adam>(x, adam); },
                 {0.7000946143197038, -1.8547001872104771, 2.670343108266734}, nothing);
  optim::AdamOptions decoupled = adam;
  decoupled.maximize = true;
  follow_numbers([&](auto x) { return std::make_unique<optim::AdamW>(x, decoupled); },
                 {1.213243625496293, -1.9850400616213195, 3.0224664618651835}, nothing);
  const optim::AsgdOptions asgd{.learning_rate = 0.1, .decay = 0.5, .power = 0.6, .start = 2, .weight_decay = 0.05};
  follow_numbers([&](auto x) { return std::make_unique<optim::ASGD>(x, asgd); },
                 {0.4704376207805399, -1.6098805119310011, 2.0429123570374004},
                 [](const optim::ASGD& optimizer) {
                   expect_close(optimizer.averages()[0],
                                tensor(std::vector{0.5105424346725193, -1.6807859009946886, 2.1488606991471526}),
                                1e-12);
                 });
  const optim::RpropOptions rprop{
      .learning_rate = 0.1, .shrink = 0.4, .grow = 1.5, .smallest_step = 0.05, .largest_step = 0.2};
  follow_numbers([&](auto x) { return std::make_unique<optim::Rprop>(x, rprop); }, {0.725, -1.9, 2.86}, nothing);
}

TEST_P(Networks, LionGoesByTheSigns) {
  const Tensor x = tensor({1.0, -2.0, 3.0});
  optim::Lion lion({x}, {.learning_rate = 0.1, .weight_decay = 0.5});
  lion.step(std::vector{tensor({2.0, -1.0, 0.0})});
  expect_close(x, tensor({0.95 - 0.1, -1.9 + 0.1, 2.85}), 1e-6);
  lion.step(std::vector{tensor({-0.01, -5.0, 1.0})});  // the average is still above 0
  expect_close(x, tensor({0.85 * 0.95 - 0.1, -1.8 * 0.95 + 0.1, 2.85 * 0.95 - 0.1}), 1e-6);
}

TEST_P(Networks, MuonMakesStepsOrthogonal) {
  for (const Shape& shape : {Shape{6, 3}, Shape{3, 6}, Shape{4, 4}}) {
    const Tensor x = zeros(shape, DType::f64);
    optim::Muon muon({x}, {.learning_rate = 1, .weight_decay = 0});
    muon.step(std::vector{random_f64(shape, 0.1, 1, true, 5)});
    const double size = std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
    for (const double s : (linalg::svdvals(x) / size).to_vector<double>()) {
      EXPECT_GT(s, 0.5);
      EXPECT_LT(s, 1.3);
    }
  }
  EXPECT_EQ(message<Error>([&] { optim::Muon({zeros({3})}); }),
            "FM1083 ShapeError: Muon: parameters must be matrices\n  parameter f32[3]\n  at        HERE");
}

Tensor rosenbrock(const Tensor& x) {
  const Tensor a = x.slice(0, 0, -1), b = x.slice(0, 1);
  return sum(100 * square(b - square(a)) + square(1 - a));
}

TEST_P(Networks, LbfgsFindsMinima) {
  const Tensor start = inputs("lbfgs_fixed")[0];
  {
    const Tensor x = copy(start).requires_grad(true);
    optim::LBFGS lbfgs({x}, {.learning_rate = 0.01, .max_iterations = 10, .history_size = 3});
    for (int k = 1; k <= 3; ++k) {
      const double before = rosenbrock(x.detach()).item<double>();
      EXPECT_EQ(lbfgs.step([&] { return rosenbrock(x); }), before);
      expect_close(x.detach(), golden().at("lbfgs_fixed/y" + std::to_string(k)), 1e-9);
    }
  }
  // With a line search: the minimum, in two parameters, resumed on the way to the bit.
  const Tensor x = tensor(std::vector{0.2, 0.6}).requires_grad(true),
               y = tensor(std::vector{0.5, -0.3}).requires_grad(true);
  const Tensor u = copy(x.detach()).requires_grad(true), v = copy(y.detach()).requires_grad(true);
  const optim::LbfgsOptions options{
      .max_iterations = 5, .tolerance_change = 1e-16, .history_size = 4, .strong_wolfe = true};
  optim::LBFGS whole({x, y}, options), first({u, v}, options), second({u, v}, options);
  double loss = 1;
  for (int k = 0; k < 20; ++k) {
    loss = whole.step([&] { return rosenbrock(concat({x, y}, 0)); });
    (k < 4 ? first : second).step([&] { return rosenbrock(concat({u, v}, 0)); });
    if (k == 3)
      for (std::size_t i = 0; i < 3; ++i) Tensor(second.state()[i]).assign(first.state()[i]);
  }
  EXPECT_LT(loss, 1e-12);
  expect_close(concat({x, y}, 0).detach(), ones({4}, DType::f64), 1e-6);
  EXPECT_TRUE(array_equal(x.detach(), u.detach()) && array_equal(y.detach(), v.detach()));
}

TEST_P(Networks, ErrorsNameTheOperands) {
  const Tensor x = zeros({3, 4});
  EXPECT_EQ(message<Error>([&] { multi_margin_loss(x, zeros({4}, DType::i64)); }),
            "FM1022 ShapeError: multi_margin_loss: expected x [N, C] or [C], labels [N] or []\n"
            "  x      f32[3, 4]\n  labels i64[4]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { multilabel_margin_loss(x, x); }),
            "FM1107 DTypeError: multilabel_margin_loss: labels must be integers\n"
            "  x      f32[3, 4]\n  labels f32[3, 4]\n  at     HERE");
  EXPECT_EQ(
      message<Error>([&] {
        ctc_loss(x, zeros({2, 2}, DType::i64), zeros({}, DType::i64), zeros({}, DType::i64));
      }),
      "FM1022 ShapeError: ctc_loss: expected log_probs [T, N, C], targets [N, S] and lengths [N], or all without N\n"
      "  x       f32[3, 4]\n  targets i64[2, 2]\n  at      HERE");
  EXPECT_EQ(message<Error>([&] { embedding_bag(zeros({3}, DType::i64), x); }),
            "FM1077 ShapeError: embedding_bag: expected weight [V, D] and index [B, n], or index [n] and offsets [B]\n"
            "  index  i64[3]\n  weight f32[3, 4]\n  at     HERE");
  EXPECT_EQ(message<Error>(
                [&] { scaled_dot_product_attention(x, x, x, {.keeps = [](const ScorePlace&) { return ones({2}); }}); }),
            "FM1079 ShapeError: scaled_dot_product_attention: the result of `keeps` does not match the scores\n"
            "  scores f32[3, 3]\n  keeps  f32[2]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { optim::LBFGS({}); }),
            "FM1377 ValueError: LBFGS: there are no parameters\n  at   HERE");
}

}  // namespace
}  // namespace fermata
