// A partitioned program that was captured once and runs on blocks: what a replay of compile(fn), and a sync of a
// program that is there again, needs instead of recording the graph of this process anew.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/captured_function.h"
#include "frontend/engine/recorded_program.h"
#include "runtime/walk.h"

namespace fermata {

/// The graph of one process as a function.
class CapturedBlocks {
 public:
  /// What draws numbers of `drawn` draws those of each run.
  CapturedBlocks(const Graph& local, BackendKey backend, const DrawnRange& drawn, Location where);
  /// The outputs, for tensors that take the place of the inputs.
  std::vector<Tensor> run(std::span<const Tensor> blocks, std::uint64_t key, std::uint64_t first, Location where) const;

 private:
  BackendKey backend_;
  std::unique_ptr<CapturedFunction> function_;
  std::vector<Tensor> constants_;
};

/// A recorded program that runs as another one, which all ranks make of it alike: partitioned, where it has divided
/// tensors, or with its collectives in buckets.
class ProgramOfRanks {
 public:
  /// Null where the program runs as it was recorded.
  static std::unique_ptr<const ProgramOfRanks> of(const Walk& walk, const DrawnRange& drawn, Location where);
  /// The outputs of the walk, divided as the partitioner wants them, for tensors in the place of its leaves, in order.
  std::vector<Tensor> run(std::span<const Tensor> leaves, std::uint64_t key, std::uint64_t first, Location where) const;
  std::size_t outputs() const { return types_.size(); }

 private:
  explicit ProgramOfRanks(const Walk& walk);

  BackendKey backend_;
  std::vector<TensorType> types_;  // of the outputs, as wholes
  std::shared_ptr<const MeshState> mesh_;
  std::shared_ptr<const LocalProgram> program_;  // null where nothing is divided
  std::unique_ptr<const CapturedBlocks> blocks_;
};

}  // namespace fermata
