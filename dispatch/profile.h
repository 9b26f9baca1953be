// Timing of calls while they run: which op took how long in eager mode.
#pragma once

#include "runtime/timings.h"

namespace fermata {

/// Collects the time of every backend kernel that this thread calls while it exists.
class CallProfile : public Timings {
 public:
  CallProfile();
  ~CallProfile();

 private:
  CallProfile* outer_;
};

/// While somebody profiles, calls are events, too (runtime/events.h). As often off as on.
void watch_call_events(bool on);

}  // namespace fermata
