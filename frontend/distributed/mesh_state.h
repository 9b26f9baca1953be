// The state of a mesh, and the value of a sharded tensor.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fermata/distributed.h"
#include "fermata/mesh.h"
#include "ir/sharding.h"
#include "passes/partition.h"
#include "runtime/distributed_value.h"
#include "runtime/walk.h"

namespace fermata {

struct MeshState {
  MeshAxes axes;
  std::int64_t rank = 0;
  std::vector<std::int64_t> coordinates;
  std::vector<distributed::Group> groups;  // of the ranks along each axis
  std::int64_t number = 0;                 // in this process

  Sharding sharding_of(const AxisSplits& splits, const Tensor& x, std::string_view function, Location where) const;
  std::size_t axis(std::string_view name, Location where) const;
};
/// The mesh of a number; InternalError where there is none any more.
std::shared_ptr<const MeshState> mesh_of_number(std::int64_t number);

struct ShardedValue final : DistributedValue {
  ShardedValue(Tensor of_this_process, std::shared_ptr<const MeshState> on, const Sharding& as, bool asked)
      : block(std::move(of_this_process)), mesh(std::move(on)), sharding(as), is_placed(asked) {}
  bool is_divided_like(const DistributedValue& other) const override;
  std::shared_ptr<const DistributedValue> division() const override;

  Tensor block;
  std::shared_ptr<const MeshState> mesh;
  Sharding sharding;
  bool is_placed;                                  // the program has said where it is, or it updates such a value
  std::shared_ptr<const PackedSharding> packed{};  // where it holds several results: `sharding` says nothing then
};
/// Null unless the value is there and divided.
const ShardedValue* sharded_value(const Node& node);

/// A leaf of the whole's type, which the program has placed.
Tensor make_sharded(const Tensor& block, const Shape& whole, std::shared_ptr<const MeshState> mesh,
                    const Sharding& sharding);
/// The block of another sharding of a tensor of shape `whole`, computed at once.
Tensor resharded(const Tensor& block, const Shape& whole, const MeshState& mesh, const Sharding& from,
                 const Sharding& to, Location where);

/// All elements of a value of shape `whole`, in a tensor that is not divided.
Tensor gathered(const ShardedValue& value, const Shape& whole, Location where);

/// A collective on a tensor of this process, at once or recorded.
Tensor call_collective(const Tensor& block, const MeshState& mesh, const Exchange& what, Location where);

/// What a node that is a constraint asks for.
struct ShardingConstraint {
  std::int64_t mesh;
  Sharding sharding;
  bool operator==(const ShardingConstraint&) const = default;
};
std::optional<ShardingConstraint> constraint_of(const GraphNode& node);
std::optional<ShardingConstraint> constraint_of(const Node& node);
/// Records a constraint, or divides at once in eager mode. A gradient history continues.
Tensor constrain(const Tensor& x, const MeshState& mesh, const Sharding& sharding, Location where);

/// A value that a tensor is about to get, sharded as the tensor is if the program has placed that: as a value, or as
/// what is recorded for it.
Tensor placed_like(const Tensor& target, const Tensor& value, Location where);

/// Whether a sync of what was walked goes through the partitioner.
bool is_partitioned(const Walk& walk);
/// Computes the outputs of a walk: as blocks of this process, or whole where they are so.
void run_partitioned(const Walk& walk, std::span<StoragePtr> results);
/// What that would do, in words.
std::string explain_partitioned(const Walk& walk);

void register_mesh_operators();

}  // namespace fermata
