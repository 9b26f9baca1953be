// See lay_out_channels.h.
#include "passes/lay_out_channels.h"

#include <algorithm>
#include <optional>

#include "passes/dimensions.h"
#include "passes/index_map.h"

namespace fermata {
namespace {

/// Fewer channels do not fill the vectors of a kernel whose innermost loop they are.
constexpr std::int64_t kFewestChannels = 16;

class ChannelLayouts {
 public:
  explicit ChannelLayouts(Program& program)
      : p_(program),
        g_(program.graph),
        dims_(program.graph),
        users_(g_.nodes.size()),
        chosen_(g_.nodes.size(), false),
        is_output_(g_.nodes.size(), false) {
    for (ValueId v = 0; v < g_.nodes.size(); ++v)
      for (const GraphOperand& o : g_.nodes[v].operands)
        if (!o.is_scalar()) users_[o.value].push_back(v);
    for (const ValueId v : g_.outputs) is_output_[v] = true;
  }

  /// False if there is no gain.
  bool run() {
    for (ValueId v = 0; v < g_.nodes.size(); ++v) chosen_[v] = (is_convolution(v) || is_move(v)) && may_be_chosen(v);
    for (Group& group : p_.groups) group.channels_last = choose_group(group);
    while (drop_values() || drop_groups()) {}
    if (std::ranges::find(chosen_, true) == chosen_.end()) return false;
    p_.channels_last = std::move(chosen_);
    return true;
  }

 private:
  bool is_call(ValueId v, Op op) const { return g_.nodes[v].op == op && p_.choices[v].form == Form::call; }
  bool is_convolution(ValueId v) const { return is_call(v, Op::convolution); }
  /// Calls that only move elements, to a result of any layout.
  bool is_move(ValueId v) const { return is_call(v, Op::update) || is_call(v, Op::concat); }
  bool may_be_chosen(ValueId v) const {
    const GraphNode& n = g_.nodes[v];
    return n.shape.rank() == 4 && n.shape[1] >= kFewestChannels && !is_output_[v] &&
           (n.dtype == DType::f32 || n.dtype == DType::bf16);
  }
  static bool is_member(const Group& group, ValueId v) { return std::ranges::binary_search(group.members, v); }
  static bool is_inlined(const Group& group, ValueId v) {
    return group.inlined[static_cast<std::size_t>(std::ranges::lower_bound(group.members, v) - group.members.begin())];
  }
  const Group* group_of(ValueId v) const {
    const std::int32_t number = p_.group_of[v];
    return number < 0 ? nullptr : &p_.groups[static_cast<std::size_t>(number)];
  }
  bool has_shape_of(const Group& group, ValueId v) const { return dims_.same_shape(v, group.domain); }

  bool is_stored(const Group& group, ValueId v) const {
    return is_output_[v] || std::ranges::any_of(users_[v], [&](ValueId u) { return !is_member(group, u); });
  }
  /// f(v) for each value that the group stores.
  template <class F> bool all_stored(const Group& group, F&& f) const {
    for (std::size_t i = 0; i < group.members.size(); ++i)
      if (!group.inlined[i] && is_stored(group, group.members[i]) && !f(group.members[i])) return false;
    return true;
  }

  /// Whether a kernel may have the channels innermost: over whole images elementwise, or over windows. Then its results
  /// are selected.
  bool choose_group(const Group& group) {
    if (!group.alive || !(goes_through_images(group) || pooled_by(group) != kNoValue)) return false;
    if (!all_stored(group, [&](ValueId v) { return may_be_chosen(v); })) return false;
    all_stored(group, [&](ValueId v) { return chosen_[v] = true; });
    return true;
  }
  bool goes_through_images(const Group& group) const {
    return std::ranges::none_of(group.members, [&](ValueId v) { return traits(g_.nodes[v].op).gathers; }) &&
           group.reduced == 0 && g_.nodes[group.domain].shape.rank() == 4 &&
           all_stored(group, [&](ValueId v) { return has_shape_of(group, v); });
  }
  /// The images [N, C, ..] whose windows [N, C, window .., places ..] a kernel reduces by a maximum, before
  /// anything else; empty for other kernels. Sums would be added in another order.
  ValueId pooled_by(const Group& group) const {
    constexpr unsigned kWindow = 0b1100;
    if (group.reduced != kWindow || g_.nodes[group.domain].shape.rank() != 6) return kNoValue;
    ValueId pooled = kNoValue;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const GraphNode& n = g_.nodes[group.members[i]];
      if (group.inlined[i] || (family(n.op) == Family::reduce && n.op != Op::max)) return kNoValue;
      if (family(n.op) != Family::reduce) {
        if (has_shape_of(group, group.members[i])) return kNoValue;
        continue;
      }
      const std::optional<Followed> from = follow_views(g_, n.operands[0].value, identity_map(6));
      if (!from || from->map.reshaped || g_.nodes[from->source].shape.rank() != 4) return kNoValue;
      if (pooled != kNoValue && pooled != from->source) return kNoValue;
      if (from->map.axes[0] != AxisMap{0, true, true} || from->map.axes[1] != AxisMap{1, true, true}) return kNoValue;
      pooled = from->source;
    }
    return pooled;
  }

  /// Whether `u` may read a value in this layout.
  bool may_read(ValueId u, ValueId v) const {
    const GraphNode& n = g_.nodes[u];
    if (is_convolution(u)) return n.operands[0].value == v && n.operands[1].value != v;
    if (is_move(u)) return chosen_[u];
    if (is_view(n.op)) return leads_to_pools(u, v);
    if (traits(n.op).gathers) return false;
    const Group* const group = group_of(u);
    if (group == nullptr || is_inlined(*group, u)) return false;
    if (group->channels_last) return has_shape_of(*group, v);
    // The mean of an image at the end of a network; convolutions may read the image, too.
    constexpr unsigned kImagesAndChannels = 0b11;
    return group->reduced != 0 && (group->reduced & kImagesAndChannels) == 0 && !is_convolution(v) &&
           has_shape_of(*group, v) && std::ranges::any_of(users_[v], [&](ValueId w) { return is_convolution(w); });
  }
  /// Whether all readers of a view are kernels that pool v.
  bool leads_to_pools(ValueId view, ValueId v) const {
    return !is_output_[view] && std::ranges::all_of(users_[view], [&](ValueId u) {
      if (is_view(g_.nodes[u].op)) return leads_to_pools(u, v);
      const Group* const group = group_of(u);
      return group != nullptr && group->channels_last && pooled_by(*group) == v;
    });
  }

  /// Whether all elements of a value are one in memory, so that it has every layout.
  bool shows_a_number(ValueId v) const {
    return g_.nodes[v].op == Op::broadcast_to && g_.nodes[g_.nodes[v].operands[0].value].shape.rank() == 0;
  }

  bool drop_values() {
    bool changed = false;
    for (ValueId v = 0; v < g_.nodes.size(); ++v) {
      if (!chosen_[v]) continue;
      const Group* const group = group_of(v);
      const auto has_layout = [&](const GraphOperand& o) { return chosen_[o.value] || shows_a_number(o.value); };
      const bool stays = !users_[v].empty() && (group == nullptr || group->channels_last) &&
                         (!is_move(v) || std::ranges::all_of(g_.nodes[v].operands, has_layout)) &&
                         std::ranges::all_of(users_[v], [&](ValueId u) {
                           return (group != nullptr && is_member(*group, u)) || may_read(u, v);
                         });
      if (!stays) chosen_[v] = false, changed = true;
    }
    return changed;
  }

  /// Whether the whole images that a kernel reads have the layout of those that it writes. Constants have any layout.
  bool reads_chosen_only(const Group& group) const {
    if (group.reduced != 0) return chosen_[pooled_by(group)];
    bool any = false, all = true;
    for (const ValueId m : group.members)
      for (const GraphOperand& o : g_.nodes[m].operands) {
        if (o.is_scalar() || is_member(group, o.value)) continue;
        if (chosen_[o.value])
          any = true;
        else if (element_count(g_.nodes[o.value].shape) == element_count(g_.nodes[group.domain].shape))
          all = false;
      }
    const bool is_constant = group.members.size() == 1 && g_.nodes[group.members[0]].operands.empty();
    return all && (any || is_constant);
  }
  bool drop_groups() {
    bool changed = false;
    for (Group& group : p_.groups) {
      if (!group.channels_last) continue;
      if (all_stored(group, [&](ValueId v) { return bool(chosen_[v]); }) && reads_chosen_only(group)) continue;
      group.channels_last = false, changed = true;
    }
    return changed;
  }

  Program& p_;
  const Graph& g_;
  const Dimensions dims_;
  std::vector<std::vector<ValueId>> users_;
  std::vector<bool> chosen_, is_output_;
};

}  // namespace

bool has_convolutions(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return n.op == Op::convolution; });
}

bool lay_out_channels(Program& program) {
  if (!program.capabilities.channels_last || program.form == PlanForm::shipped) return false;
  if (!has_convolutions(program.graph)) return false;
  return ChannelLayouts(program).run();
}

}  // namespace fermata
