// The steps of control flow: ops whose kernel calls captured functions.
//
// A step is an operand: the first operand of a cond, while_loop or scan is a leaf whose one element is the address of
// the step, and whose storage owns it. So plans hold no functions, a step lives as long as a node, a compiled function
// or a plan that is running needs it, and two calls with equal structures share one plan. The result is all results of
// the functions as bytes, from which unpack takes each; a single result is the op's own.
#pragma once

#include <memory>
#include <vector>

#include "frontend/engine/captured_function.h"

namespace fermata {

class ControlStep {
 public:
  virtual ~ControlStep() = default;
  /// `seed` names the streams that its functions draw from.
  virtual void run(std::span<const TensorView> operands, std::span<void* const> results, double seed) = 0;
  virtual bool draws() const = 0;
  /// What it is made of, to be compared: its functions, and numbers.
  virtual std::vector<const CapturedFunction*> functions() const = 0;
  virtual std::vector<std::int64_t> numbers() const { return {}; }
};
/// The step that an operand of a control-flow op stands for; null for other tensors.
const ControlStep* control_step_of(const Tensor& handle);

/// Operands of a step, each once. `place` is a number in the list.
class StepOperands {
 public:
  std::size_t place(const Tensor& t);
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

/// A captured function and where its operands are: kOwn marks those that the step provides.
struct StepFunction {
  static constexpr std::size_t kOwn = ~std::size_t{0};
  std::unique_ptr<CapturedFunction> function;
  std::vector<std::size_t> places;

  /// Arguments that the function does not read need no place.
  StepFunction(std::unique_ptr<CapturedFunction> captured, std::span<const Tensor> arguments, StepOperands& operands);
  /// The operands of a run; those of kOwn are left out, to be filled in.
  std::vector<TensorView> views(std::span<const TensorView> operands) const;
};

std::unique_ptr<ControlStep> make_cond_step(StepFunction when_true, StepFunction when_false, std::size_t predicate);
/// `init` are the places of the state before the first run.
std::unique_ptr<ControlStep> make_while_step(StepFunction condition, StepFunction body, std::vector<std::size_t> init);
/// The body takes the carry, then a slice of each of `sequences`, which are places.
std::unique_ptr<ControlStep> make_scan_step(StepFunction body, std::vector<std::size_t> init,
                                            std::vector<std::size_t> sequences, std::int64_t length, bool reverse);

/// Records a step; gives its results. `seed` is an f64 of no axes.
std::vector<Tensor> record_step(Op op, std::unique_ptr<ControlStep> step, const StepOperands& operands,
                                const Tensor& seed, std::span<const TensorType> results, Location where);

/// Fills the cells of the ops of ir/ops/control.def: the CPU's when the library is loaded, those of a device when it is
/// first needed, since the kernels only copy and call.
void register_control_kernels();
void require_control_kernels(BackendKey backend);

}  // namespace fermata
