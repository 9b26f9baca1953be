// When a structure is compiled: at once where running it op by op would cost more than compiling; else in the
// background, once it has come often enough for compiling to pay. Until then it is played op by op: the bits are the
// same. A plan that turns out slower than playing, as may be where there are two or three calls of a microsecond, is
// not used for such sizes.
#pragma once

#include <chrono>

#include "fermata/inspect.h"
#include "runtime/plan_cache.h"
#include "runtime/walk.h"

namespace fermata {

/// One computation of a structure: chooses how, and takes the time while that is not settled.
class PlanRun {
 public:
  PlanRun(const PlanEntryPtr& entry, const Walk& walk);
  /// Null: play it op by op.
  const Plan* plan() const { return plan_; }
  /// To be called when everything went well.
  void end() {
    if (trial_ != nullptr) [[unlikely]]
      note_time();
  }

 private:
  void note_time() const;

  const Plan* plan_;
  PlanTrial* trial_ = nullptr;  // null: not timed
  std::chrono::steady_clock::time_point start_;
};

/// Whether a sync may make its calls without asking whether there is a plan: not where a policy wants plans.
bool may_play_calls();

/// Compiles once per entry, whoever comes first; others wait for it.
const Plan* compile_entry(PlanEntry& entry, const Walk& walk);

}  // namespace fermata
