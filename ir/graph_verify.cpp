// The rules of a graph, checked after every pass.
#include <fmt/format.h>

#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "ir/infer.h"
#include "ir/op_traits.h"

namespace fermata {
namespace {

struct NodeChecker {
  const Graph& graph;
  std::size_t at;
  const GraphNode& node = graph.nodes[at];

  [[noreturn]] void broken(std::string_view what) const {
    throw_internal(fmt::format("graph: %{} ({}): {}", at, name(node.op), what));
  }

  void check_operands() const {
    const int declared = info(node.op).operands;
    if (declared >= 0 && node.operands.size() != static_cast<std::size_t>(declared)) broken("wrong number of operands");
    std::size_t scalars = scalar_argument_count(node.op);
    for (const GraphOperand& operand : node.operands) {
      if (operand.is_scalar()) {
        if (!is_pointwise(node.op)) broken("a scalar operand");
        if (operand.scalar != scalars++) broken("scalar operands out of order");
      } else if (operand.value >= at) {
        broken("an operand does not precede it");
      }
    }
    if (node.scalars.size() != scalars) broken("wrong number of scalars");
    if (is_pointwise(node.op) && scalars == node.operands.size()) broken("no tensor operand");
    if (node.op == Op::where && node.operands[0].is_scalar()) broken("a scalar condition");
    const std::size_t width = 8 * byte_size(scalar_dtype(operand_dtype(graph, node)));
    for (const std::uint64_t bits : node.scalars)
      if (width < 64 && bits >> width != 0) broken("a scalar has bits beyond its dtype");
  }

  void check_attributes() const {
    const OpTraits& op = traits(node.op);
    if (!attribute_list_length(op, node.attributes.size())) broken("wrong number of attributes");
    if (node.op != Op::input && !(node.dense && node.unit_inner)) broken("only inputs have a layout");
    if (node.unit_axis >= 0 && (node.unit_inner || node.unit_axis + 1 >= static_cast<int>(node.shape.rank())))
      broken("an axis of neighbors that cannot be one");
    const auto fields = op.fields;
    for (std::size_t i = 0; i < fields.size() && fields[i].kind != AttributeKind::list; ++i)
      if (fields[i].kind == AttributeKind::boolean && (node.attributes[i] & ~std::int64_t{1}) != 0)
        broken("a truth value that is neither 0 nor 1");
  }

  void check_type() const {
    std::vector<TensorType> operands;
    for (const GraphOperand& operand : node.operands)
      if (!operand.is_scalar())
        operands.push_back({graph.nodes[operand.value].dtype, graph.nodes[operand.value].shape});
    TensorType inferred;
    try {
      inferred = infer(node.op, operands, node.attributes, {node.dtype, node.shape}, node.where, node.subgraphs.get());
    } catch (const Error& error) {
      constexpr int kNoKernel = 2001;
      // Without a Meta kernel the type of a custom operator is unknown before it has run.
      if (error.code() == kNoKernel && is_boxed(node.op)) return;
      broken(error.what());
    }
    if (inferred != TensorType{node.dtype, node.shape})
      broken(fmt::format("is {}, should be {}", to_string(node.dtype, node.shape),
                         to_string(inferred.dtype, inferred.shape)));
  }
};

}  // namespace

void verify(const Graph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeChecker checker{graph, i};
    checker.check_operands();
    checker.check_attributes();
    checker.check_type();
  }
  for (const ValueId output : graph.outputs)
    if (output >= graph.nodes.size()) throw_internal(fmt::format("graph: output %{} does not exist", output));
}

}  // namespace fermata
