// See lay_out_channels.h.
#include "passes/lay_out_channels.h"

#include <algorithm>

#include "passes/dimensions.h"

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

  /// False where nothing is gained.
  bool run() {
    for (ValueId v = 0; v < g_.nodes.size(); ++v) chosen_[v] = is_convolution(v) && may_be_chosen(v);
    for (Group& group : p_.groups) group.channels_last = choose_group(group);
    while (drop_values() || drop_groups()) {
    }
    if (std::ranges::find(chosen_, true) == chosen_.end()) return false;
    p_.channels_last = std::move(chosen_);
    return true;
  }

 private:
  bool is_convolution(ValueId v) const {
    return g_.nodes[v].op == Op::convolution && p_.choices[v].form == Form::call;
  }
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

  /// Whether a kernel goes through whole images element by element; then what it stores is chosen.
  bool choose_group(const Group& group) {
    if (!group.alive || group.reduced != 0 || g_.nodes[group.domain].shape.rank() != 4) return false;
    if (!all_stored(group, [&](ValueId v) { return may_be_chosen(v) && has_shape_of(group, v); })) return false;
    all_stored(group, [&](ValueId v) { return chosen_[v] = true; });
    return true;
  }

  /// Whether `u` may read a value as it would lie.
  bool may_read(ValueId u, ValueId v) const {
    const GraphNode& n = g_.nodes[u];
    if (is_convolution(u)) return n.operands[0].value == v && n.operands[1].value != v;
    const Group* const group = group_of(u);
    if (group == nullptr || is_inlined(*group, u)) return false;
    if (group->channels_last) return has_shape_of(*group, v);
    // The mean of an image at the end of a network, of what a convolution reads, too.
    constexpr unsigned kImagesAndChannels = 0b11;
    return group->reduced != 0 && (group->reduced & kImagesAndChannels) == 0 && !is_convolution(v) &&
           has_shape_of(*group, v) && std::ranges::any_of(users_[v], [&](ValueId w) { return is_convolution(w); });
  }

  bool drop_values() {
    bool changed = false;
    for (ValueId v = 0; v < g_.nodes.size(); ++v) {
      if (!chosen_[v]) continue;
      const Group* const group = group_of(v);
      const bool stays = !users_[v].empty() && (group == nullptr || group->channels_last) &&
                         std::ranges::all_of(users_[v], [&](ValueId u) {
                           return (group != nullptr && is_member(*group, u)) || may_read(u, v);
                         });
      if (!stays) chosen_[v] = false, changed = true;
    }
    return changed;
  }

  /// Whether the whole images that a kernel reads lie as those that it writes, and there are some.
  bool reads_chosen_only(const Group& group) const {
    bool any = false;
    for (const ValueId m : group.members)
      for (const GraphOperand& o : g_.nodes[m].operands) {
        if (o.is_scalar() || is_member(group, o.value)) continue;
        if (chosen_[o.value])
          any = true;
        else if (element_count(g_.nodes[o.value].shape) == element_count(g_.nodes[group.domain].shape))
          return false;
      }
    return any;
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

bool lay_out_channels(Program& program) {
  if (!program.capabilities.channels_last || program.is_shipped) return false;
  if (std::ranges::none_of(program.graph.nodes, [](const GraphNode& n) { return n.op == Op::convolution; }))
    return false;
  return ChannelLayouts(program).run();
}

}  // namespace fermata
