// Small reductions become buckets: one call of a few MiB instead of many, since each call has a latency of its own.
//
// What it does    Joins all_reduces and reduce_scatters of one group, reduction and dtype that do not depend on each
//                 other, in the order of the graph. Operands are laid side by side; results are slices. The elements
//                 of each sum are the same, and so is the order of all calls on all ranks.
// Needs           A graph that all ranks have alike. What is joined follows from the order of the calls, their sizes
//                 and what depends on what, and all ranks have to find the same. So it runs on graphs that the
//                 partitioner writes and on functions that were captured as wholes, and not on the graph of a sync,
//                 which another rank may have cut elsewhere (docs/adr/031-collectives-have-an-effect.md).
// Leaves behind   Calls in an order that depends on no sizes of one rank alone. Running it again changes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace fermata {

struct Program;

/// A call that was several.
struct CollectiveBucket {
  ValueId call;                  // in the graph that is left
  std::vector<ValueId> members;  // in the graph before
};
struct BucketedGraph {
  std::vector<ValueId> moved;  // by value of the graph before
  std::vector<CollectiveBucket> buckets;
};

/// A call of more bytes hides its latency by itself, and copying its operand would cost more than that.
inline constexpr std::int64_t kBucketBytes = std::int64_t{4} << 20, kMostBytesOfMember = std::int64_t{1} << 20;

BucketedGraph bucket_collectives(Graph& graph);
bool bucket_collectives(Program& program);

}  // namespace fermata
