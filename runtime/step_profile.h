// Timing of plans while they run: which step took how long.
#pragma once

#include "runtime/timings.h"

namespace fermata {

/// Collects the time of every step of every plan that this thread runs on the CPU while it exists: by the name of the
/// step and the sizes it worked on.
class StepProfile : public Timings {
 public:
  StepProfile() : outer_(current_) { current_ = this; }
  ~StepProfile() { current_ = outer_; }
  /// That of this thread; null where nobody asks.
  static StepProfile* current() { return current_; }

 private:
  static inline constinit thread_local StepProfile* current_ = nullptr;
  StepProfile* outer_;
};

}  // namespace fermata
