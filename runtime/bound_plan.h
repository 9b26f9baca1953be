// A plan bound to sizes, ready to run on buffers.
//
// bind() reads the records (sizes, attributes, scalars) once and chooses the steps for these sizes; run() only fills in
// addresses, so a replay with the same sizes starts there. A bind to the same sizes as the last one only reads the
// scalars. Everything a run needs is allocated before its first step.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/plan.h"
#include "runtime/record_geometry.h"
#include "runtime/recorded_runs.h"
#include "runtime/repetition.h"
#include "runtime/steps/bound_steps.h"
#include "runtime/storage.h"

namespace fermata {

class StepProfile;
struct EventInfo;

/// Called for every step that runs while a dispatch trace is active. Null otherwise.
using WatchStep = void (*)(std::string_view name, BackendKey backend, std::source_location where);
extern std::atomic<WatchStep> watch_step;

/// A copy is bound to the same sizes and has its own scalars, buffers and runs: for another thread.
class BoundPlan {
 public:
  /// `records` are the nodes of a walk with the plan's key.
  void bind(const Plan& plan, std::span<const Node* const> records);
  /// One buffer per leaf slot and one pointer per output slot. Throws before the first step if memory is short. An
  /// output whose buffer a kernel provides (PlanSlot::is_given) may be null: take_output() returns it afterwards.
  /// `owners` are the buffers that contain the outputs; without them, kernels that read an output get a copy.
  void run(const Plan& plan, std::span<const LeafBuffer> leaves, std::span<void* const> outputs,
           std::span<const StoragePtr> owners = {});
  /// Runs the plan once for each of many steps, if all of them are one launch of its last kernel, and the others
  /// compute what is the same at each; else false, and nothing has run. Whoever watches the steps sees each of them.
  bool run_repeated(const Plan& plan, const Repetition& repetition);
  /// Whether the steps include kernels over tensors: only they provide buffers.
  bool has_boxed() const { return has_boxed_; }
  StoragePtr take_output(std::size_t output) { return std::move(last_.owners[output_slots_[output]]); }
  std::size_t output_bytes(std::size_t output) const { return slot_bytes_[output_slots_[output]]; }
  /// Which outputs may overwrite which leaves, for the bound sizes; the leaves must be dense. Both then have the same
  /// address in run().
  std::span<const Overwrite> overwrites() const { return overwrites_; }
  /// Whether the last run(), which failed, may have overwritten a leaf.
  bool has_overwritten() const { return !overwrites_.empty() && last_.reached > overwrites_.front().step; }
  /// Whether the last run() has begun its first step.
  bool has_started() const { return last_.reached > 0; }
  /// Bytes of the temporaries of a run.
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// The number of the plan that was bound last; 0 before that.
  std::uint64_t plan_number() const { return plan_number_; }
  /// The plan's scalars, to be patched by a replay (random offsets).
  std::span<std::uint64_t> scalars() { return scalars_; }

 private:
  /// State of the last run; not copied.
  struct LastRun {
    std::vector<void*> data;         // per slot, as in Run
    std::vector<Storage*> buffers;   //
    std::vector<StoragePtr> owners;  //
    std::size_t reached = 0;         // steps that have started
    RecordedRuns recorded;
    LastRun() = default;
    LastRun(const LastRun&) {}
    LastRun& operator=(const LastRun&) = delete;
  };

  void bind_slots(const Plan& plan, std::span<const Node* const> records);
  void bind_steps(const Plan& plan, std::span<const Node* const> records);
  void own_slots(const Plan& plan, std::span<const StoragePtr> owners);
  void run_with_boxed(const Plan& plan);
  void run_steps(const Plan& plan);
  void run_stoppable(Run& run);
  void run_observed(Run& run);
  void describe_steps();
  bool computes_the_same(const BoundKernel& kernel, const Plan& plan, const Repetition& repetition) const;
  const EventInfo* describe_repeated(std::int64_t steps);

  std::uint64_t plan_number_ = 0;  // of the bound plan
  RecordGeometry geometry_;        // the bound sizes
  BoundSteps steps_;
  std::vector<std::uint64_t> scalars_;
  std::vector<std::size_t> slot_bytes_, slot_offset_;
  std::size_t arena_bytes_ = 0;
  std::vector<std::uint32_t> output_slots_;
  std::vector<Overwrite> overwrites_;       // in order of steps
  std::vector<SharedPlace> shared_places_;  // those with equal sizes
  bool has_boxed_ = false, has_calls_ = false;
  bool has_one_part_ = false;            // a single kernel or call: recording it saves nothing
  std::vector<const EventInfo*> infos_;  // one for each bound step; empty until a profile runs
  LastRun last_;
};

}  // namespace fermata
