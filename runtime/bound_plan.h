// A plan bound to sizes, ready to run on buffers.
//
// bind() reads the records (sizes, attributes, scalars) once and chooses what the steps are for these sizes; run() only
// fills in addresses, so a replay with the same sizes starts there, and so does a bind to the sizes of the last one but
// for the scalars. Everything a run needs is allocated before its first step.
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
#include "runtime/steps/bound_steps.h"
#include "runtime/storage.h"

namespace fermata {

class StepProfile;
struct EventInfo;

/// Told of every step that runs, while somebody watches: the dispatch trace. Null otherwise.
using WatchStep = void (*)(std::string_view name, BackendKey backend, std::source_location where);
extern std::atomic<WatchStep> watch_step;

/// A copy is bound to the same sizes, with scalars, buffers and runs of its own: for another thread.
class BoundPlan {
 public:
  /// `records` are the nodes of a walk with the plan's key.
  void bind(const Plan& plan, std::span<const Node* const> records);
  /// One buffer per leaf slot and one pointer per output slot. Throws before the first step if memory is short.
  /// An output that a kernel gives the buffer of (PlanSlot::is_given) may be null: take_output() has it afterwards.
  /// `owners` are the buffers that outputs lie in; without, kernels that read an output get a copy.
  void run(const Plan& plan, std::span<const LeafBuffer> leaves, std::span<void* const> outputs,
           std::span<const StoragePtr> owners = {});
  /// Whether kernels over tensors are among the steps: only they give buffers.
  bool has_boxed() const { return has_boxed_; }
  StoragePtr take_output(std::size_t output) { return std::move(last_.owners[output_slots_[output]]); }
  std::size_t output_bytes(std::size_t output) const { return slot_bytes_[output_slots_[output]]; }
  /// Which outputs may be written over which leaves, for the sizes at hand; the leaves must be dense. Then both have
  /// the same address in run().
  std::span<const Overwrite> overwrites() const { return overwrites_; }
  /// Of the last run(), which has failed: whether it may have written over a leaf.
  bool has_overwritten() const { return !overwrites_.empty() && last_.reached > overwrites_.front().step; }
  /// Of the plan that was bound last; 0 before that.
  std::uint64_t plan_number() const { return plan_number_; }
  /// Those of the plan, to be patched by a replay (random offsets).
  std::span<std::uint64_t> scalars() { return scalars_; }

 private:
  /// What a run leaves behind; no copy has it.
  struct LastRun {
    std::vector<void*> data;         // per slot, as in Run
    std::vector<Storage*> buffers;   //
    std::vector<StoragePtr> owners;  //
    std::size_t reached = 0;         // steps that have begun
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

  std::uint64_t plan_number_ = 0;  // of the plan that this is bound to, and
  RecordGeometry geometry_;        // the sizes
  BoundSteps steps_;
  std::vector<std::uint64_t> scalars_;
  std::vector<std::size_t> slot_bytes_, slot_offset_;
  std::size_t arena_bytes_ = 0;
  std::vector<std::uint32_t> output_slots_;
  std::vector<Overwrite> overwrites_;       // in order of steps
  std::vector<SharedPlace> shared_places_;  // those whose sizes are equal
  bool has_boxed_ = false, has_calls_ = false;
  bool has_one_part_ = false;            // a kernel or call by itself: recording it saves nothing
  std::vector<const EventInfo*> infos_;  // one for each bound step; empty until somebody profiles
  LastRun last_;
};

}  // namespace fermata
