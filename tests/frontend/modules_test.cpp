// Modules as trees: names, state dicts, training and evaluation, and the transforms that take them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fermata/modules.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Names = std::vector<std::string>;

struct Block {
  nn::Linear up{4, 8}, down{8, 4};
  nn::Dropout drop{0.5};
  Tensor forward(const Tensor& x) const { return x + down(drop(relu(up(x)))); }
};
struct Net {
  std::vector<Block> blocks = std::vector<Block>(2);
  nn::BatchNorm norm{4};
  std::map<std::string, nn::Linear> heads{{"class", nn::Linear(4, 3)}, {"value", nn::Linear(4, 1, {.bias = false})}};
  std::optional<nn::Linear> extra = {};
  std::pair<Tensor, double> scale{ones({4}), 2.0};
  Buffer table{arange(3)};
  int depth = 2;
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const Block& block : blocks) y = block.forward(y);
    return heads.at("class")(norm(y) * scale.first);
  }
};
/// A class with members of its own to hide.
class Hidden {
 public:
  Tensor forward(const Tensor& x) const { return inner_(x) * gain_; }
  FERMATA_TREE(inner_, gain_)

 private:
  nn::Linear inner_{2, 2, {.bias = false}};
  Tensor gain_ = ones({2});
};

template <class List> Names names_of(const List& list) {
  Names names;
  for (const auto& [name, value] : list) names.push_back(name);
  return names;
}
std::vector<float> values(const Tensor& x) { return x.astype(DType::f32).to_vector<float>(); }
Tensor sample(const Shape& shape, std::uint64_t seed = 1) {
  return random_f64(shape, 0, 1, true, seed).astype(DType::f32);
}

class Modules : public InBothModes {
 protected:
  Modules() { manual_seed(7); }
};
INSTANTIATE_TEST_SUITE_P(Modes, Modules, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

TEST_P(Modules, PartsHaveTheNamesOfTheirMembers) {
  const Net net;
  EXPECT_EQ(
      names_of(nn::named_parameters(net)),
      (Names{"blocks.0.up.weight", "blocks.0.up.bias", "blocks.0.down.weight", "blocks.0.down.bias",
             "blocks.1.up.weight", "blocks.1.up.bias", "blocks.1.down.weight", "blocks.1.down.bias", "norm.weight",
             "norm.bias", "heads.class.weight", "heads.class.bias", "heads.value.weight", "scale.0"}));
  EXPECT_EQ(names_of(nn::named_buffers(net)),
            (Names{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "table"}));
  EXPECT_EQ(nn::parameters(net).size(), 14u);
  EXPECT_EQ(nn::state_dict(net).size(), 18u);
  EXPECT_EQ(nn::parameter_count(net), 2 * (32 + 8 + 32 + 4) + 8 + 15 + 4 + 4);
  EXPECT_EQ(names_of(nn::named_parameters(Hidden())), (Names{"inner.weight", "gain"}));
  EXPECT_EQ(names_of(nn::named_parameters(nn::Sequential(nn::Linear(2, 2, {.bias = false}), nn::ReLU(), Hidden()))),
            (Names{"0.weight", "2.inner.weight", "2.gain"}));
  struct Local {
    Tensor first_ = ones({1}), second = ones({1});
  };
  EXPECT_EQ(names_of(nn::named_parameters(Local())), (Names{"first", "second"}));
  const nn::LSTM lstm(2, 3, {.layers = 2, .bias = false, .bidirectional = true});
  EXPECT_EQ(names_of(nn::named_parameters(lstm)),
            (Names{"weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse", "weight_ih_l1",
                   "weight_hh_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse"}));
  EXPECT_TRUE(nn::named_parameters(nn::Identity()).empty());
  // Members that have to be given, and members of all kinds side by side.
  struct Given {
    nn::Linear a;
    nn::Dropout drop;
    int depth;
    nn::Sequential<nn::Linear, nn::ReLU> b;
    std::array<nn::Linear, 2> pair;
  };
  const nn::Linear one(1, 1, {.bias = false});
  EXPECT_EQ(names_of(nn::named_parameters(Given{one, {}, 2, nn::Sequential(one, nn::ReLU()), {one, one}})),
            (Names{"a.weight", "b.0.weight", "pair.0.weight", "pair.1.weight"}));
}

TEST_P(Modules, OptimizersLeaveBuffersAlone) {
  Net net;
  optim::SGD sgd(net, {.learning_rate = 1});
  EXPECT_EQ(sgd.parameters().size(), nn::parameters(net).size());
  const auto loss = [](const Net& at) { return sum(at.forward(ones({3, 4}))) + sum(at.norm.running_mean.value); };
  nn::eval(net);
  const Net gradient = grad(loss)(net);
  const auto before = values(net.norm.running_mean), weight = values(net.heads.at("class").weight);
  sgd.step(gradient);
  EXPECT_EQ(values(net.norm.running_mean), before);
  EXPECT_NE(values(net.heads.at("class").weight), weight);
}

TEST_P(Modules, StateDictsAreLoadedByName) {
  Net a, b;
  const Tensor x = sample({5, 4});
  nn::eval(a), nn::eval(b);
  EXPECT_NE(values(a.forward(x)), values(b.forward(x)));
  const Tensor held = b.norm.weight;
  nn::load_state_dict(b, nn::state_dict(a));
  EXPECT_EQ(values(a.forward(x)), values(b.forward(x)));
  a.norm.weight.requires_grad(false);
  a.norm.weight += 1;
  EXPECT_EQ(values(held), (std::vector<float>{1, 1, 1, 1}));  // elements, not handles
  EXPECT_TRUE(held.requires_grad());

  // Elements become those of the module's dtype; {.assign = true} takes the tensors.
  nn::Linear wide(2, 2, {.bias = false, .dtype = DType::f64});
  const Tensor given = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}).astype(DType::f64);
  nn::load_state_dict(wide, {{"weight", given.astype(DType::f16)}});
  EXPECT_EQ(wide.weight.dtype(), DType::f64);
  EXPECT_EQ(values(wide.weight), values(given));
  nn::load_state_dict(wide, {{"weight", given}}, {.assign = true});
  EXPECT_TRUE(wide.weight.requires_grad());
  nn::load_state_dict(wide, {{"other", given}}, {.strict = false});
}

TEST_P(Modules, WhatDoesNotFitIsListed) {
  nn::Sequential net(nn::Linear(2, 3), nn::Linear(3, 1));
  const NamedTensors state{{"0.weight", ones({2, 2})}, {"0.bias", ones({3})}, {"1.wait", ones({1})}};
  EXPECT_EQ(message<ValueError>([&] { nn::load_state_dict(net, state); }),
            "FM1380 ValueError: load_state_dict: the tensors do not match the module\n"
            "  missing 1.weight, 1.bias\n"
            "  unknown 1.wait\n"
            "  shapes  0.weight ([2, 2], not [3, 2])\n"
            "  at      HERE");
  EXPECT_NE(values(net.get<0>().bias), values(ones({3})));  // nothing was written
  const NamedTensors rest{{"0.bias", ones({3})}};
  EXPECT_EQ(message<ValueError>([&] { nn::load_state_dict(net, rest); }),
            "FM1380 ValueError: load_state_dict: the tensors do not match the module\n"
            "  missing 0.weight, 1.weight, 1.bias\n"
            "  at      HERE\n"
            "  hint    {.strict = false} loads the ones that match");
  nn::load_state_dict(net, rest, {.strict = false});
  EXPECT_EQ(values(net.get<0>().bias), values(ones({3})));
  EXPECT_EQ(message<ValueError>([&] { nn::freeze(net, "2."); }),
            "FM1381 ValueError: freeze: no parameter has a name that begins with '2.'\n"
            "  names 0.weight, 0.bias, 1.weight, 1.bias\n"
            "  at    HERE");
}

TEST_P(Modules, FrozenParametersWantNoGradient) {
  Net net;
  nn::freeze(net, "blocks.0.");
  EXPECT_EQ(nn::trainable_parameters(net).size(), 9u);  // not those of the block, nor the plain tensor
  nn::eval(net);
  sum(net.forward(ones({2, 4}))).backward();
  EXPECT_FALSE(net.blocks[0].up.weight.grad().defined());
  EXPECT_TRUE(net.blocks[1].up.weight.grad().defined());
  nn::unfreeze(net);
  EXPECT_EQ(nn::trainable_parameters(net).size(), 14u);
  nn::zero_grad(net);
  EXPECT_FALSE(net.blocks[1].up.weight.grad().defined());
}

TEST_P(Modules, DtypesChangeForFloatingTensorsOnly) {
  Net net;
  nn::to(net, DType::f64);
  for (const auto& [name, x] : nn::state_dict(net))
    EXPECT_EQ(x.dtype(), name == "table" || name == "norm.num_batches_tracked" ? DType::i64 : DType::f64) << name;
  EXPECT_TRUE(net.norm.weight.requires_grad());
  EXPECT_EQ(net.forward(sample({3, 4}).astype(DType::f64)).dtype(), DType::f64);
  nn::to(net, cpu(), DType::f32);
  EXPECT_EQ(net.norm.weight.dtype(), DType::f32);
  EXPECT_EQ(message<DTypeError>([&] { nn::to(net, DType::i32); }),
            "FM1101 DTypeError: to: does not take i32\n"
            "  at   HERE\n"
            "  hint parameters must be floating");
}

TEST_P(Modules, TrainingIsWhatTrainSays) {
  Net net;
  const Tensor x = sample({64, 4});
  EXPECT_NE(values(net.forward(x)), values(net.forward(x)));  // dropout
  EXPECT_EQ(net.norm.num_batches_tracked.value.item<int>(), 2);
  nn::eval(net);
  EXPECT_FALSE(net.blocks[1].drop.training);
  EXPECT_EQ(values(net.forward(x)), values(net.forward(x)));
  EXPECT_EQ(net.norm.num_batches_tracked.value.item<int>(), 2);
  nn::train(net);
  EXPECT_TRUE(net.blocks[1].drop.training);
}

TEST_P(Modules, CompiledFunctionsSeeTheModeOfAModule) {
  nn::Dropout drop(0.5);
  auto captured = compile([&](const Tensor& x) { return drop(x); });
  auto given = compile([](const nn::Dropout& d, const Tensor& x) { return d(x); });
  const Tensor x = ones({256});
  const auto zeros_in = [](const Tensor& y) {
    const auto v = values(y);
    return std::count(v.begin(), v.end(), 0.0f);
  };
  for (int round = 0; round < 3; ++round) {
    nn::train(drop);
    for (int i = 0; i < 3; ++i) EXPECT_GT(zeros_in(captured(x)), 64);
    EXPECT_GT(zeros_in(given(drop, x)), 64);
    nn::eval(drop);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(zeros_in(captured(x)), 0);
    EXPECT_EQ(zeros_in(given(drop, x)), 0);
  }
  EXPECT_EQ(captured.captures(), GetParam() == Mode::compiled ? 2u : 0u);
  nn::train(drop);
  drop.p = 1;
  EXPECT_EQ(zeros_in(captured(x)), 256);
}

/// Losses of a few steps of training, and what is left in the buffers.
template <class Step> std::vector<float> trained(const Net& net, Step&& step) {
  std::vector<float> losses;
  for (int i = 0; i < 6; ++i) {
    const Tensor x = sample({16, 4}, static_cast<std::uint64_t>(i));
    losses.push_back(step(x, argmax(x.slice(1, 0, 3), 1)).template item<float>());
  }
  const auto mean = values(net.norm.running_mean);
  losses.insert(losses.end(), mean.begin(), mean.end());
  return losses;
}

TEST_P(Modules, TrainInsideCompiledFunctions) {
  const auto run = [](bool compiled) {
    manual_seed(3);
    const Net net;
    optim::AdamW adam(net, {.learning_rate = 0.02});
    const auto step = [&](const Tensor& x, const Tensor& labels) {
      adam.zero_grad();
      const Tensor loss = cross_entropy(net.forward(x), labels);
      loss.backward();
      adam.step();
      return loss.detach();
    };
    if (!compiled) return trained(net, step);
    auto once = compile(step);
    return trained(net, once);
  };
  const auto plain = run(false);
  EXPECT_EQ(plain, run(true));
  EXPECT_LT(plain[5], plain[0]);
}

TEST_P(Modules, AreArgumentsAndResultsOfCompiledFunctions) {
  const nn::Sequential net(nn::Linear(3, 4), nn::Tanh(), nn::LayerNorm(4), nn::Linear(4, 1));
  const auto loss = [](const auto& model, const Tensor& x) { return sum(square(model(x))); };
  auto gradient = compile([&](const decltype(net)& model, const Tensor& x) { return value_and_grad(loss)(model, x); });
  const Tensor x = sample({5, 3});
  const auto [wanted, by_hand] = value_and_grad(loss)(net, x);
  for (int i = 0; i < 3; ++i) {
    const auto [value, gradients] = gradient(net, x);
    EXPECT_NEAR(value.template item<float>(), wanted.template item<float>(), 1e-5);
    for (std::size_t k = 0; k < 6; ++k)
      EXPECT_TRUE(nn::parameters(gradients)[k].allclose(nn::parameters(by_hand)[k], 1e-4, 1e-5)) << k;
  }
}

TEST_P(Modules, EnsemblesRunUnderVmap) {
  std::vector<Net> nets(3);
  for (Net& net : nets) nn::eval(net);
  const Net ensemble = nn::stack(nets);
  EXPECT_EQ(ensemble.norm.weight.shape(), Shape({3, 4}));
  const Tensor x = sample({5, 4});
  const auto run = [](const Net& net, const Tensor& at) { return net.forward(at); };
  const Tensor all = vmap(run, {0, unbatched})(ensemble, x);
  ASSERT_EQ(all.shape(), Shape({3, 5, 3}));
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(all[i].allclose(nets[static_cast<std::size_t>(i)].forward(x), 1e-5, 1e-6)) << i;
  // A gradient for each of them, and recurrent modules.
  const auto loss = [](const Net& net, const Tensor& at) { return sum(square(net.forward(at))); };
  const Net gradients = vmap(grad(loss), {0, unbatched})(ensemble, x);
  const Net alone = grad(loss)(nets[1], x);
  EXPECT_TRUE(gradients.blocks[0].up.weight[1].allclose(alone.blocks[0].up.weight, 1e-4, 1e-5));
  const std::vector<nn::GRU> grus{nn::GRU(4, 3), nn::GRU(4, 3)};
  const Tensor hidden = vmap([](const nn::GRU& gru, const Tensor& at) { return gru.forward(at).output; },
                             {0, unbatched})(nn::stack(grus), x);
  EXPECT_TRUE(hidden[1].allclose(grus[1].forward(x).output, 1e-5, 1e-6));
  EXPECT_EQ(message<ValueError>([] { nn::stack(std::vector<nn::Linear>()); }),
            "FM1382 ValueError: stack: requires modules with the same tensors\n  at   HERE");
}

TEST_P(Modules, RunUnderAutocast) {
  const nn::Sequential net(nn::Linear(8, 16), nn::GELU(), nn::LayerNorm(16), nn::Linear(16, 4));
  const nn::LSTM lstm(8, 4);
  const nn::MultiheadAttention attention(8, 2);
  const Tensor x = sample({3, 5, 8});
  Tensor wide = net(x), of_lstm = lstm.forward(x).output, of_attention = attention.forward(x);
  {
    const AutocastGuard guard(DType::bf16);
    EXPECT_EQ(net(x).dtype(), DType::bf16);
    EXPECT_TRUE(net(x).astype(DType::f32).allclose(wide, 0.1, 0.1));
    EXPECT_TRUE(lstm.forward(x).output.astype(DType::f32).allclose(of_lstm, 0.1, 0.05));
    EXPECT_TRUE(attention.forward(x).astype(DType::f32).allclose(of_attention, 0.1, 0.1));
    sum(square(lstm.forward(x).output)).backward();
  }
  EXPECT_EQ(lstm.weights[0].grad().dtype(), DType::f32);
}

TEST_P(Modules, KeysAndValuesAreKept) {
  const nn::MultiheadAttention attention(8, 2);
  const Tensor text = sample({2, 6, 8});
  const Tensor whole = attention.forward(text, {.is_causal = true});
  nn::KeyValueCache cache = attention.make_cache(2, 8);
  // Some positions at once, then one by one.
  std::vector<Tensor> parts{attention.forward(text.slice(1, 0, 3), cache)};
  for (int i = 3; i < 6; ++i) parts.push_back(attention.forward(text.slice(1, i, i + 1), cache));
  EXPECT_TRUE(concat(parts, 1).allclose(whole, 1e-5, 1e-6));
  EXPECT_EQ(cache.length.item<int>(), 6);

  // Inside a compiled function every position is the same program.
  nn::KeyValueCache again = attention.make_cache(2, 8);
  auto next = compile([&](const Tensor& x) { return attention.forward(x, again); });
  for (int i = 0; i < 6; ++i)
    EXPECT_TRUE(next(copy(text.slice(1, i, i + 1))).allclose(whole.slice(1, i, i + 1), 1e-5, 1e-6)) << i;
  EXPECT_EQ(next.captures(), GetParam() == Mode::compiled ? 1u : 0u);
  EXPECT_THROW((attention.forward(sample({2, 3, 8}), again).sync()), IndexError);
}

TEST_P(Modules, ClonesAreApart) {
  nn::Linear a(2, 2);
  const nn::Linear b = nn::clone(a), shared = a;
  nn::init::zeros(a.weight);
  EXPECT_EQ(values(shared.weight), values(a.weight));
  EXPECT_NE(values(b.weight), values(a.weight));
  EXPECT_TRUE(b.weight.requires_grad());
}

TEST_P(Modules, GradientsAddUpAndAreClipped) {
  const nn::Linear net(3, 2);
  const Tensor x = sample({8, 3});
  const auto loss = [&](const nn::Linear& at, const Tensor& batch) { return mean(square(at(batch))); };
  const nn::Linear whole = grad(loss)(net, x);
  optim::GradientAccumulator sums;
  for (int i = 0; i < 4; ++i) sums.add(grad(loss)(net, x.slice(0, 2 * i, 2 * i + 2)));
  EXPECT_EQ(sums.count(), 4);
  const std::vector<Tensor> mean_of_all = sums.take();
  EXPECT_EQ(sums.count(), 0);
  EXPECT_TRUE(mean_of_all[0].allclose(whole.weight, 1e-5, 1e-6));

  sum(square(net(x))).backward();
  std::vector<Tensor> gradients = nn::gradients(net);
  optim::clip_grad_norm(gradients, 0.5);
  EXPECT_NEAR(std::sqrt(sum(square(gradients[0])).item<float>() + sum(square(gradients[1])).item<float>()), 0.5, 1e-4);
  optim::SGD(net).step(gradients);
}

TEST_P(Modules, InitializersWriteInPlace) {
  const Tensor w = zeros({64, 32, 3});
  Tensor leaf = zeros({64, 32}).requires_grad(true);
  const auto deviation = [](const Tensor& x) { return x.std().item<double>(); };
  nn::init::kaiming_normal(w, "relu");
  EXPECT_NEAR(deviation(w), std::sqrt(2.0 / 96), 0.005);
  nn::init::kaiming_uniform(w, "linear", 0, nn::init::Fan::out);
  EXPECT_NEAR(max(abs(w)).item<double>(), std::sqrt(3.0 / 192), 1e-3);
  nn::init::xavier_normal(leaf);
  EXPECT_NEAR(deviation(leaf), std::sqrt(2.0 / 96), 0.01);
  nn::init::xavier_uniform(leaf, 2);
  EXPECT_NEAR(max(abs(leaf)).item<double>(), 2 * std::sqrt(6.0 / 96), 1e-2);
  EXPECT_TRUE(leaf.requires_grad());
  nn::init::truncated_normal(w, 1, 0.5, 0.5, 1.5);
  EXPECT_GE(min(w).item<float>(), 0.5f);
  EXPECT_LE(max(w).item<float>(), 1.5f);
  nn::init::orthogonal(leaf, 3);
  EXPECT_TRUE(matmul(transpose(leaf), leaf).allclose(eye(32) * 9, 1e-4, 1e-4));
  const Tensor flat = zeros({4, 2, 5});
  nn::init::orthogonal(flat);
  EXPECT_TRUE(matmul(flat.reshape({4, 10}), transpose(flat.reshape({4, 10}))).allclose(eye(4), 1e-4, 1e-4));
  nn::init::eye(leaf);
  EXPECT_EQ(sum(leaf).item<float>(), 32);
  const Tensor filters = zeros({2, 2, 3}), signal = sample({1, 2, 5});
  nn::init::dirac(filters);
  EXPECT_TRUE(conv1d(signal, filters, {}, 1, "same").allclose(signal));
  EXPECT_EQ(message<ShapeError>([] { nn::init::xavier_normal(zeros({3})); }),
            "FM1083 ShapeError: xavier_normal: x has fewer than 2 axes\n  x    f32[3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { nn::init::gain("swish"); }),
            "FM1377 ValueError: gain: unknown activation 'swish'\n  at   HERE");
}

TEST_P(Modules, WrongSizesAreErrorsOfTheLine) {
  EXPECT_EQ(message<ValueError>([] { nn::Linear(0, 3); }),
            "FM1377 ValueError: Linear: in is 0, not positive\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }),
            "FM1377 ValueError: Conv: 2 groups do not divide 3 and 4 channels\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              nn::Conv2d(3, 4, {3, 3, 3});
            }),
            "FM1372 ValueError: Conv: kernel has 3 numbers, not one or 2\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { nn::MultiheadAttention(6, 4); }),
            "FM1377 ValueError: MultiheadAttention: 4 heads do not divide a width of 6\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              nn::LSTM(3, 2).forward(ones({4, 2}));
            }),
            "FM1084 ShapeError: LSTM: x must be a sequence of vectors of 3 elements, with or without a batch\n"
            "  x    f32[4, 2]\n"
            "  at   HERE");
  const nn::Linear linear(4, 3);
  EXPECT_EQ(message<ShapeError>([&] { linear(ones({2, 5})); }).substr(0, 6), "FM1023");
}

}  // namespace
}  // namespace fermata
