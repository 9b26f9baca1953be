// A captured function that runs on buffers; owned and called by nodes of control-flow ops.
//
// Like compile(fn), but its arguments need not exist: placeholders have a type and no data. Everything that it reads is
// an argument: captured tensors and constants follow the declared arguments. It draws from its own random stream, whose
// key is passed to every run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fermata/tensor_tree.h"
#include "frontend/engine/captured_program.h"
#include "frontend/engine/spin_lock.h"
#include "runtime/runnable_subgraph.h"

namespace fermata {

class CapturedFunction final : public RunnableSubgraph {
 public:
  /// Whether collectives of f are joined. Those of the blocks of a partitioned program are already, as on all ranks:
  /// this rank's own blocks may be empty, and then less depends on them.
  enum class Collectives : bool { to_join, joined };
  /// Runs f on placeholders for the arguments, without recording gradients. `what` is the control-flow function, for
  /// errors. UnsupportedError FM2760 if f writes a captured tensor in place.
  CapturedFunction(const TensorFunction& f, std::span<const TensorType> arguments, BackendKey backend,
                   std::string_view what, Location where, Collectives collectives = Collectives::to_join);

  /// Captured tensors and constants of f, until arrange() is called.
  const std::vector<Tensor>& captures() const { return captures_; }
  /// Whether the plan reads an argument.
  bool reads(std::size_t argument) const { return reads_[argument]; }
  /// Maps arguments to those of the node: `places` has the index of the node's argument for each argument and then each
  /// capture. Unread ones need no place.
  void arrange(std::span<const std::size_t> places, std::span<const TensorType> arguments);
  static constexpr std::size_t kNoPlace = ~std::size_t{0};

  /// Whether both are equal except for sizes, numbers and called functions.
  bool has_structure_of(const CapturedFunction& other) const { return captured_.has_structure_of(other.captured_); }
  /// The outputs of the program, by result.
  std::span<const std::size_t> outputs() const { return outputs_; }
  std::span<const std::uint32_t> output_nodes() const { return captured_.output_nodes(); }
  bool draws() const { return captured_.draws(); }
  /// Whether a run makes calls that have an effect.
  bool has_effects() const { return has_effects_; }
  BackendKey backend() const { return captured_.backend(); }
  const Program& program() const { return captured_.program(); }
  Graph graph() const override;

  /// Results are dense. Thread-safe.
  void run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key) const override {
    run(arguments, results, key, 0);
  }
  bool run_scan(const ops::ScanLoop& scan, std::span<const TensorView> arguments,
                std::span<void* const> results) const override;
  /// Random numbers follow number `first` of the stream.
  void run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key,
           std::uint64_t first) const;

 private:
  class Recording;
  struct Lease;
  CapturedFunction(Recording&& recording, std::span<const TensorType> arguments, Location where);
  void take_captures(std::size_t arguments);
  LeafBuffer buffer_of(std::size_t i, std::span<const TensorView> arguments, std::vector<StoragePtr>& copies) const;

  Location where_;
  bool has_effects_ = false;
  std::vector<bool> reads_;
  std::vector<Tensor> captures_;
  CapturedProgram captured_;
  std::vector<std::size_t> outputs_;  // of the program, by result
  mutable SpinLock lock_;             // of the list, never held over a run
  mutable IdleRunners<CapturedProgram::Runner> idle_;
};

}  // namespace fermata
