// A recorded program that is compiled and bound to its sizes: what compile(fn) replays and steps of control flow call.
//
// Nothing of it changes once it is compiled. What a run writes to is a runner, a copy of the bound plan, so that any
// number of threads run one program at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "frontend/engine/recorded_program.h"
#include "runtime/bound_plan.h"
#include "runtime/plan_cache.h"

namespace fermata {

class CapturedProgram {
 public:
  explicit CapturedProgram(Program program) : program_(std::move(program)) {}
  /// Gives it a plan, by the walk that it was listed from. A program without nodes has none.
  void compile(const Walk& walk);

  /// What one run works with; empty between runs but for the plan.
  struct Runner {
    explicit Runner(const CapturedProgram& p) : bound(p.bound_), buffers(p.output_types_.size()) {}
    BoundPlan bound;
    std::vector<LeafBuffer> leaves;
    std::vector<void*> buffers;  // of the outputs: null where the run is to make one
    std::vector<StoragePtr> staged, storage;
    void clear() {
      leaves.clear(), staged.clear(), storage.clear();
      for (void*& buffer : buffers) buffer = nullptr;
    }
  };
  /// Fills in where random numbers come from: those of the program follow `first`.
  void set_draws(Runner& r, std::uint64_t key, std::uint64_t first) const {
    for (const RandomScalar& s : random_) r.bound.scalars()[s.slot] = s.is_key ? key : first + s.delta;
  }
  /// Runs on r.leaves, in the order of leaves(). An output without a buffer gets one, in r.storage.
  void run(Runner& r) const;

  const Program& program() const { return program_; }
  bool has_plan() const { return plan_ != nullptr; }
  bool has_structure_of(const CapturedProgram& other) const {
    return entry_ == other.entry_ || (entry_ != nullptr && other.entry_ != nullptr && entry_->key == other.entry_->key);
  }
  BackendKey backend() const { return plan_->backend; }
  std::uint64_t plan_number() const { return plan_->number; }
  /// What the plan reads: numbers among the leaves of the program.
  std::span<const std::uint32_t> leaves() const { return leaves_; }
  /// The node of number `i` of them.
  const ProgramNode& leaf_node(std::size_t i) const { return program_.nodes[plan_->leaf_records[i]]; }
  Place& place(std::uint32_t leaf) { return program_.leaves[leaf]; }
  std::span<const TensorType> output_types() const { return output_types_; }
  /// The nodes of the program that are outputs.
  std::span<const std::uint32_t> output_nodes() const { return output_nodes_; }
  /// Calls of kernels over tensors are among its steps.
  bool has_boxed_calls() const { return has_boxed_calls_; }
  /// Calls among its steps may have an effect: they come after those that were recorded before a run.
  bool has_effects() const { return has_boxed_calls_ || has_effects_; }
  bool draws() const { return !random_.empty(); }

 private:
  /// A scalar that moves with the generator: its number in the plan, and how far into the range of a run it lies.
  struct RandomScalar {
    std::size_t slot;
    std::uint64_t delta;
    bool is_key;
  };

  Program program_;
  PlanEntryPtr entry_;
  const Plan* plan_ = nullptr;
  BoundPlan bound_;  // never run: what runners are copies of
  std::vector<std::uint32_t> leaves_, output_nodes_;
  std::vector<TensorType> output_types_;
  std::vector<RandomScalar> random_;
  bool has_boxed_calls_ = false, has_effects_ = false;
};

/// Runners that wait for a thread to come. Whoever has the list holds a lock.
template <class R> class IdleRunners {
 public:
  IdleRunners() { idle_.reserve(kMost); }
  /// Null if there is none.
  std::unique_ptr<R> take() {
    if (idle_.empty()) return nullptr;
    std::unique_ptr<R> runner = std::move(idle_.back());
    idle_.pop_back();
    return runner;
  }
  /// Leaves it where it is if there are enough.
  void give_back(std::unique_ptr<R>& runner) {
    if (runner != nullptr && idle_.size() < kMost) idle_.push_back(std::move(runner));
  }

 private:
  static constexpr std::size_t kMost = 16;
  std::vector<std::unique_ptr<R>> idle_;
};

}  // namespace fermata
