// A small network on a custom device: forward, softmax, gradients and a training step, in both modes and with
// compile(), compared with the CPU. The exit status is nonzero if a number differs.
#include <fermata/fermata.h>

#include <cmath>
#include <iostream>

#include "tally.h"

namespace fm = fermata;

namespace {

constexpr fm::Device kTally = fm::BackendKey::private_use1, kCpu = fm::cpu();
int wrong = 0;

void expect(bool holds, const std::string& what) {
  std::cout << (holds ? "  ok     " : "  WRONG  ") << what << '\n';
  wrong += holds ? 0 : 1;
}

void expect_close(const fm::Tensor& got, const fm::Tensor& wanted, const std::string& what) {
  const std::vector<double> a = got.to_vector<double>(), b = wanted.to_vector<double>();
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  expect(worst < 1e-5, what + ", largest difference " + std::to_string(worst));
}

struct Network {
  fm::Tensor w1, b1, w2, b2;

  Network on(fm::Device device) const {
    Network copy{fm::to(w1, device), fm::to(b1, device), fm::to(w2, device), fm::to(b2, device)};
    for (fm::Tensor* p : {&copy.w1, &copy.b1, &copy.w2, &copy.b2}) *p = p->detach(), p->requires_grad(true);
    return copy;
  }
  fm::Tensor forward(const fm::Tensor& x) const {
    const fm::Tensor hidden = fm::gelu(fm::linear(x, w1, b1));
    return fm::softmax(fm::linear(hidden, w2, b2), -1);
  }
  /// One step of gradient descent on the squared error.
  fm::Tensor train(const fm::Tensor& x, const fm::Tensor& wanted) {
    const fm::Tensor loss = fm::mean(fm::square(forward(x) - wanted));
    loss.backward();
    const fm::NoGradGuard no_grad;
    for (fm::Tensor* p : {&w1, &b1, &w2, &b2}) p->assign(*p - 0.5 * p->grad()), p->zero_grad();
    return loss;
  }
};

void compare(const Network& network, const fm::Tensor& x, const fm::Tensor& wanted) {
  Network here = network.on(kCpu), there = network.on(kTally);
  const fm::Tensor x_there = fm::to(x, kTally), wanted_there = fm::to(wanted, kTally);
  expect_close(there.forward(x_there), here.forward(x), "forward");
  for (int step = 0; step < 3; ++step)
    expect_close(there.train(x_there, wanted_there), here.train(x, wanted), "loss of step " + std::to_string(step));
  expect_close(there.w1, here.w1, "weights after training");
  expect(fm::device(there.w1) == kTally, "they are still on the device");
}

}  // namespace

int main() {
  tally::register_device();
  fm::manual_seed(7);
  const Network network{fm::randn({16, 8}) * 0.5, fm::zeros({16}), fm::randn({4, 16}) * 0.5, fm::zeros({4})};
  const fm::Tensor x = fm::randn({32, 8}), wanted = fm::softmax(fm::randn({32, 4}), -1);

  std::cout << "eager\n";
  {
    const fm::ModeGuard eager(fm::Mode::eager);
    compare(network, x, wanted);
  }
  std::cout << "compiled\n";
  compare(network, x, wanted);

  std::cout << "compile(fn)\n";
  const Network there = network.on(kTally);
  auto forward =
      fm::compile([&](const fm::Tensor& batch) { return fm::no_grad([&] { return there.forward(batch); }); });
  const fm::Tensor x_there = fm::to(x, kTally), expected = network.forward(x);
  forward(x_there);
  const tally::Counts before = tally::counts();
  const fm::Tensor replayed = forward(x_there);
  expect_close(replayed, expected, "a replay");
  const tally::Counts after = tally::counts();
  expect(after.compiled == before.compiled, "which compiles nothing");
  expect(after.matmuls - before.matmuls == 2, "and multiplies twice, with the device's own kernel");

  std::cout << "errors\n";
  try {
    x + x_there;
    expect(false, "an operand on the CPU and one on the device do not mix");
  } catch (const fm::DeviceError& error) { std::cout << error.what() << '\n'; }

  std::cout << "\nwhat explain says of the softmax of the output\n"
            << fm::explain(fm::softmax(fm::linear(x_there, there.w1.detach()), -1)) << '\n';
  const tally::Counts counts = tally::counts();
  std::cout << "tally: " << counts.copies_in << " copies in, " << counts.copies_out << " out, " << counts.compiled
            << " kernels compiled, " << counts.launched << " launches, " << counts.matmuls << " products\n";
  return wrong == 0 ? 0 : 1;
}
