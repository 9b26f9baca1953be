// The attributes that all reductions share. Their rows are in ir/ops/reduce.def.
#pragma once

#include "ir/graph.h"
#include "ir/op_fields.h"

namespace fermata::ops {

struct Reduction {
  Structure<Axes> axes;
  Structure<bool> keepdims;

  bool is_reduced(unsigned axis) const { return (axes.value >> axis & 1) != 0; }
};

}  // namespace fermata::ops

namespace fermata {

/// Whether the bits of a reduction over elements of a compute dtype depend on their order: of extremes the sign of zero
/// does. Positions say themselves which is first.
constexpr bool depends_on_order(Op op, DType lifted) {
  return is_inexact(lifted) && op != Op::argmax && op != Op::argmin;
}

/// A bit per reduced axis; 0 if the node is not a reduction.
inline std::uint16_t reduced_axes(const GraphNode& node) {
  if (family(node.op) != Family::reduce) return 0;
  return static_cast<std::uint16_t>(attributes_of<ops::Reduction>(node).axes.value);
}

}  // namespace fermata
