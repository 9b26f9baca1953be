// A call with an epilogue: a kernel step that reads the call's result element by element, or row by row. If the sizes
// agree, it runs as part of the call, on every tile of the result while that is in a cache, or in the library that the
// call uses; else after the call.
#pragma once

#include "runtime/steps/call_step.h"
#include "runtime/steps/kernel_step.h"

namespace fermata {

struct EpilogueStep {
  CallStep call;
  KernelStep epilogue;
  EpilogueForm form = EpilogueForm::none;  // of the kernels that may be selected for the call

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(call), f(epilogue); }
};

class BoundEpilogue {
 public:
  /// Binds both; returns whether the epilogue can be part of the call for these sizes.
  bool bind(const EpilogueStep& step, const Binding& binding);
  void locate(std::span<const Node* const> records) { call.locate(records); }
  void run(Run& run);
  std::string description() const;
  StepWork work() const;
  static constexpr std::size_t calls() { return 1; }
  template <class F> void for_each_part(F&& f) const { call.for_each_part(f), kernel.for_each_part(f); }

  BoundCall call;
  BoundKernel kernel;

 private:
  bool is_read_by_kernel_only_ = false;  // the result of the call,
  bool has_channels_last_ = false;       // whose channels lie innermost
};

/// Whether the kernel's points are the elements of the result of a call that computes it by rows and columns.
bool has_points_of(const BoundKernel& kernel, const BoundCall& call, const Binding& binding);

}  // namespace fermata
