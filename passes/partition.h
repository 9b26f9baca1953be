// The partitioner: from a graph of whole tensors to the graph of one process, with collectives in it.
//
// Every value gets a sharding. Those of inputs are given; the others are chosen by cost: what a call takes on blocks,
// and what it takes to bring its operands into the blocks that it needs. Then the graph of the process at hand is
// written: each op on its blocks, collectives where parts are combined, and slices and collectives where a value is
// needed in other blocks than it is in. All processes write the same collectives in the same order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/sharding.h"
#include "passes/split_rules.h"

namespace fermata {

/// What the choice is made by. Predictions are in seconds.
struct PartitionCosts {
  double latency = 5e-6;  // of a collective
  double bytes_per_second = 1e10;
  double operations_per_second = 5e10;
  double memory_bytes_per_second = 1e10;
};
/// Of this thread: tests make transfers cheap, so that small programs are divided wherever they can be.
extern constinit thread_local PartitionCosts partition_costs;

enum class ExchangeKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
inline constexpr std::string_view kExchangeNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

/// A collective of the processes along a mesh axis, as the partitioner puts it in.
struct Exchange {
  ExchangeKind kind;
  std::uint8_t mesh_axis;
  CollectiveReduction combine = CollectiveReduction::sum;  // of reductions
  std::uint8_t axis = 0;                                   // of the tensor: the one that is gathered or scattered
  std::uint8_t to_axis = 0;                                // of all_to_all: the one that is divided instead of `axis`
};
/// A collective that was put in, and why.
struct PlacedExchange {
  Exchange what;
  ValueId global;  // the value that it belongs to
  std::string why;
  double wire_bytes;       // that one process sends
  double seconds;          // predicted
  ValueId local;           // in the graph of the process: what the collective gives
  std::size_t bucket = 0;  // the call that it shares with others, counted from 1; none where it is a call of its own
};

/// How several results that one value holds are divided (ir/tuple_layout.h).
struct PackedSharding {
  std::vector<Sharding> results;
  std::vector<std::int64_t> offsets;        // in the value of this process
  std::vector<std::int64_t> whole_offsets;  // in that of one process alone
  std::vector<unsigned> sums;               // by result: mesh axes along which each process has a part of a sum
  std::int64_t bytes = 0;                   // of the value of this process
  bool operator==(const PackedSharding&) const = default;

  /// Which result lies at an offset of one process alone. Of results without elements any, as none of them is divided.
  std::size_t part_at(std::int64_t offset) const {
    std::size_t part = 0;
    for (std::size_t i = 0; i < whole_offsets.size(); ++i)
      if (whole_offsets[i] == offset) part = i;
    return part;
  }
};

/// What is known of a value that is there.
struct GivenSharding {
  Sharding sharding;
  bool is_divided = false;                         // also where it is whole; else a plain tensor, the same everywhere
  bool is_placed = false;                          // the program has said where it is
  std::shared_ptr<const PackedSharding> packed{};  // where it holds several results
};

struct PartitionRequest {
  const Graph& graph;
  const MeshAxes& mesh;
  std::vector<std::int64_t> coordinates;  // of the process
  std::vector<GivenSharding> inputs;      // by node; of inputs only
  /// What a node asks for that only gives its operand another sharding; nothing for all others.
  std::function<std::optional<Sharding>(const GraphNode&)> constraint;
  std::vector<std::int64_t> groups;  // by mesh axis: the number of the group of ranks along it
  PartitionCosts costs = partition_costs;
  std::vector<std::optional<Sharding>> results{};  // of a function, by output: how they have to be divided
  bool is_function = false;                        // of a node: nobody reads its results but that
  std::vector<unsigned> sums{};  // of a step, by output: mesh axes along which it leaves parts (sums_of_steps.h)
};

struct LocalFunctions;
struct LocalProgram {
  Graph graph;                      // its inputs are those of the whole graph, in order
  std::vector<ValueId> scalars_of;  // by local node: the whole graph's node that its scalars are from, or none
  std::vector<Sharding> shardings;  // by node of the whole graph
  std::vector<Sharding> outputs;    // by output
  std::vector<std::shared_ptr<const PackedSharding>> packed;  // by output, where it holds several results
  std::vector<unsigned> sums;   // by output of a step: mesh axes along which it has left something as parts
  std::vector<bool> is_placed;  // by output: it updates a value that was placed, and is so as well
  std::vector<PlacedExchange> collectives;
  std::vector<ValueId> gathered;  // calls without a rule whose operands had to be made whole
  std::size_t calls = 0;          // of collectives: each bucket is one
  double seconds = 0;             // predicted
  std::vector<LocalFunctions> functions;
};
/// The functions of a node, where those of this process are others.
struct LocalFunctions {
  ValueId local, global;  // the node
  double runs;            // of its functions
  std::vector<LocalProgram> programs;
  std::vector<std::shared_ptr<const Graph>> whole;
};

LocalProgram partition(const PartitionRequest& request);

/// One step of bringing a value into another sharding.
struct ReshardStep {
  std::optional<Exchange> collective;  // else the own block along `axis` is taken
  std::uint8_t mesh_axis = 0, axis = 0;
};
std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to, unsigned rank, const MeshAxes& mesh);
/// The sharding of a value after a step.
Sharding after(const ReshardStep& step, Sharding now);

/// The operand and the result of a collective, which have the same sizes on all processes: shorter blocks are filled up
/// with zeros before it, and what that adds is cut off after it.
struct ExchangeShapes {
  Shape operand, result;
};
ExchangeShapes exchange_shapes(const Exchange& what, const Shape& whole, const Sharding& before, const Sharding& after,
                               const MeshAxes& mesh);

/// Bytes that each process sends for a collective, from the bytes that it starts with (the algorithms that move least).
double wire_bytes(ExchangeKind kind, double bytes, std::int64_t processes);

/// The graph with its shardings, the collectives and why they are there, as `explain` prints it.
std::string describe_partition(const PartitionRequest& request, const LocalProgram& program);

}  // namespace fermata
