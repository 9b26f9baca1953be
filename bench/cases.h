// The programs that the kernel benchmarks time, each with inputs of fixed seeds.
#pragma once

#include <fermata/fermata.h>

#include <functional>
#include <string>
#include <vector>

namespace bench {

using Tensors = std::vector<fermata::Tensor>;
using Program = std::function<Tensors(const Tensors&)>;

struct Case {
  std::string name;
  std::function<Tensors()> inputs;  // computed; the same at every call
  std::function<Program()>
      prepare;  // a program may keep state, such as a number of steps, so each run starts a new one
};

const std::vector<Case>& cases();

/// Runs a program and waits for what it gives.
Tensors run(const Program& program, const Tensors& inputs);

}  // namespace bench
