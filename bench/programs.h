// The programs that the benchmarks run, written with public functions only. docs/benchmarks.md has their formulas.
#pragma once

#include <fermata/fermata.h>

#include <cmath>
#include <vector>

namespace bench {

namespace fm = fermata;
using fm::Tensor;

/// Ten cheap ops: memory is the limit.
inline Tensor chain10_cheap(const Tensor& x) {
  return fm::abs(fm::maximum(((((x + 0.5) * x - 1.5) * x + 0.25) * x - 0.75), 0.1) * -2);
}
/// Ten ops of which three are transcendental.
inline Tensor chain10_math(const Tensor& x) {
  return fm::sqrt(fm::abs(fm::sigmoid(fm::exp(fm::tanh(x * 1.01 + 0.5) * -2) + 0.1) - x));
}
/// A hundred ops: the ten cheap ones ten times over, brought back to where they are steep.
inline Tensor chain100_cheap(Tensor x) {
  for (int i = 0; i < 10; ++i)
    x = fm::minimum(fm::maximum(((((x + 0.5) * x - 1.5) * x + 0.25) * x - 0.75), -1), 1) * 0.5;
  return x;
}

inline Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  return fm::matmul(fm::softmax(fm::matmul(q, k.mT()) * scale, -1), v);
}

/// One step of Adam in place, with bias correction.
struct Adam {
  Tensor value, gradient, mean, square;
  int steps = 0;
  std::vector<Tensor> step() {
    ++steps;
    const double rate = 1e-3 / (1 - std::pow(0.9, steps)), square_scale = 1 / (1 - std::pow(0.999, steps));
    mean *= 0.9, mean += gradient * 0.1;
    square *= 0.999, square += fm::square(gradient) * 0.001;
    value -= mean * rate / (fm::sqrt(square * square_scale) + 1e-8);
    return {value, mean, square};
  }
};

}  // namespace bench
