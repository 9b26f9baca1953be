// A function that was captured once and can be run on buffers: what the steps of control flow call.
//
// Like compile(fn), but its arguments need not exist: stand-ins have a type and no data. What it mentions without
// taking it becomes operands after the arguments. It draws from a stream of its own, whose key is given to every run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fermata/tensor_tree.h"
#include "frontend/engine/recorded_program.h"
#include "frontend/engine/spin_lock.h"
#include "runtime/bound_plan.h"
#include "runtime/plan_cache.h"

namespace fermata {

/// The key of run number `run` of a control-flow call, whose seed is a draw from the generator that it was made under.
std::uint64_t stream_key(double seed, std::uint64_t run);

class CapturedFunction {
 public:
  /// Runs f on stand-ins of the arguments, no gradients recorded. `what` is the control-flow function, for errors:
  /// UnsupportedError FM2760 where f writes a tensor from outside in place.
  CapturedFunction(const TensorFunction& f, std::span<const TensorType> arguments, BackendKey backend,
                   std::string_view what, Location where);

  const std::vector<TensorType>& results() const { return results_; }
  /// What f mentions and the plan reads.
  const std::vector<Tensor>& hidden() const { return hidden_; }
  bool reads(std::size_t argument) const { return reads_[argument]; }
  bool draws() const { return !random_.empty(); }
  /// Whether a run makes calls that have an effect.
  bool has_effects() const { return has_effects_; }
  BackendKey backend() const { return plan_->backend; }
  /// Of one that is captured while another function is: what to compare. Arguments are operands of run().
  const Program& program() const { return program_; }

  /// `operands` are the arguments, then what is hidden; results are dense. Several threads may call this.
  void run(std::span<const TensorView> operands, std::span<void* const> results, std::uint64_t key);

 private:
  struct Leaf {
    std::size_t operand = 0;
    Tensor constant{};     // made inside; undefined for an operand
    bool strided = false;  // as it was captured, with
    Shape strides{};
    std::int64_t offset = 0;
  };
  struct RandomScalar {
    std::size_t slot;
    bool is_key;
    std::uint64_t offset;
  };

  /// A bound plan of one run.
  struct Lease {
    explicit Lease(CapturedFunction& f);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    CapturedFunction& function;
    std::unique_ptr<BoundPlan> bound;
  };

  void list_program(const Walk& walk);
  void take_leaves(const Walk& walk, std::span<const Tensor> placeholders, const class CaptureScope& scope);
  LeafBuffer buffer_of(const Leaf& leaf, std::span<const TensorView> operands, std::vector<StoragePtr>& copies) const;

  bool has_effects_ = false;
  std::vector<TensorType> results_;
  std::vector<Tensor> hidden_;
  std::vector<bool> reads_;
  Location where_;
  Program program_;
  PlanEntryPtr entry_;
  const Plan* plan_ = nullptr;
  BoundPlan bound_;  // never run: what those that run are copies of
  SpinLock lock_;    // of the list, never held over a run
  std::vector<std::unique_ptr<BoundPlan>> idle_;
  std::vector<Leaf> leaves_;
  std::vector<std::size_t> outputs_;  // of the plan, by result
  std::vector<RandomScalar> random_;
};

/// Copies a tensor to another place of the same type, dense and row-major.
void copy_view(const TensorView& from, void* to, BackendKey backend, Location where);

}  // namespace fermata
