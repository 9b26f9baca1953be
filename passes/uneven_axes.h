// Axes that a mesh does not divide evenly (docs/adr/040-uneven-blocks.md): which of them the partitioner may divide.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "passes/partition_write.h"

namespace fermata {

/// An axis is divided unevenly only if the program has divided one of its size so.
class UnevenAxes {
 public:
  explicit UnevenAxes(const PartitionRequest& request) : request_(request) {}
  /// Looks at what the program has divided: inputs, constraints, and outputs that keep a sharding.
  void find(const std::vector<std::optional<KeptSharding>>& kept);

  /// Whether mesh axes may divide an axis of this size, or the axes of a factor of a call: if parts are uneven, they
  /// have to be elements of all of these.
  bool may_divide(std::int64_t size, unsigned mesh_axes) const;
  bool may_divide(const SplitFactor& factor, const GraphNode& call, unsigned mesh_axes) const;
  /// Whether a call gathers an operand because its uneven blocks are none of a factor that even ones would be of.
  bool gathers(ValueId v, const std::vector<DividedCall>& calls) const;

 private:
  void add(const Shape& shape, const Sharding& sharding);

  const PartitionRequest& request_;
  std::set<std::pair<std::int64_t, unsigned>> sizes_;  // and the mesh axes that divide them so
};

/// The share of a call that each process computes at most.
double largest_share(const SplitRule& rule, const DividedCall& call, const MeshAxes& mesh);

}  // namespace fermata
