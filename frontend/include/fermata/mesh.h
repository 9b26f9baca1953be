// Tensors that are divided among processes: programs for one machine that run on many.
//
//   fm::Mesh mesh({{"data", 2}, {"model", 2}});              // four processes, each at a place of its own
//   fm::shard_(model.weight, mesh, {{}, "model"});           // columns are divided along "model"
//   fm::Tensor x = fm::shard(images, mesh, {"data"});        // rows along "data"
//   fm::Tensor loss = cross_entropy(model.forward(x), labels);
//   loss.backward();
//
// A divided tensor has the shape of the whole, and every op takes it, in both modes. What a sync computes is
// partitioned first: each process computes its blocks, and collectives are put in where they are needed. All processes
// run the same program. Tensors that are not divided are the same on all of them. docs/sharding.md says more.
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

/// A grid of all processes, whose axes have names. Copies are the same mesh.
class Mesh {
 public:
  /// The last axis is the fastest: process r is at {r / size(1), r % size(1)} of a mesh of two axes. All processes make
  /// the same meshes in the same order.
  ///
  /// Errors   ValueError FM7101 unless the sizes have the number of processes as their product, and names differ.
  Mesh(std::initializer_list<MeshAxis> axes, Location where = Location::current());
  explicit Mesh(const std::vector<MeshAxis>& axes, Location where = Location::current());

  std::int64_t processes() const;
  std::int64_t rank() const;
  /// The names of its axes.
  const std::vector<std::string>& axes() const;
  /// Of an axis: ValueError FM7102 for one that the mesh does not have.
  std::int64_t size(std::string_view axis, Location where = Location::current()) const;
  std::int64_t coordinate(std::string_view axis, Location where = Location::current()) const;

  /// The processes along an axis: what collectives of fermata/distributed.h are called with.
  distributed::Group group(std::string_view axis, Location where = Location::current()) const;

  const std::shared_ptr<const MeshState>& state() const { return state_; }

 private:
  std::shared_ptr<const MeshState> state_;
};

/// The mesh axes that one axis of a tensor is divided along: none, one, or several in the order of the mesh.
struct AxisSplit {
  AxisSplit() = default;
  AxisSplit(const char* name) : names{name} {}
  AxisSplit(std::string name) : names{std::move(name)} {}
  AxisSplit(std::initializer_list<const char*> several) : names(several.begin(), several.end()) {}
  std::vector<std::string> names;
};
/// For each axis of a tensor; those that are left out are whole.
using AxisSplits = std::vector<AxisSplit>;

/// The same values, divided: shard(x, mesh, {"data", {}}). A tensor that is there is divided at once, each process
/// keeping its block. Elsewhere this is a constraint on what is computed: inside of functions, and for values with a
/// gradient history, which continues.
///
/// Errors   ValueError FM7102 for an axis that the mesh does not have, FM7103 for one that is named twice, FM7104 for
///          more splits than axes; ShapeError FM7105 for an axis that does not divide into equal blocks.
Tensor shard(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where = Location::current());
/// The tensor itself becomes divided; parameters stay parameters, and optimizers keep them.
void shard_(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where = Location::current());
/// The tensor of which every process gives its block. All blocks are of one shape. Processes along mesh axes that
/// divide nothing give equal blocks, and share the gradient evenly.
Tensor from_blocks(const Tensor& block, const Mesh& mesh, const AxisSplits& splits,
                   Location where = Location::current());
/// The block of this process; of a tensor that is not divided all of it. The value is computed. In a backward pass all
/// processes bring the gradients of their blocks together.
Tensor own_block(const Tensor& x, Location where = Location::current());
/// The same values, not divided: all processes gather them. Reading elements does so by itself.
Tensor unshard(const Tensor& x, Location where = Location::current());
/// Whether the value is divided, as far as it is computed.
bool is_sharded(const Tensor& x, Location where = Location::current());
/// Text: [data, -]; "whole" for a tensor that is not divided. The value is computed.
std::string sharding_of(const Tensor& x, Location where = Location::current());

/// A function that each process runs on its own blocks: its arguments are divided as `in` says, its results are taken
/// for blocks as `out` says. Gradients go through it, and through the collectives that the function calls.
using BlockFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
BlockFunction shard_map(BlockFunction fn, const Mesh& mesh, std::vector<AxisSplits> in, std::vector<AxisSplits> out,
                        Location where = Location::current());

/// What the partitioner has done in this thread so far.
struct PartitionCounts {
  std::uint64_t partitions = 0;      // programs that were partitioned
  std::uint64_t cached = 0;          // syncs that found theirs partitioned
  std::uint64_t collectives = 0;     // in programs that ran
  std::uint64_t gathered_calls = 0;  // calls of ops without a rule whose operands were gathered, in programs that ran
  double wire_bytes = 0;             // that this process has sent in them
};
PartitionCounts partition_counts();

namespace distributed {

/// Runs `fn(rank)` as so many processes, each a thread of this one with a world of its own, and collectives through
/// memory: for tests. When all have ended the first error of any of them is thrown.
///
/// Errors   CollectiveError FM7110 in a process that waits for one that has ended, FM7111 where they call different
///          collectives.
void simulate(int processes, const std::function<void(int rank)>& fn);

}  // namespace distributed
}  // namespace fermata
