// A function of a node that can run on buffers: captured by the engine, or read from a file.
#pragma once

#include <cstdint>
#include <span>

#include "ir/error.h"
#include "ir/ops/control.h"
#include "ir/subgraph.h"
#include "runtime/tensor_view.h"

namespace fermata {

class RunnableSubgraph : public Subgraph {
 public:
  /// Results are dense. Random numbers come from the stream of `key`.
  virtual void run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key) const = 0;
  /// Runs the steps of a scan in one go, if that can be; else false, and nothing has run. `arguments`: what the first
  /// step is given, `sequences` with all their steps, and what each step is given; `results`: the buffers of what is
  /// carried, and of the results of all steps.
  virtual bool run_scan(const ops::ScanLoop& /*scan*/, std::span<const TensorView> /*arguments*/,
                        std::span<void* const> /*results*/) const {
    return false;
  }
};

inline const RunnableSubgraph& runnable(const Subgraph& subgraph) {
  const auto* const function = dynamic_cast<const RunnableSubgraph*>(&subgraph);
  if (function == nullptr) throw_internal("a node is run with a function that cannot be");
  return *function;
}

}  // namespace fermata
