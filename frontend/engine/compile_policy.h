// When to compile a structure: immediately if interpreting it costs more than compiling; else in the background, once
// it recurs often enough for compilation to pay off. Until then it is interpreted, with the same bits. A plan that
// turns out slower than interpretation, for example for two or three calls of a microsecond, is not used for such
// sizes.
#pragma once

#include <chrono>

#include "fermata/inspect.h"
#include "runtime/plan_cache.h"
#include "runtime/walk.h"
#include "runtime/warm_up.h"

namespace fermata {

/// One run of a structure: chooses plan or interpretation, and measures times until the choice is settled.
class PlanRun {
 public:
  PlanRun(const PlanEntryPtr& entry, const Walk& walk);
  ~PlanRun() { is_warming_up = false; }
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;
  /// Null: interpret it.
  const Plan* plan() const { return plan_; }
  /// Call after a successful run.
  void end() {
    if (trial_ != nullptr) [[unlikely]]
      note_time();
  }

 private:
  void note_time() const;

  const Plan* plan_;
  PlanTrial* trial_ = nullptr;  // null: not timed
  PlanTrial::Turn turn_{};
  std::chrono::steady_clock::time_point start_;
};

/// Whether a sync may interpret without looking for a plan; false if the policy requires plans.
bool may_play_calls();

/// Compiles an entry once; concurrent callers wait.
const Plan* compile_entry(PlanEntry& entry, const Walk& walk);

}  // namespace fermata
