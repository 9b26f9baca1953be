// See structure.h.
#include "ir/structure.h"

#include <vector>

#include "ir/error.h"
#include "ir/external_op.h"
#include "ir/infer.h"

namespace fermata {
namespace {

/// Whether the size of the result is an argument of the call and not made of the operands and attributes: asked of
/// infer(), so that no list of such ops can be out of date.
bool size_is_an_argument(const Graph& graph, const GraphNode& node) {
  if (is_boxed(node.op)) return false;  // its Meta kernel gives the size
  std::vector<TensorType> operands;
  for (const GraphOperand& o : node.operands) {
    if (o.is_scalar()) return false;  // pointwise
    operands.push_back({graph.nodes[o.value].dtype, graph.nodes[o.value].shape});
  }
  TensorType other{node.dtype, node.shape};
  if (other.shape.rank() == 0)
    other.shape.push_back(2);
  else
    ++other.shape[0];
  try {
    return infer(node.op, operands, node.attributes, other, node.where).shape != node.shape;
  } catch (const Error&) { return true; }
}

}  // namespace

StructuralAttributes structural_attributes(Op op) {
  if (is_boxed(op)) return StructuralAttributes::none;  // kernels are told all their arguments
  switch (op) {
    case Op::slice: return StructuralAttributes::unit_steps;
    case Op::update:
    case Op::unpack:
    case Op::matmul_packed: return StructuralAttributes::none;
    case Op::csr_matmul: return StructuralAttributes::second;  // the number of columns is a size
    case Op::irfft: return StructuralAttributes::first;        // so is the number of results
    default: return StructuralAttributes::all;
  }
}

bool may_be_merged(const Graph& graph, const GraphNode& node) {
  if (node.op == Op::input || !node.scalars.empty() || effect_of(node.op) != Effect::pure) return false;
  // Of a boxed call with tensors only each attribute says "a tensor".
  const bool has_numbers = is_boxed(node.op) && node.attributes.size() != node.operands.size();
  const bool all_in_key =
      is_boxed(node.op) ? !has_numbers : structural_attributes(node.op) == StructuralAttributes::all;
  return all_in_key && !size_is_an_argument(graph, node);
}

}  // namespace fermata
