// When to compile a structure: immediately if interpreting it costs more than compiling; else in the background, once
// it recurs often enough for compilation to pay off. Until then it is interpreted, with the same bits. A plan that
// turns out slower than interpretation, for example for two or three calls of a microsecond, is not used for such
// sizes.
#pragma once

#include <atomic>
#include <chrono>

#include "fermata/inspect.h"
#include "ir/graph.h"
#include "runtime/plan_cache.h"
#include "runtime/walk.h"
#include "runtime/warm_up.h"

namespace fermata {

/// One turn of a trial: what runs, and for how long.
class TrialTurn {
 public:
  TrialTurn() = default;
  ~TrialTurn() {
    if (turn_.warms_up) is_warming_up = false;
  }
  TrialTurn(const TrialTurn&) = delete;
  TrialTurn& operator=(const TrialTurn&) = delete;
  void begin(PlanTrial& trial, bool has_plan);
  bool runs_plan() const { return turn_.runs_plan; }
  /// Nothing is measured.
  void drop() { trial_ = nullptr; }
  /// Call after a successful run.
  void end() {
    if (trial_ != nullptr) [[unlikely]]
      note_time();
  }

 private:
  void note_time() const;

  PlanTrial* trial_ = nullptr;  // null: not timed
  PlanTrial::Turn turn_{};
  std::chrono::steady_clock::time_point start_;
};

/// One run of a structure: chooses plan or interpretation, and measures times until the choice is settled.
class PlanRun {
 public:
  PlanRun(const PlanEntryPtr& entry, const Walk& walk);
  /// Null: interpret it.
  const Plan* plan() const { return plan_; }
  /// Call after a successful run.
  void end() { turn_.end(); }

 private:
  const Plan* plan_;
  TrialTurn turn_;
};

/// Whether a sync may interpret without looking for a plan; false if the policy requires plans.
bool may_play_calls();

/// Compiles an entry once; concurrent callers wait.
const Plan* compile_entry(PlanEntry& entry, const Walk& walk);
/// The plan of an entry with one call per op.
const Plan* compile_calls(PlanEntry& entry, Graph graph, BackendKey backend);
/// The trial between the two in compiled functions, for the sizes at hand; null if there is to be none.
PlanTrial* trial_of_calls(PlanEntry& entry, const Walk& walk);

/// For tests: compiled functions that have a plan of calls run it.
inline constinit std::atomic<bool> always_runs_calls{false};

}  // namespace fermata
