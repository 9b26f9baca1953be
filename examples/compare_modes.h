// Trains in eager and in compiled mode and compares: shared by the examples convnet and transformer.
#pragma once

#include <fermata/fermata.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

namespace examples {

struct Training {
  std::vector<double> losses;  // of every step
  double milliseconds = 0;     // of all steps
};

/// Runs `train`, which returns the losses of its steps, in a mode. Kernels are not replaced meanwhile, so that both
/// modes round in the same way from the first step on.
template <class F> Training timed(fermata::Mode mode, F&& train) {
  const fermata::ModeGuard guard(mode);
  fermata::set_replace_kernels(false);
  std::printf("%s mode\n", mode == fermata::Mode::eager ? "eager" : "compiled");
  const auto start = std::chrono::steady_clock::now();
  Training result{train(), 0};
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::printf("  %zu steps, %.2f ms each\n", result.losses.size(),
              result.milliseconds / static_cast<double>(result.losses.size()));
  return result;
}

/// Compares the losses of both modes. They round in the same way, except where compiled code contracts a product and a
/// sum. Returns the largest relative difference.
inline double compare(const Training& eager, const Training& compiled) {
  double most = 0;
  for (std::size_t i = 0; i < eager.losses.size(); ++i)
    most = std::max(most, std::abs(eager.losses[i] - compiled.losses[i]) / std::abs(eager.losses[i]));
  std::printf("losses of both modes differ by at most %.1e of their size\n", most);
  return most;
}

}  // namespace examples
