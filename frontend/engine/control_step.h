// The calls of control flow: nodes that own captured functions, and the kernels that run those.
//
// A node's functions are no part of a plan: two calls with equal structures share one, and each runs the functions that
// the node at hand owns. They live as long as the node, a compiled function or a plan that is running needs them. Which
// operands and results there are is in ir/ops/control.h.
#pragma once

#include <memory>
#include <vector>

#include "frontend/engine/captured_function.h"

namespace fermata {

/// A call of a control-flow op that can be recorded or run, once.
class ControlCall {
 public:
  using Function = std::unique_ptr<CapturedFunction>;
  /// The functions were captured with the types of `operands`, of `init` or, for a scan, of `init` and of slices of
  /// `sequences`, and then of `rest`. A seed is an f64 of no axes, or undefined; it is an operand if the functions
  /// draw.
  static ControlCall cond(const Tensor& predicate, Function when_true, Function when_false,
                          std::span<const Tensor> operands, const Tensor& seed);
  static ControlCall while_loop(Function condition, Function body, std::span<const Tensor> init,
                                std::span<const Tensor> rest, const Tensor& seed);
  static ControlCall scan(Function body, std::span<const Tensor> init, std::span<const Tensor> sequences,
                          std::span<const Tensor> rest, std::int64_t length, bool reverse, const Tensor& seed);

  /// Records the call; gives its results.
  std::vector<Tensor> record(Location where);
  /// The call as the mode at hand has it: the result of the node, which may be several in one.
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

/// The function behind a subgraph of a node that was recorded.
const CapturedFunction& captured(const Subgraph& subgraph);

/// Fills the cells of the ops of ir/ops/control.def: the CPU's when the library is loaded, those of a device when it is
/// first needed, since the kernels only copy and call.
void register_control_kernels();
void require_control_kernels(BackendKey backend);

}  // namespace fermata
