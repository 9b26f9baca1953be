// The twenty-line program of README.md.
#include <fermata/fermata.h>

#include <iostream>

namespace fm = fermata;

int main() {
  fm::manual_seed(1);
  const fm::Tensor x = fm::randn({512, 16}), truth = fm::randn({16, 1});
  const fm::Tensor y = fm::matmul(x, truth) + 0.1 * fm::randn({512, 1});

  fm::Tensor weights = fm::zeros({16, 1}).requires_grad(true);
  for (int step = 1; step <= 100; ++step) {
    const fm::Tensor loss = fm::mean(fm::square(fm::matmul(x, weights) - y));
    weights.zero_grad();
    loss.backward();  // recorded like everything else
    fm::no_grad([&] { weights -= 0.2 * weights.grad(); });
    fm::sync({weights, loss});  // runs the step: compiled once, then a cache hit
    if (step % 20 == 0) std::cout << "step " << step << "  loss " << loss.item<float>() << "\n";
  }

  const fm::Tensor p = fm::softmax(fm::gelu(x * 2 + 1), -1);
  std::cout << fm::explain(p);  // the recorded program, its kernels, and why
  std::cout << p[0] << "\n";    // reading a value computes it
}
