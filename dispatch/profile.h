// Timing of eager calls by op.
#pragma once

#include "runtime/timings.h"

namespace fermata {

/// Collects the times of all backend kernels that this thread calls in a scope.
class CallProfile : public Timings {
 public:
  CallProfile();
  ~CallProfile();

 private:
  CallProfile* outer_;
};

/// Turns events for calls on or off (runtime/events.h). Calls must be balanced.
void watch_call_events(bool on);

}  // namespace fermata
