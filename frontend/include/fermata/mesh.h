// Tensors sharded over processes: a program for one machine runs on many.
//
//   fm::Mesh mesh({{"data", 2}, {"model", 2}});              // a grid of four processes
//   fm::shard_(model.weight, mesh, {{}, "model"});           // columns are split along "model"
//   fm::Tensor x = fm::shard(images, mesh, {"data"});        // rows along "data"
//   fm::Tensor loss = cross_entropy(model.forward(x), labels);
//   loss.backward();
//
// A sharded tensor has the shape of the whole, and every op takes it, in both modes. A sync partitions its program
// first: each process computes its blocks, and collectives are inserted where needed. All processes run the same
// program, and whole tensors have the same values on all of them. See docs/sharding.md.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fermata/distributed.h"
#include "runtime/tensor.h"

namespace fermata {

struct MeshState;

struct MeshAxis {
  std::string name;
  std::int64_t size;
};

/// A grid of all processes with named axes. Copies refer to the same mesh.
class Mesh {
 public:
  /// Processes are numbered in row-major order: process r of a mesh of two axes is at {r / size(1), r % size(1)}. All
  /// processes must create the same meshes in the same order.
  ///
  /// Errors   ValueError FM7101 unless the product of the sizes is the number of processes and the names are distinct.
  Mesh(std::initializer_list<MeshAxis> axes, Location where = Location::current());
  explicit Mesh(const std::vector<MeshAxis>& axes, Location where = Location::current());

  std::int64_t processes() const;
  std::int64_t rank() const;
  /// The names of the axes.
  const std::vector<std::string>& axes() const;
  /// The size of an axis, and the coordinate of this process along it. ValueError FM7102 for an unknown axis.
  std::int64_t size(std::string_view axis, Location where = Location::current()) const;
  std::int64_t coordinate(std::string_view axis, Location where = Location::current()) const;

  /// The group of processes along an axis, for the collectives of fermata/distributed.h.
  distributed::Group group(std::string_view axis, Location where = Location::current()) const;

  const std::shared_ptr<const MeshState>& state() const { return state_; }

 private:
  std::shared_ptr<const MeshState> state_;
};

/// The mesh axes that split one axis of a tensor: none, one, or several in the order of the mesh.
struct AxisSplit {
  AxisSplit() = default;
  AxisSplit(const char* name) : names{name} {}
  AxisSplit(std::string name) : names{std::move(name)} {}
  AxisSplit(std::initializer_list<const char*> several) : names(several.begin(), several.end()) {}
  std::vector<std::string> names;
};
/// One split per axis of a tensor; axes beyond the list are whole.
using AxisSplits = std::vector<AxisSplit>;

/// Shards a tensor: shard(x, mesh, {"data", {}}). A materialized tensor is sharded immediately, and each process keeps
/// its block. If p processes share n elements of an axis, each has n / p of them, rounded up, and the last ones fewer
/// or none: 4 processes have 3, 3, 3 and 1 of 10. Inside functions and for values with a gradient history, which is
/// kept, this is a constraint on the computed value.
///
/// Errors   ValueError FM7102 for an unknown mesh axis, FM7103 for one that is named twice, FM7104 for more splits than
///          axes.
Tensor shard(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where = Location::current());
/// Shards a tensor in place; parameters stay parameters, and optimizers keep them.
void shard_(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where = Location::current());
/// Assembles a sharded tensor from the block of each process. All blocks have the same shape. Processes along mesh axes
/// that split nothing must pass equal blocks, and share the gradient evenly.
Tensor from_blocks(const Tensor& block, const Mesh& mesh, const AxisSplits& splits,
                   Location where = Location::current());
/// The same for a tensor of the given sizes, whose blocks are those that shard() makes: the last ones may be shorter.
///
/// Errors   ShapeError FM7105 if a block has another shape.
Tensor from_blocks(const Tensor& block, const std::vector<std::int64_t>& sizes, const Mesh& mesh,
                   const AxisSplits& splits, Location where = Location::current());
/// Returns the block of this process, or all of a whole tensor. Syncs. The backward pass assembles the gradients of the
/// blocks of all processes.
Tensor own_block(const Tensor& x, Location where = Location::current());
/// Gathers the whole tensor on all processes. Reading elements does this implicitly.
Tensor unshard(const Tensor& x, Location where = Location::current());
/// Whether the value is sharded. A pending value counts as whole.
bool is_sharded(const Tensor& x, Location where = Location::current());
/// The sharding as text, such as "[data, -]", or "whole". Syncs.
std::string sharding_of(const Tensor& x, Location where = Location::current());

/// Runs `fn` on each process's own blocks: arguments are sharded as `in` says, and results are taken as blocks split
/// as `out` says. Gradients pass through it and through the collectives that `fn` calls. If blocks of arguments differ
/// in size, those of results may as well, and their sizes are exchanged.
using BlockFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
BlockFunction shard_map(BlockFunction fn, const Mesh& mesh, std::vector<AxisSplits> in, std::vector<AxisSplits> out,
                        Location where = Location::current());

/// Counters of the partitioner on this thread.
struct PartitionCounts {
  std::uint64_t partitions = 0;      // programs partitioned
  std::uint64_t cached = 0;          // syncs that reused a partitioned program
  std::uint64_t collectives = 0;     // in programs that ran
  std::uint64_t gathered_calls = 0;  // calls of ops without a rule whose operands were gathered, in programs that ran
  double wire_bytes = 0;             // sent by this process
};
PartitionCounts partition_counts();

namespace distributed {

/// For tests: runs `fn(rank)` as the given number of processes, each a thread of this process with a world of its own;
/// collectives go through memory. When all have ended, throws the first error of any of them.
///
/// Errors   CollectiveError FM7110 in a process that waits for one that has ended, FM7111 if they call different
///          collectives.
void simulate(int processes, const std::function<void(int rank)>& fn);

/// For measurements: while it lives, collectives of this thread exchange nothing, and their results consist of elements
/// of this rank. So a program takes as long as its computation, and computes something else. Ranks that share a
/// processor take turns at each call. Groups are still formed, and transfers by NCCL still run.
class WithoutTransfers {
 public:
  WithoutTransfers();
  ~WithoutTransfers();
  WithoutTransfers(const WithoutTransfers&) = delete;
  WithoutTransfers& operator=(const WithoutTransfers&) = delete;
  /// Returns the seconds of computation before each call that was waited for, since the last one or the last time this
  /// was called, and after the last call.
  std::vector<double> take_times();

 private:
  struct Times;
  std::unique_ptr<Times> times_;
};

}  // namespace distributed
}  // namespace fermata
