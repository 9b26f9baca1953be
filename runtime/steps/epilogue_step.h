// A call with an epilogue: a kernel step that reads the call's result element by element, or row by row. Where the
// sizes agree it runs as a part of the call, on every tile of the result while that is in a cache, or in the library
// that the call goes to; else after it.
#pragma once

#include "runtime/steps/call_step.h"
#include "runtime/steps/kernel_step.h"

namespace fermata {

struct EpilogueStep {
  CallStep call;
  KernelStep epilogue;
  EpilogueForm form = EpilogueForm::none;  // of the kernels that the call may have

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(call), f(epilogue); }
};

class BoundEpilogue {
 public:
  /// Whether the epilogue can be a part of the call, for the sizes at hand; both are bound in any case.
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

/// Whether the kernel's points are the elements of the result of a call that makes it by rows and columns.
bool has_points_of(const BoundKernel& kernel, const BoundCall& call, const Binding& binding);

}  // namespace fermata
