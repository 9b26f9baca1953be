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

/// A bit per reduced axis; 0 if the node is not a reduction.
inline std::uint16_t reduced_axes(const GraphNode& node) {
  if (family(node.op) != Family::reduce) return 0;
  return static_cast<std::uint16_t>(attributes_of<ops::Reduction>(node).axes.value);
}

}  // namespace fermata
