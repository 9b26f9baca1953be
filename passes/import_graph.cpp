// The graph of a walk: the step from pending nodes to the arena that passes work on.
#include <algorithm>

#include "passes/pipeline.h"

namespace fermata {

Graph import_graph(const Walk& walk) {
  Graph graph;
  graph.nodes.reserve(walk.order.size());
  for (std::uint32_t i = 0; i < walk.order.size(); ++i) {
    const Node& n = *walk.order[i].node;
    GraphNode out;
    out.dtype = n.dtype, out.shape = Shape(n.sizes()), out.where = n.where, out.record = i;
    if (walk.order[i].storage != nullptr) {
      out.op = Op::input;
      out.dense = n.is_dense_leaf();
      out.unit_inner = out.dense || n.rank == 0 || n.extra->strides[n.rank - 1u] == 1;
      if (!out.unit_inner) out.unit_axis = last_unit_axis(n.extra->strides);
      graph.nodes.push_back(std::move(out));
      continue;
    }
    out.op = n.op;
    out.attributes = attributes_of(n);
    if (n.extra != nullptr) {
      out.scalars.assign(n.extra->scalars.begin(), n.extra->scalars.end());
      out.context = n.extra->context, out.subgraphs = n.extra->subgraphs;
    }
    const std::uint32_t begin = walk.first_operand[i];
    const std::size_t end = i + 1 < walk.first_operand.size() ? walk.first_operand[i + 1] : walk.operands.size();
    for (std::size_t k = begin; k < end; ++k) {
      if (walk.operands[k] != Walk::kScalarOperand) {
        out.operands.push_back({walk.operands[k], 0});
        continue;
      }
      out.operands.push_back({kNoValue, static_cast<std::uint16_t>(out.scalars.size())});
      out.scalars.push_back(n.scalar);
    }
    graph.nodes.push_back(std::move(out));
  }
  graph.outputs.assign(walk.outputs.begin(), walk.outputs.end());
  return graph;
}

}  // namespace fermata
