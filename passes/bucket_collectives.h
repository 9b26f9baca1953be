// Merges small reductions into buckets: one call of a few MiB instead of many, since each call has a latency.
//
// What it does    Merges all_reduces and reduce_scatters of one group, reduction and dtype that do not depend on each
//                 other, in the order of the graph. Operands are concatenated; results are slices. The elements
//                 of each sum are the same, and so is the order of all calls on all ranks.
// Needs           A graph that is equal on all ranks. Buckets depend on the order of the calls, their sizes
//                 and dependences, and all ranks must form the same ones. So the pass runs on graphs that the
//                 partitioner writes and on captured functions, and not on the graph of a sync,
//                 which another rank may have cut elsewhere (docs/adr/031-collectives-have-an-effect.md).
// Leaves behind   Calls in an order that is the same on all ranks. Running it again changes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace fermata {

struct Program;

/// A merged call.
struct CollectiveBucket {
  ValueId call;                  // in the resulting graph
  std::vector<ValueId> members;  // in the original graph
};
struct BucketedGraph {
  std::vector<ValueId> moved;  // by value of the original graph
  std::vector<CollectiveBucket> buckets;
};

/// A larger call amortizes its latency, and copying its operand would cost more than the latency.
inline constexpr std::int64_t kBucketBytes = std::int64_t{4} << 20, kMostBytesOfMember = std::int64_t{1} << 20;

BucketedGraph bucket_collectives(Graph& graph);
bool bucket_collectives(Program& program);

}  // namespace fermata
