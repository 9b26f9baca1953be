// Timing of the steps of running plans.
#pragma once

#include "runtime/timings.h"

namespace fermata {

/// While alive, collects the time of every step of every plan that this thread runs on the CPU, by the name of the step
/// and its sizes.
class StepProfile : public Timings {
 public:
  StepProfile() : outer_(current_) { current_ = this; }
  ~StepProfile() { current_ = outer_; }
  /// The active profile of this thread; null if there is none.
  static StepProfile* current() { return current_; }

 private:
  static inline constinit thread_local StepProfile* current_ = nullptr;
  StepProfile* outer_;
};

}  // namespace fermata
