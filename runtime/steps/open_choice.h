// The kernel of a call, and what is still to be found out about it.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// Calls of one kind whose kernels are being compared; any number of threads make them.
class OpenChoice {
 public:
  /// Does a call that was to use `kernel`, and perhaps compares.
  virtual void run(CallKernel kernel, const CallArgs& args) = 0;
  virtual bool is_settled() const = 0;
  /// What such a call uses by what is known now.
  virtual CallKernel kernel(CallKernel predicted, const CallArgs& args) const = 0;

 protected:
  ~OpenChoice() = default;  // lives as long as the process
};

struct ChosenKernel {
  CallKernel call = nullptr;
  OpenChoice* open = nullptr;  // null where the choice stands
};

}  // namespace fermata
