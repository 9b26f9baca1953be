// See place_parts.h.
#include "passes/place_parts.h"

#include <algorithm>

#include "dispatch/kernel_table.h"
#include "ir/op_fields.h"
#include "ir/ops/moves.h"
#include "ir/ops/views.h"

namespace fermata {
namespace {

/// Shorter runs of elements leave the vectors of a kernel nearly empty; a copy moves them as blocks.
constexpr std::int64_t kShortestRun = 256;  // bytes

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
      for (std::uint32_t k = 0; k < n.operands.size(); ++k)
        if (const ValueId part = stored_value(n.operands[k].value, axis);
            may_be_part(part, n.operands[k].value, v, axis))
          p_.parts[part] = {v, k, axis, part != n.operands[k].value}, found = true;
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

  bool may_be_part(ValueId v, ValueId operand, ValueId whole, unsigned axis) const {
    const std::int32_t number = p_.group_of[v];
    if (number < 0 || is_output_[v] || g_.nodes[v].dtype != g_.nodes[whole].dtype) return false;
    const Group& group = p_.groups[static_cast<std::size_t>(number)];
    const auto is_member = [&](ValueId u) { return std::ranges::binary_search(group.members, u); };
    const auto place = std::ranges::lower_bound(group.members, v) - group.members.begin();
    if (group.inlined[static_cast<std::size_t>(place)] || group.channels_last) return false;
    const ValueId reader = v == operand ? whole : operand;
    const auto is_read_outside = [&](ValueId u) { return u != reader && !is_member(u); };
    return std::ranges::none_of(users_[v], is_read_outside) && std::ranges::count(users_[v], reader) == 1 &&
           has_long_runs(v, axis) && std::ranges::none_of(group.members, [&](ValueId m) { return is_epilogue(m); });
  }

  bool has_long_runs(ValueId v, unsigned axis) const {
    const Shape& shape = g_.nodes[v].shape;
    auto run = static_cast<std::int64_t>(byte_size(g_.nodes[v].dtype));
    for (; axis < shape.rank(); ++axis) run *= shape[axis];
    return run >= kShortestRun;
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
