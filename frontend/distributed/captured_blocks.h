// A partitioned program that is captured once and runs on blocks: replays of compile(fn), and syncs of a
// cached program, use it instead of recording the graph of this process again.
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
  /// Random ops that draw the numbers of `drawn` draw new ones in each run.
  CapturedBlocks(const Graph& local, BackendKey backend, const DrawnRange& drawn, Location where);
  /// The outputs, given tensors in place of the inputs.
  std::vector<Tensor> run(std::span<const Tensor> blocks, std::uint64_t key, std::uint64_t first, Location where) const;

 private:
  BackendKey backend_;
  std::unique_ptr<CapturedFunction> function_;
  std::vector<Tensor> constants_;
};

/// A recorded program that runs in a rewritten form, the same on all ranks: partitioned, if it has divided
/// tensors, or with its collectives in buckets.
class ProgramOfRanks {
 public:
  /// Null if the program runs as recorded.
  static std::unique_ptr<const ProgramOfRanks> of(const Walk& walk, const DrawnRange& drawn, Location where);
  /// The outputs of the walk, sharded as the partitioner chose, given tensors in place of its leaves, in order.
  std::vector<Tensor> run(std::span<const Tensor> leaves, std::uint64_t key, std::uint64_t first, Location where) const;
  std::size_t outputs() const { return types_.size(); }

 private:
  explicit ProgramOfRanks(const Walk& walk);

  BackendKey backend_;
  std::vector<TensorType> types_;  // of the outputs, as wholes
  std::shared_ptr<const MeshState> mesh_;
  std::shared_ptr<const LocalProgram> program_;  // null if nothing is sharded
  std::unique_ptr<const CapturedBlocks> blocks_;
};

}  // namespace fermata
