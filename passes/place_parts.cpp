// See place_parts.h.
#include "passes/place_parts.h"

#include <algorithm>

#include "dispatch/kernel_table.h"
#include "ir/op_fields.h"
#include "ir/ops/moves.h"
#include "ir/ops/views.h"

namespace fermata {
namespace {

/// Shorter runs of elements are not whole cache lines: lines are written once only where one kernel stores all parts,
/// as many as processors follow, or where they stay in the second-level cache until all parts are there. To write them
/// twice costs no more than parts of their own.
constexpr std::int64_t kShortestRun = 64, kSmallResult = 1 << 20;  // bytes
constexpr std::size_t kMostShortParts = 8, kFewParts = 2;

class PartPlaces {
 public:
  explicit PartPlaces(Program& program)
      : p_(program), g_(program.graph), users_(g_.nodes.size()), is_output_(g_.nodes.size(), false) {
    for (ValueId v = 0; v < g_.nodes.size(); ++v)
      for (const GraphOperand& o : g_.nodes[v].operands)
        if (!o.is_scalar()) users_[o.value].push_back(v);
    for (const ValueId v : g_.outputs) is_output_[v] = true;
  }

  bool run() {
    bool found = false;
    p_.parts.assign(g_.nodes.size(), {});
    for (ValueId v = 0; v < g_.nodes.size(); ++v) {
      const GraphNode& n = g_.nodes[v];
      if (n.op != Op::concat || p_.choices[v].form != Form::call || is_channels_last(p_, v)) continue;
      const auto axis = static_cast<std::uint16_t>(attributes_of<ops::Concat>(n).axis.value);
      const bool takes_short_runs =
          n.operands.size() <= kFewParts || bytes_behind(v, 0) <= kSmallResult || is_of_one_kernel(v, axis);
      for (std::uint32_t k = 0; k < n.operands.size(); ++k) {
        const ValueId operand = n.operands[k].value, part = stored_value(operand, axis);
        if (!may_be_part(part, operand, v) || !(takes_short_runs || bytes_behind(operand, axis) >= kShortestRun))
          continue;
        p_.parts[part] = {v, k, axis, part != operand}, found = true;
      }
    }
    if (!found) p_.parts.clear();
    return found;
  }

 private:
  /// What an operand of a concat shows, if that only lacks the axis along which it is stacked.
  ValueId stored_value(ValueId operand, unsigned axis) const {
    const GraphNode& n = g_.nodes[operand];
    const bool is_stacked = n.op == Op::expand_dims && attributes_of<ops::ExpandDims>(n).axes.value == 1u << axis;
    return is_stacked && users_[operand].size() == 1 && !is_output_[operand] ? n.operands[0].value : operand;
  }

  /// Whether one kernel stores all parts.
  bool is_of_one_kernel(ValueId whole, unsigned axis) const {
    const GraphNode& n = g_.nodes[whole];
    const std::int32_t first = p_.group_of[stored_value(n.operands[0].value, axis)];
    return n.operands.size() <= kMostShortParts && std::ranges::all_of(n.operands, [&](const GraphOperand& o) {
             const ValueId part = stored_value(o.value, axis);
             return p_.group_of[part] == first && may_be_part(part, o.value, whole);
           });
  }

  bool may_be_part(ValueId v, ValueId operand, ValueId whole) const {
    const std::int32_t number = p_.group_of[v];
    if (number < 0 || is_output_[v] || g_.nodes[v].dtype != g_.nodes[whole].dtype) return false;
    const Group& group = p_.groups[static_cast<std::size_t>(number)];
    const auto is_member = [&](ValueId u) { return std::ranges::binary_search(group.members, u); };
    const auto place = std::ranges::lower_bound(group.members, v) - group.members.begin();
    if (group.inlined[static_cast<std::size_t>(place)] || group.channels_last) return false;
    const ValueId reader = v == operand ? whole : operand;
    const auto is_read_outside = [&](ValueId u) { return u != reader && !is_member(u); };
    return std::ranges::none_of(users_[v], is_read_outside) && std::ranges::count(users_[v], reader) == 1 &&
           std::ranges::none_of(group.members, [&](ValueId m) { return is_epilogue(m); });
  }

  /// Of the elements along an axis and those behind it.
  std::int64_t bytes_behind(ValueId v, unsigned axis) const {
    const Shape& shape = g_.nodes[v].shape;
    auto bytes = static_cast<std::int64_t>(byte_size(g_.nodes[v].dtype));
    for (; axis < shape.rank(); ++axis) bytes *= shape[axis];
    return bytes;
  }

  /// Whether a member goes on with the result of a call that can run it on what it has just computed.
  bool is_epilogue(ValueId member) const {
    return std::ranges::any_of(g_.nodes[member].operands, [&](const GraphOperand& o) {
      if (o.is_scalar()) return false;
      ValueId source = o.value;
      while (is_view(g_.nodes[source].op)) source = g_.nodes[source].operands[0].value;
      if (p_.choices[source].form != Form::call) return false;
      const BackendCell* const cell = backend_cell(g_.nodes[source].op, p_.backend);
      return cell != nullptr && std::ranges::any_of(cell->variants, [](const KernelVariant& kernel) {
               return kernel.epilogue != EpilogueForm::none;
             });
    });
  }

  Program& p_;
  const Graph& g_;
  std::vector<std::vector<ValueId>> users_;
  std::vector<bool> is_output_;
};

}  // namespace

bool place_parts(Program& program) {
  program.parts.clear();
  return program.capabilities.stores_parts && PartPlaces(program).run();
}

}  // namespace fermata
