// Shared by syncs of sharded tensors and replays of compiled functions (partitioned_sync.cpp).
#pragma once

#include <memory>
#include <optional>

#include "frontend/distributed/mesh_state.h"
#include "frontend/transforms/vmap/batched.h"
#include "runtime/effects.h"

namespace fermata {

/// Calls run without transforms, whatever transforms the thread is in.
class PlainThread {
 public:
  PlainThread();
  ~PlainThread();
  PlainThread(const PlainThread&) = delete;
  PlainThread& operator=(const PlainThread&) = delete;

 private:
  ThreadKeys keys_;
  std::optional<InsideLevel> outside_;
  EffectScope effects_;
};

struct PartitionedWalk {
  std::shared_ptr<const MeshState> mesh;
  std::shared_ptr<const LocalProgram> program;  // with the numbers of this walk
};
PartitionedWalk partition_walk(const Walk& walk);

/// The value of an output of a walk, from the part that this process has computed.
StoragePtr storage_of_output(const Tensor& block, std::size_t output, const LocalProgram& program,
                             const std::shared_ptr<const MeshState>& mesh);
/// Notes for partition_counts() that a program has run.
void count_partitioned(const LocalProgram& program);

}  // namespace fermata
