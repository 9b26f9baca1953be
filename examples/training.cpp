// The first example of docs/modes.md: a whole step of training as one compiled function, beside the same step in eager
// mode.
//
// Exits with an error unless both have the same parameters in the end.
#include <fermata/fermata.h>

#include <cstdio>

namespace fm = fermata;
using fm::Tensor;

namespace {

struct Model {  // a struct of tensors is a tree: optimizers, gradients and compiled functions take it as it is
  Tensor hidden, hidden_bias, out;
};
Model make_model() {
  fm::manual_seed(1);
  Model m{fm::randn({16, 64}) * 0.25, fm::zeros({64}), fm::randn({64, 3}) * 0.125};
  fm::each_tensor(m, [](Tensor& t) { t.sync(), t.requires_grad(true); });
  return m;
}
Tensor loss_of(const Model& m, const Tensor& x, const Tensor& labels) {
  return fm::cross_entropy(fm::matmul(fm::gelu(fm::matmul(x, m.hidden) + m.hidden_bias), m.out), labels);
}

std::vector<float> trained(fm::Mode mode) {
  const fm::ModeGuard guard(mode);
  const Model model = make_model();
  fm::optim::AdamW adam(model, {.learning_rate = 1e-2});
  auto step = fm::compile([&](const Tensor& x, const Tensor& labels) {
    adam.zero_grad();
    const Tensor loss = loss_of(model, x, labels);
    loss.backward();
    adam.step();
    return loss.detach();
  });

  const Tensor x = fm::randn({128, 16}).sync(), labels = fm::randint(0, 3, {128}).sync();
  for (int i = 1; i <= 100; ++i) {
    adam.options.learning_rate = 1e-2 / (1 + 0.05 * i);  // an argument: nothing is recorded again
    const Tensor loss = step(x, labels);
    if (i % 25 == 0) std::printf("  step %3d  loss %.4f\n", i, loss.item<double>());
  }
  std::printf("  recorded %zu times\n", step.captures());
  return fm::concat({fm::reshape(model.hidden, {-1}), fm::reshape(model.out, {-1})}).to_vector<float>();
}

}  // namespace

int main() {
  std::printf("eager\n");
  const std::vector<float> eager = trained(fm::Mode::eager);
  std::printf("compiled\n");
  const std::vector<float> compiled = trained(fm::Mode::compiled);
  if (eager == compiled) return 0;
  std::printf("the parameters differ\n");
  return 1;
}
