// Call steps: one call of a registered kernel on whole buffers. A boxed call calls a kernel over tensors, which may
// keep its arguments, provides the buffer of its result, and may run other plans in the meantime.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "ir/key_set.h"
#include "ir/shape.h"
#include "runtime/node.h"
#include "runtime/steps/open_choice.h"
#include "runtime/steps/source.h"
#include "runtime/steps/step_work.h"
#include "runtime/tensor_view.h"

namespace fermata {

struct Binding;
class BoundSteps;
struct Run;

/// The source of an operand of a call.
struct CallOperand {
  bool is_scalar = false;
  std::uint16_t number = 0;  // in the step's sources or scalars
  bool operator==(const CallOperand&) const = default;
};

struct CallStep : StepPart {
  Op op = Op::input;
  DType operand_dtype = DType::f32;
  DType output_dtype = DType::f32;
  BackendKey backend{};
  std::vector<DType> source_dtypes;
  std::vector<CallOperand> operands;
  PlanSource output;
  std::uint32_t context = 0;  // for boxed calls, as in ir/graph.h

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(*this); }
};

struct BoxedCallStep : CallStep {
  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(*this); }
};

/// Selects the kernel of a call step by its sizes; installed by the dispatch layer.
using SelectCall = ChosenKernel (*)(const CallStep& step, const CallArgs& args);
extern SelectCall select_call_step;

/// An operand or the result of a call.
struct BoundOperand {
  DType dtype;
  bool is_scalar;        // a host scalar: broadcast to the result
  std::uint32_t number;  // of its slot, or of its scalar in the plan
  std::int64_t byte_offset;
  Shape sizes, strides;

  TensorView view(const Run& run) const;
  bool has_layout_of(const BoundOperand& o) const { return sizes == o.sizes && strides == o.strides; }
};

/// A call step bound to sizes.
class BoundCall {
 public:
  void bind(const CallStep& step, const Binding& binding);
  /// Takes the source line and the functions from the current records, which may differ from those of the plan's
  /// compilation.
  void locate(std::span<const Node* const> records) {
    const Node& n = *records[step_->record];
    where_ = n.where;
    if (n.extra != nullptr && n.extra->subgraphs != subgraphs_) [[unlikely]]
      subgraphs_ = n.extra->subgraphs;
  }
  void run(Run& run) { this->run(run, nullptr); }
  void run(Run& run, Epilogue* epilogue);
  /// The arguments with the addresses of the run; valid until the next call of this function. Selects the kernel if
  /// that has not happened yet.
  CallArgs arguments(const Run& run, Epilogue* epilogue = nullptr);
  CallKernel kernel() const { return kernel_; }

  const CallStep& step() const { return *step_; }
  std::source_location where() const { return where_; }
  std::span<const BoundOperand> operands() const { return {operands_.data(), operands_.size() - 1}; }
  const BoundOperand& output() const { return operands_.back(); }
  /// Whether another call of the same op has the same sizes, strides and attributes.
  bool has_sizes_of(const BoundCall& other) const;
  std::string description() const;
  StepWork work() const;
  static constexpr std::size_t calls() { return 1; }
  template <class F> void for_each_part(F&& f) const { f(*step_, where_); }

 protected:
  const CallStep* step_ = nullptr;
  CallKernel kernel_ = nullptr;         // selected at the first run
  OpenChoice* open_ = nullptr;          // until it is known to be the fastest
  std::vector<BoundOperand> operands_;  // the output is the last one
  std::vector<std::int64_t> attributes_;
  std::vector<TensorView> views_;  // of the current run, for operands_
  std::source_location where_;
  std::shared_ptr<const Subgraphs> subgraphs_;  // owned with the node, which may be gone when a replay runs
};

class BoundBoxedCall : public BoundCall {
 public:
  void run(Run& run);
};

}  // namespace fermata
