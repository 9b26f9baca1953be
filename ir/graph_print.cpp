// The text form of a graph; graph_parse.cpp reads it back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

#include "ir/error.h"
#include "ir/graph.h"
#include "ir/op_traits.h"
#include "ir/scalar_text.h"
#include "ir/scope.h"

namespace fermata {
namespace {

std::string arguments_text(const Graph& graph, const GraphNode& node) {
  const DType dtype = scalar_dtype(operand_dtype(graph, node));
  std::vector<std::string> arguments;
  for (const GraphOperand& operand : node.operands)
    arguments.push_back(operand.is_scalar() ? scalar_to_text(dtype, node.scalars[operand.scalar])
                                            : fmt::format("%{}", operand.value));
  if (scalar_argument_count(node.op) > 0)
    for (const std::uint64_t bits : node.scalars) arguments.push_back(scalar_to_text(dtype, bits));
  return arguments.empty() ? "" : fmt::format("({})", fmt::join(arguments, ", "));
}

std::string axes_text(std::uint64_t mask) {
  std::vector<int> axes;
  for (; mask != 0; mask &= mask - 1) axes.push_back(std::countr_zero(mask));
  return fmt::format("[{}]", fmt::join(axes, ", "));
}

std::string attributes_text(const GraphNode& node) {
  std::vector<std::string> fields;
  if (!node.dense) fields.push_back("dense=false");
  if (!node.unit_inner) fields.push_back("unit_inner=false");
  if (node.unit_axis >= 0) fields.push_back(fmt::format("unit_axis={}", node.unit_axis));
  const OpTraits& op = traits(node.op);
  const std::size_t length = attribute_list_length(op, node.attributes.size()).value_or(0);
  const std::int64_t* next = node.attributes.data();
  for (const AttributeField& field : op.fields) {
    std::string value;
    switch (field.kind) {
      case AttributeKind::axis:
      case AttributeKind::integer: value = fmt::format("{}", *next++); break;
      case AttributeKind::boolean: value = *next++ != 0 ? "true" : "false"; break;
      case AttributeKind::axes: value = axes_text(static_cast<std::uint64_t>(*next++)); break;
      case AttributeKind::list:
        value = to_string(std::span(next, length));
        next += length;
        break;
    }
    fields.push_back(fmt::format("{}={}", field.name, value));
  }
  return fields.empty() ? "" : fmt::format(" {{{}}}", fmt::join(fields, ", "));
}

std::string text_of(const Graph& graph, bool locations, std::size_t indent) {
  const std::string margin(indent, ' ');
  std::string text;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    text += fmt::format("{}%{} = {}{}{} : {}", margin, i, name(node.op), arguments_text(graph, node),
                        attributes_text(node), to_string(node.dtype, node.shape));
    if (locations && node.where.line() != 0) text += "  @" + location_in_scope(node.where);
    text += '\n';
    const std::span<const std::string_view> names = traits(node.op).subgraphs;
    for (std::size_t f = 0; node.subgraphs != nullptr && f < node.subgraphs->size(); ++f)
      text +=
          fmt::format("{}  {}:\n{}", margin, names[f], text_of((*node.subgraphs)[f].graph(), locations, indent + 4));
  }
  text += margin + "return";
  const char* separator = " ";
  for (const ValueId output : graph.outputs) {
    text += fmt::format("{}%{}", separator, output);
    separator = ", ";
  }
  return text + '\n';
}

}  // namespace

std::string to_string(const Graph& graph, bool locations) { return text_of(graph, locations, 0); }

}  // namespace fermata
