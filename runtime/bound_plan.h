// A plan bound to sizes: flat arrays of extents and strides, ready to run on buffers.
//
// bind() reads the records (sizes, attributes, scalars) once; run() only fills in pointers, so a replay with the same
// sizes starts there, and so does a bind to the sizes of the last one but for the scalars. Everything a run needs is
// allocated before its first step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/device_run.h"
#include "runtime/node.h"
#include "runtime/plan.h"

namespace fermata {

class StepProfile;

/// Chooses the kernel of a call step by its sizes: installed by the dispatch layer.
using SelectCall = CallKernel (*)(const PlanStep& step, const CallArgs& args);
extern SelectCall select_call_step;

/// Told of every step that runs, while somebody watches: the dispatch trace. Null otherwise.
using WatchStep = void (*)(std::string_view name, BackendKey backend, std::source_location where);
extern std::atomic<WatchStep> watch_step;

class BoundPlan {
 public:
  BoundPlan() = default;
  /// Bound to the same sizes, with scalars, buffers and runs of its own: for another thread
  /// (runtime/bound_plan_copy.cpp).
  BoundPlan(const BoundPlan& other);
  BoundPlan& operator=(const BoundPlan&) = delete;

  /// `records` are the nodes of a walk with the plan's key.
  void bind(const Plan& plan, std::span<const Node* const> records);
  /// One buffer per leaf slot and one pointer per output slot. Throws before the first step if memory is short.
  /// An output that a kernel gives the buffer of (PlanSlot::is_given) may be null: take_output() has it afterwards.
  /// `owners` are the buffers that outputs lie in; without, kernels that read an output get a copy.
  void run(const Plan& plan, std::span<const LeafBuffer> leaves, std::span<void* const> outputs,
           std::span<const StoragePtr> owners = {});
  /// Whether kernels over tensors are among the steps: only they give buffers.
  bool has_boxed() const { return has_boxed_; }
  StoragePtr take_output(std::size_t output) { return std::move(slot_owners_[output_slots_[output]]); }
  std::size_t output_bytes(std::size_t output) const { return slot_bytes_[output_slots_[output]]; }
  /// Which outputs may be written over which leaves, for the sizes at hand; the leaves must be dense. Then both have
  /// the same address in run().
  std::span<const Overwrite> overwrites() const { return overwrites_; }
  /// Of the last run(), which has failed: whether it may have written over a leaf.
  bool has_overwritten() const { return !overwrites_.empty() && reached_ > overwrites_.front().step; }
  /// Of the plan that was bound last; 0 before that.
  std::uint64_t plan_number() const { return plan_number_; }
  /// Scalars of the step's records, to be patched by a replay (random offsets).
  std::span<std::uint64_t> scalars() { return scalars_; }

 private:
  struct View {
    Shape sizes, strides;
    std::int64_t offset;
  };
  struct Step {
    std::uint32_t pointers, sizes, strides, offsets, scalars, rank, source_count;
    std::int64_t rows, columns;
    std::uint32_t first_view;    // call: its operands in views_, then its output
    CallKernel kernel;           // call: chosen at the first run
    std::source_location where;  // call: the line at hand, which may not be the one that the plan was made for
    bool on_tiles;               // kernel: runs on the tiles of the step before
    std::uint32_t calls;         // call: how many steps, this one first, are one call
    std::int64_t block_rows;     // call: not 0 if it runs on so many rows of the two steps before at a time
  };
  struct Address {
    std::uint32_t slot;
    std::int64_t byte_offset;
  };
  /// A run with these addresses and scalars, recorded by the device once it has been seen twice.
  struct Recording {
    std::vector<void*> addresses;
    std::vector<std::uint64_t> scalars;
    unsigned sights = 0;
    bool reads = false;  // a step copies to the host, so it cannot be
    std::unique_ptr<const RecordedRun> run;
  };

  bool is_bound_to(const Plan& plan, std::span<const Node* const> records);
  View resolve(const Plan& plan, const PlanSource& source) const;
  void bind_kernel(const Plan& plan, const PlanStep& step);
  void bind_call(const Plan& plan, const PlanStep& step);
  void place_temporaries(const Plan& plan);
  void locate_calls(const Plan& plan);
  void run_steps(const Plan& plan);
  std::size_t run_step(const Plan& plan, std::size_t i);
  void run_watched(const Plan& plan, WatchStep watch);
  void run_timed(const Plan& plan, StepProfile& profile);
  std::string description(const Plan& plan, std::size_t i) const;
  void run_recorded(const Plan& plan, RunRecorder& recorder);
  void run_kernel(const PlanStep& step, const Step& bound);
  void run_split(const PlanStep& step, const Step& bound, KernelLaunch launch);
  void make_views(const Plan& plan);
  void gather_calls(const Plan& plan);
  bool same_numbers(const Step& a, const Step& b) const;
  bool tiles_fit(const Plan& plan, std::size_t step) const;
  bool has_points_of_call(const Plan& plan, std::size_t step) const;
  void run_call(const PlanStep& step, Step& bound, const TileConsumer* tiles);
  void run_boxed(const PlanStep& step, Step& bound);
  void own_slots(const Plan& plan, std::span<const StoragePtr> owners);
  void run_with_boxed(const Plan& plan);
  void set_pointers();
  CallArgs prepare_call(const PlanStep& step, Step& bound, const TileConsumer* tiles);
  void run_on_tiles(const Plan& plan, std::size_t call);
  void run_with_following(const Plan& plan, std::size_t call);
  std::int64_t rows_to_join(const Plan& plan, std::size_t last) const;
  bool joins_on_device(const Plan& plan, std::size_t last) const;
  void run_joined(const Plan& plan, std::size_t first);
  void run_on_row_blocks(const Plan& plan, std::size_t first);
  KernelLaunch launch_of(const Step& bound) const;

  std::span<const Node* const> records_;
  std::vector<Step> steps_;
  std::vector<std::int64_t> numbers_;  // sizes, strides, offsets, attributes
  std::vector<Address> addresses_;
  std::vector<std::uint64_t> scalars_;
  std::vector<std::size_t> slot_bytes_, slot_offset_;
  std::vector<std::uint32_t> output_slots_;
  std::vector<Overwrite> overwrites_;       // in order of steps
  std::vector<SharedPlace> shared_places_;  // those whose sizes are equal
  std::size_t reached_ = 0;                 // steps that have begun
  std::vector<void*> slot_data_, pointers_;
  std::vector<Storage*> slot_buffers_;   // of leaves, and of what kernels may keep, where there are call steps
  std::vector<StoragePtr> slot_owners_;  // of slots that are owned or given, where there are boxed calls
  bool has_boxed_ = false;
  std::vector<TensorView> views_;                 // operands and outputs of call steps
  std::vector<std::int32_t> view_addresses_;      // per view its number in addresses_, or kScalarView
  std::uint64_t plan_number_ = 0;                 // of the plan that this is bound to, and
  std::vector<std::int64_t> geometry_, scratch_;  // all that was read of its records but scalars
  std::size_t arena_bytes_ = 0;
  std::vector<Recording> recordings_;                    // used last first
  std::vector<std::atomic<std::int64_t>> columns_done_;  // of the rows that start a tile
};

}  // namespace fermata
