// A recorded program that is compiled and bound to its sizes, for replays of compile(fn) and for control-flow steps.
//
// Immutable once compiled. A run works on a runner, a copy of the bound plan, so any number of threads can run a
// program concurrently.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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
    explicit Runner(const CapturedProgram& p) : bound(p.kernels_.bound), buffers(p.output_types_.size()) {}
    BoundPlan bound;
    std::unique_ptr<BoundPlan> calls;  // made when they first run
    std::uint64_t key = 0, first = 0;  // of the random stream
    std::uint64_t plan_number = 0;     // of the plan that ran last
    std::vector<LeafBuffer> leaves;
    std::vector<void*> buffers;  // of the outputs; null to allocate one
    std::vector<StoragePtr> staged, storage;
    void clear() {
      leaves.clear(), staged.clear(), storage.clear();
      for (void*& buffer : buffers) buffer = nullptr;
    }
  };
  /// Sets the random stream; the program's numbers start at `first`.
  void set_draws(Runner& r, std::uint64_t key, std::uint64_t first) const { r.key = key, r.first = first; }
  /// Runs on r.leaves, in the order of leaves(). Outputs without a buffer are allocated in r.storage. Calls may take
  /// the place of kernels where they are faster, unless the run writes over leaves.
  enum class Steps : bool { either, kernels };
  void run(Runner& r, Steps steps = Steps::either) const;
  /// Runs many steps in one launch, where that can be; else false, and nothing has run.
  bool run_repeated(Runner& r, const Repetition& repetition) const;
  /// Whether it may ever be: the program is kernels, and draws nothing.
  bool may_repeat() const {
    const auto is_kernel = [](const PlanStep& step) { return std::holds_alternative<KernelStep>(step); };
    return kernels_.plan != nullptr && !has_effects() && !draws() &&
           std::ranges::all_of(kernels_.plan->steps, is_kernel);
  }

  const Program& program() const { return program_; }
  bool has_plan() const { return kernels_.plan != nullptr; }
  bool has_structure_of(const CapturedProgram& other) const {
    return entry_ == other.entry_ || (entry_ != nullptr && other.entry_ != nullptr && structure_ == other.structure_);
  }
  BackendKey backend() const { return kernels_.plan->backend; }
  /// The leaves that the plan reads, as indices into the leaves of the program.
  std::span<const std::uint32_t> leaves() const { return leaves_; }
  /// The node of leaf `i` of these.
  const ProgramNode& leaf_node(std::size_t i) const { return program_.nodes[kernels_.plan->leaf_records[i]]; }
  Place& place(std::uint32_t leaf) { return program_.leaves[leaf]; }
  std::span<const TensorType> output_types() const { return output_types_; }
  /// The nodes of the program that are outputs.
  std::span<const std::uint32_t> output_nodes() const { return output_nodes_; }
  /// Which outputs of its kernels may overwrite which of these leaves.
  std::span<const Overwrite> overwrites() const { return kernels_.bound.overwrites(); }
  /// Whether its steps include calls of kernels over tensors.
  bool has_boxed_calls() const { return has_boxed_calls_; }
  /// Whether its steps may have effects; they are ordered after effects recorded before a run.
  bool has_effects() const { return has_boxed_calls_ || has_effects_; }
  bool draws() const { return !kernels_.random.empty(); }

 private:
  /// A scalar that depends on the generator: its slot in the plan, and its offset into the numbers of a run.
  struct RandomScalar {
    std::size_t slot;
    std::uint64_t delta;
    bool is_key;
  };
  /// A plan that is bound to the sizes of the program.
  struct Form {
    const Plan* plan = nullptr;
    BoundPlan bound;  // the template that runners copy; never run
    std::vector<RandomScalar> random;
  };
  void bind(Form& form, const Plan& plan, std::span<const Node* const> records) const;
  void note(Runner& r, const Form& form) const;  // for profiles
  void run(Runner& r, const Form& form, BoundPlan& bound) const;
  void run_in_turn(Runner& r) const;
  bool run_calls(Runner& r) const;
  const Form* calls() const;

  Program program_;
  PlanEntryPtr entry_;
  std::vector<std::uint32_t> structure_;  // the key of the plan without what only the choice of kernels depends on
  Form kernels_;
  // One call per op, made when they first run.
  mutable std::mutex making_calls_;
  mutable std::unique_ptr<const Form> owned_calls_;
  mutable std::atomic<const Form*> calls_{nullptr};
  PlanTrial* trial_ = nullptr;  // between the two, in entry_; null if there is none
  double calls_ns_ = 0;         // about what the calls take
  std::vector<std::uint32_t> leaves_, output_nodes_;
  std::vector<TensorType> output_types_;
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
