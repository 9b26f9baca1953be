// Exports one training step as a program file that `fermata run step.ir` executes; see docs/tracing.md.
#include <fermata/fermata.h>

#include <iostream>

namespace fm = fermata;

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "step.ir";
  fm::manual_seed(1);
  const fm::Tensor weight = fm::randn({3, 4}) * 0.5;

  const auto step = [](const fm::Tensor& w, const fm::Tensor& x, const fm::Tensor& labels) {
    const auto [loss, gradient] =
        fm::value_and_grad([&](const fm::Tensor& leaf) { return fm::cross_entropy(fm::linear(x, leaf), labels); })(w);
    return std::pair(loss, w - 0.1 * gradient);
  };
  const fm::Trace program = fm::trace(step, weight, fm::randn({8, 4}), fm::randint(0, 3, {8}));

  fm::save_trace(program, path);  // also writes the arguments, step.0.npy to step.2.npy
  std::cout << "loss " << program.results[0] << "\nweight " << program.results[1] << '\n';
}
