// Control-flow calls: nodes that own captured functions, and the kernels that run them.
//
// A node's functions are not part of a plan: calls with equal structures share a plan, and each runs the functions of
// its own node. They live as long as the node, a compiled function or a running plan needs them. ir/ops/control.h lists
// operands and results.
#pragma once

#include <memory>
#include <vector>

#include "frontend/engine/captured_function.h"

namespace fermata {

/// A call of a control-flow op that can be recorded or run, once.
class ControlCall {
 public:
  using Function = std::unique_ptr<CapturedFunction>;
  /// The functions must have been captured with the types of `operands`; of `init`; or, for a scan, of `init` and
  /// slices of `sequences`; followed by `rest`. `seed` is a 0-d f64, or undefined; it is an operand if the functions
  /// draw.
  static ControlCall cond(const Tensor& predicate, Function when_true, Function when_false,
                          std::span<const Tensor> operands, const Tensor& seed);
  static ControlCall while_loop(Function condition, Function body, std::span<const Tensor> init,
                                std::span<const Tensor> rest, const Tensor& seed);
  static ControlCall scan(Function body, std::span<const Tensor> init, std::span<const Tensor> sequences,
                          std::span<const Tensor> rest, std::int64_t length, bool reverse, const Tensor& seed);

  /// Records the call and returns its results.
  std::vector<Tensor> record(Location where);
  /// Makes the call in the current mode. Returns the result of the node, which may pack several.
  Tensor run(Location where);

 private:
  explicit ControlCall(Op op) : op_(op) {}
  void add(std::span<const Tensor> operands) { operands_.insert(operands_.end(), operands.begin(), operands.end()); }
  void own(Function first, Function second = nullptr);

  Op op_;
  std::vector<Tensor> operands_;
  std::vector<std::int64_t> attributes_;
  std::vector<TensorType> results_;
  std::shared_ptr<const Subgraphs> subgraphs_;
  bool has_effects_ = false;
};

/// The captured function of a subgraph of a recorded node.
const CapturedFunction& captured(const Subgraph& subgraph);
/// Whether a recorded call has an effect, by itself or in a function that it calls.
bool has_effect(const Node& node);

/// Registers the kernels of ir/ops/control.def: for the CPU at load, for other devices on first use, since the kernels
/// only copy and call.
void register_control_kernels();
void require_control_kernels(BackendKey backend);

}  // namespace fermata
