// A recorded program that is compiled and bound to its sizes, for replays of compile(fn) and for control-flow steps.
//
// Immutable once compiled. A run works on a runner, a copy of the bound plan, so any number of threads can run a
// program concurrently.
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
  /// Compiles its plan from the walk that it was listed from. A program without nodes has none.
  void compile(const Walk& walk);

  /// The working state of one run; empty between runs except for the plan.
  struct Runner {
    explicit Runner(const CapturedProgram& p) : bound(p.bound_), buffers(p.output_types_.size()) {}
    BoundPlan bound;
    std::vector<LeafBuffer> leaves;
    std::vector<void*> buffers;  // of the outputs; null to allocate one
    std::vector<StoragePtr> staged, storage;
    void clear() {
      leaves.clear(), staged.clear(), storage.clear();
      for (void*& buffer : buffers) buffer = nullptr;
    }
  };
  /// Sets the random stream; the program's numbers start at `first`.
  void set_draws(Runner& r, std::uint64_t key, std::uint64_t first) const {
    for (const RandomScalar& s : random_) r.bound.scalars()[s.slot] = s.is_key ? key : first + s.delta;
  }
  /// Runs on r.leaves, in the order of leaves(). Outputs without a buffer are allocated in r.storage.
  void run(Runner& r) const;

  const Program& program() const { return program_; }
  bool has_plan() const { return plan_ != nullptr; }
  bool has_structure_of(const CapturedProgram& other) const {
    return entry_ == other.entry_ || (entry_ != nullptr && other.entry_ != nullptr && structure_ == other.structure_);
  }
  BackendKey backend() const { return plan_->backend; }
  std::uint64_t plan_number() const { return plan_->number; }
  /// The leaves that the plan reads, as indices into the leaves of the program.
  std::span<const std::uint32_t> leaves() const { return leaves_; }
  /// The node of leaf `i` of these.
  const ProgramNode& leaf_node(std::size_t i) const { return program_.nodes[plan_->leaf_records[i]]; }
  Place& place(std::uint32_t leaf) { return program_.leaves[leaf]; }
  std::span<const TensorType> output_types() const { return output_types_; }
  /// The nodes of the program that are outputs.
  std::span<const std::uint32_t> output_nodes() const { return output_nodes_; }
  /// Whether its steps include calls of kernels over tensors.
  bool has_boxed_calls() const { return has_boxed_calls_; }
  /// Whether its steps may have effects; they are ordered after effects recorded before a run.
  bool has_effects() const { return has_boxed_calls_ || has_effects_; }
  bool draws() const { return !random_.empty(); }

 private:
  /// A scalar that depends on the generator: its slot in the plan, and its offset into the numbers of a run.
  struct RandomScalar {
    std::size_t slot;
    std::uint64_t delta;
    bool is_key;
  };

  Program program_;
  PlanEntryPtr entry_;
  std::vector<std::uint32_t> structure_;  // the key of the plan without what only the choice of kernels depends on
  const Plan* plan_ = nullptr;
  BoundPlan bound_;  // the template that runners copy; never run
  std::vector<std::uint32_t> leaves_, output_nodes_;
  std::vector<TensorType> output_types_;
  std::vector<RandomScalar> random_;
  bool has_boxed_calls_ = false, has_effects_ = false;
};

/// A list of at most kMost idle runners. The owner synchronizes access.
template <class R, std::size_t kMost = 16> class IdleRunners {
 public:
  IdleRunners() { idle_.reserve(kMost); }
  /// Returns null if the list is empty.
  std::unique_ptr<R> take() {
    if (idle_.empty()) return nullptr;
    std::unique_ptr<R> runner = std::move(idle_.back());
    idle_.pop_back();
    return runner;
  }
  /// Does not take the runner if the list is full.
  void give_back(std::unique_ptr<R>& runner) {
    if (runner != nullptr && idle_.size() < kMost) idle_.push_back(std::move(runner));
  }

 private:
  std::vector<std::unique_ptr<R>> idle_;
};

}  // namespace fermata
