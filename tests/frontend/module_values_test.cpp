// Modules and schedules against PyTorch: golden/modules.safetensors, which golden/write_modules.py writes.
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/modules.h"
#include "fermata/safetensors.h"
#include "fermata/schedules.h"
#include "tests/frontend/gradient_check.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using namespace testing;

const NamedTensors& golden() {
  static const NamedTensors values = load_safetensors(fermata::test_folder() + "/frontend/golden/modules.safetensors");
  return values;
}
/// The tensors of a case whose names begin with a part, without it.
NamedTensors part(const std::string& name, const std::string& which) {
  NamedTensors found;
  const std::string prefix = name + "/" + which;
  for (const auto& [key, value] : golden())
    if (key.starts_with(prefix)) found.emplace(key.substr(prefix.size()), value);
  return found;
}
std::vector<Tensor> list(const std::string& name, const std::string& which) {
  std::vector<Tensor> all;
  for (const auto& [key, value] : part(name, which)) all.push_back(value);
  return all;
}
void expect_close(const Tensor& found, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.shape(), wanted.shape()) << what;
  const auto a = found.to_vector<double>(), b = wanted.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-10 * (1 + std::abs(b[i]))) << what << " " << i;
}

class ModuleValues : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, ModuleValues, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// Results, gradients and buffers of a module with the state of a case.
template <class M, class F> void check(const std::string& name, M module, F&& call, bool training = true) {
  SCOPED_TRACE(name);
  nn::load_state_dict(module, part(name, "state."));
  nn::train(module, training);
  std::vector<Tensor> xs = list(name, "x");
  for (Tensor& x : xs)
    if (x.dtype() == DType::f64) x = copy(x).requires_grad(true);
  const std::vector<Tensor> found = call(module, xs), wanted = list(name, "y"), weights = list(name, "w");
  ASSERT_EQ(found.size(), wanted.size());
  Tensor total = zeros({}, DType::f64);
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect_close(found[i], wanted[i], "y" + std::to_string(i));
    total = total + sum(found[i] * weights[i]);
  }
  total.backward();
  for (const auto& [i, gradient] : part(name, "dx")) expect_close(xs.at(std::stoul(i)).grad(), gradient, "dx" + i);
  NamedTensors parameters;
  for (const auto& [key, parameter] : nn::named_parameters(module)) parameters.emplace(key, parameter);
  const NamedTensors gradients = part(name, "grad.");
  EXPECT_EQ(gradients.size(), parameters.size());
  for (const auto& [key, gradient] : gradients) expect_close(parameters.at(key).grad(), gradient, key);
  const NamedTensors after = part(name, "after."), state = nn::state_dict(module);
  for (const auto& [key, buffer] : after) expect_close(state.at(key), buffer, key);
}
template <class M> void check(const std::string& name, M module, bool training = true) {
  const auto call = [](const M& m, const std::vector<Tensor>& x) { return std::vector{m.forward(x[0])}; };
  check(name, std::move(module), call, training);
}

constexpr DType kWide = DType::f64;

TEST_P(ModuleValues, LinearAndEmbedding) {
  check("linear", nn::Linear(4, 3, {.dtype = kWide}));
  check("linear_no_bias", nn::Linear(4, 3, {.bias = false, .dtype = kWide}));
  check("embedding", nn::Embedding(6, 3, {.padding_idx = 2, .dtype = kWide}));
}

TEST_P(ModuleValues, Convolutions) {
  check("conv1d", nn::Conv1d(4, 6, 3, {.stride = 2, .padding = 1, .groups = 2, .dtype = kWide}));
  check("conv2d", nn::Conv2d(2, 3, {3, 2}, {.stride = {1, 2}, .padding = {0, 1}, .dilation = {2, 1}, .dtype = kWide}));
  check("conv2d_same", nn::Conv2d(2, 3, 3, {.padding = "same", .bias = false, .dtype = kWide}));
  check("conv3d", nn::Conv3d(2, 2, 2, {.dtype = kWide}));
  check("conv_transpose1d",
        nn::ConvTranspose1d(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .dtype = kWide}));
  check("conv_transpose2d", nn::ConvTranspose2d(2, 3, {2, 3}, {.stride = 2, .dilation = {1, 2}, .dtype = kWide}));
  check("conv_transpose3d", nn::ConvTranspose3d(1, 2, 2, {.bias = false, .dtype = kWide}));
}

TEST_P(ModuleValues, Normalizations) {
  check("batch_norm", nn::BatchNorm2d(3, {.dtype = kWide}));
  check("batch_norm_eval", nn::BatchNorm1d(3, {.eps = 1e-3, .dtype = kWide}), false);
  const nn::InstanceNormOptions tracked{.affine = true, .track_running_stats = true, .dtype = kWide};
  check("instance_norm", nn::InstanceNorm(3, tracked));
  check("instance_norm_eval", nn::InstanceNorm(3, tracked), false);
  check("group_norm", nn::GroupNorm(2, 4, {.dtype = kWide}));
  check("layer_norm", nn::LayerNorm({3, 4}, {.dtype = kWide}));
}

TEST_P(ModuleValues, Attention) {
  const auto cross = [](const nn::MultiheadAttention& m, const std::vector<Tensor>& x) {
    return std::vector{m.forward(x[0], x[1], x[2])};
  };
  check("attention", nn::MultiheadAttention(6, 2, {.dtype = kWide}), cross);
  const auto causal = [](const nn::MultiheadAttention& m, const std::vector<Tensor>& x) {
    return std::vector{m.forward(x[0], {.is_causal = true})};
  };
  check("attention_causal", nn::MultiheadAttention(4, 2, {.bias = false, .dtype = kWide}), causal);
}

TEST_P(ModuleValues, RecurrentNetworks) {
  const nn::RecurrentOptions deep{.layers = 2, .bidirectional = true, .dtype = kWide};
  const auto call = [](const auto& m, const std::vector<Tensor>& x) {
    const auto result = m.forward(x[0], x.size() > 1 ? x[1] : Tensor());
    return std::vector{result.output, result.hidden};
  };
  check("rnn", nn::RNN(3, 4, deep), call);
  check("gru", nn::GRU(3, 4, deep), call);
  check("gru_plain", nn::GRU(3, 2, {.bias = false, .dtype = kWide}), call);
  const auto with_cell = [](const nn::LSTM& m, const std::vector<Tensor>& x) {
    const auto result = x.size() > 1 ? m.forward(x[0], x[1], x[2]) : m.forward(x[0]);
    return std::vector{result.output, result.hidden, result.cell};
  };
  nn::RecurrentOptions batch_first = deep;
  batch_first.batch_first = true;
  check("lstm", nn::LSTM(3, 4, batch_first), with_cell);
  check("lstm_plain", nn::LSTM(3, 2, {.dtype = kWide}), with_cell);
}

TEST_P(ModuleValues, Networks) {
  nn::Sequential net(nn::Conv2d(1, 2, 3, {.dtype = kWide}), nn::BatchNorm2d(2, {.dtype = kWide}), nn::ReLU(),
                     nn::Flatten(), nn::Linear(8, 3, {.dtype = kWide}), nn::GELU());
  check("sequential", net);
}

TEST(Schedules, FollowPyTorch) {
  using namespace optim::schedule;
  const auto expect = [](const std::string& name, const optim::Schedule& rate) {
    const auto wanted = golden().at(name + "/rates").to_vector<double>();
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(rate(static_cast<std::int64_t>(i)), wanted[i], 1e-12) << name << " " << i;
  };
  expect("step", step_decay(0.1, 5, 0.5));
  expect("multi_step", multi_step(0.1, {3, 10, 11}, 0.3));
  expect("exponential", exponential(0.1, 0.9));
  expect("linear", linear(0.025, 0.1, 8));
  expect("polynomial", polynomial(0.1, 15, 2));
  expect("cosine", cosine(0.1, 20, 0.01));
  expect("warm_restarts", warm_restarts(0.1, 4, 2, 0.01));
  expect("one_cycle", one_cycle(0.5, 24));
  expect("warmup_cosine", warmup(5, cosine(0.1, 18)));

  optim::ReduceOnPlateau plateau(0.1, {.factor = 0.5, .patience = 2, .cooldown = 1, .lowest = 0.01});
  const auto losses = golden().at("plateau/losses").to_vector<double>();
  const auto rates = golden().at("plateau/rates").to_vector<double>();
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(plateau.update(losses[i]), rates[i], 1e-12) << i;
}

TEST(Schedules, StayWhereTheyEnd) {
  using namespace optim::schedule;
  EXPECT_EQ(cosine(0.1, 20, 0.01)(1000), 0.01);
  EXPECT_EQ(linear(0.5, 0.25, 4)(1000), 0.25);
  EXPECT_EQ(polynomial(0.5, 4)(1000), 0);
  EXPECT_EQ(constant(0.5)(7), 0.5);
  EXPECT_NEAR(one_cycle(1, 10)(1000), one_cycle(1, 10)(9), 1e-15);
  EXPECT_EQ(sequence({{2, constant(1)}, {2, constant(2)}})(100), 2);
}

}  // namespace
}  // namespace fermata
