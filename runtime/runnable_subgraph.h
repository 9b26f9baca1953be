// A function of a node that can run on buffers: captured by the engine, or read from a file.
#pragma once

#include <cstdint>
#include <span>

#include "ir/error.h"
#include "ir/subgraph.h"
#include "runtime/tensor_view.h"

namespace fermata {

class RunnableSubgraph : public Subgraph {
 public:
  /// Results are dense. Random numbers come from the stream of `key`.
  virtual void run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key) const = 0;
};

inline const RunnableSubgraph& runnable(const Subgraph& subgraph) {
  const auto* const function = dynamic_cast<const RunnableSubgraph*>(&subgraph);
  if (function == nullptr) throw_internal("a node is run with a function that cannot be");
  return *function;
}

}  // namespace fermata
