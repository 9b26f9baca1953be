// The second half of the partitioner: writes the graph of one process, given a way to split each call.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "passes/partition.h"
#include "passes/partition_functions.h"

namespace fermata {

/// How results of parts along a mesh axis are combined: all of them on every process, or a block of them.
struct Combination {
  std::uint8_t mesh_axis;
  CollectiveReduction combine;
  std::optional<std::uint8_t> scatter_axis;
  bool is_later = false;  // the loop that the call is in does it, once
};

/// A call on blocks.
struct DividedCall {
  struct Factor {
    std::size_t number;  // of the rule
    std::uint8_t mesh_axis;
  };
  std::vector<Sharding> needs{};  // by operand
  std::vector<bool> is_free{};    // by operand: its sharding does not matter
  Sharding result{};              // after combining
  std::vector<Combination> combined{};
  std::vector<Factor> factors{};
  unsigned divided = 0;  // the mesh axes along which processes compute different parts
  std::optional<std::size_t> added{};
  std::vector<unsigned> counted_once{};  // by operand: the mesh axes along which the first process adds it alone
  bool is_constraint = false;
  std::shared_ptr<const FunctionDivision> division{};  // of a call of functions
  std::shared_ptr<const PackedSharding> packed{};      // of several results, and of what unpacks one of them
  std::size_t part = 0;                                // which one

  unsigned by_factor(std::size_t number) const {
    unsigned mask = 0;
    for (const Factor& f : factors)
      if (f.number == number) mask |= 1u << f.mesh_axis;
    return mask;
  }
  /// The mesh axes along which its result stays a part of a sum.
  unsigned left_as_parts() const {
    unsigned mask = 0;
    for (const Combination& c : combined)
      if (c.is_later) mask |= 1u << c.mesh_axis;
    return mask;
  }
  bool scatters_along(unsigned axis) const {
    for (const Combination& c : combined)
      if (c.scatter_axis && *c.scatter_axis == axis) return true;
    return false;
  }
};

/// The sharding that an output keeps, because it updates a value.
struct KeptSharding {
  Sharding sharding;
  bool is_placed;
};

/// The sharding of the result before combining.
inline Sharding before_combining(const DividedCall& call) {
  Sharding result = call.result;
  for (const Combination& c : call.combined)
    if (c.scatter_axis) result.axes[*c.scatter_axis] &= static_cast<std::uint8_t>(~(1u << c.mesh_axis));
  return result;
}

/// The ways of all calls; the required shardings of outputs; and which calls have a rule.
struct Choices {
  std::vector<DividedCall> calls;                 // by value
  std::vector<std::optional<KeptSharding>> kept;  // by output
  std::vector<bool> has_rule;                     // by value
  std::map<ValueId, std::unique_ptr<DividedFunctions>> functions;
  double seconds = 0;
};
LocalProgram write_local_program(const PartitionRequest& request, const Choices& choices);

}  // namespace fermata
