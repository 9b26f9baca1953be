// See program_records.h.
#include "frontend/engine/program_records.h"

#include <algorithm>

namespace fermata {

ProgramRecords::ProgramRecords(const Program& program) : nodes_(std::make_unique<Node[]>(program.nodes.size())) {
  for (const ProgramNode& from : program.nodes) {
    Node& n = nodes_[records_.size()];
    records_.push_back(&n);
    const Shape& sizes = from.type.type.shape;
    n.op = from.op, n.dtype = from.type.type.dtype, n.backend = from.type.backend, n.where = from.where;
    n.rank = static_cast<std::uint8_t>(sizes.rank());
    if (n.rank <= Node::kInlineRank)
      std::copy(sizes.begin(), sizes.end(), n.inline_sizes.begin());
    else
      extra_of(n).sizes = sizes;
    if (from.type.strides.rank() != 0 || from.type.offset != 0) {
      NodeExtra& extra = extra_of(n);
      extra.strides = from.type.strides, extra.offset = from.type.offset, extra.strided = true;
    }
    if (family(n.op) == Family::reduce && !from.attributes.empty())  // see attributes_of()
      n.scalar = static_cast<std::uint64_t>(from.attributes[0] | from.attributes[1] << 16);
    else if (!from.attributes.empty())
      extra_of(n).attributes.assign(from.attributes.begin(), from.attributes.end());
    if (from.subgraphs != nullptr) extra_of(n).subgraphs = from.subgraphs;
    if (!from.scalars.empty()) extra_of(n).scalars.assign(from.scalars.begin(), from.scalars.end());
  }
}

/// Refuses a field that is new until the constructor copies it, or need not: operands are found by the plan, and
/// programs with boxed calls, which have contexts, never run one call per op. Functions were forgotten once.
[[maybe_unused]] static void name_all_fields(const NodeExtra& extra) {
  [[maybe_unused]] const auto& [sizes, strides, offset, strided, attributes, scalars, more_inputs, context, subgraphs] =
      extra;
}

NodeExtra& ProgramRecords::extra_of(Node& n) {
  if (n.extra == nullptr) n.extra = &extras_.emplace_back();
  return *n.extra;
}

}  // namespace fermata
