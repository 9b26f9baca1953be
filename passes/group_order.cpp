// See group_order.h.
#include "passes/group_order.h"

#include <algorithm>
#include <numeric>

#include "ir/op_traits.h"

namespace fermata {
namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

GroupOrder::GroupOrder(const Program& program)
    : p_(program),
      readers_(program.graph.nodes.size()),
      entries_(program.groups.size()),
      first_joined_(program.graph.nodes.size()) {
  const auto& nodes = program.graph.nodes;
  std::vector<ValueId> seen_through(nodes.size());  // so that chains of views are followed once
  for (ValueId v = 0; v < nodes.size(); ++v) {
    const GraphNode& n = nodes[v];
    seen_through[v] = is_view(n.op) ? seen_through[n.operands[0].value] : v;
    if (is_view(n.op)) continue;
    const std::int32_t group = program.group_of[v];
    for (const GraphOperand& o : n.operands) {
      if (o.is_scalar()) continue;
      const ValueId s = seen_through[o.value];
      readers_[s].push_back(v);
      if (n.op != Op::input && group >= 0) entries_[index(group)].push_back(s);
    }
  }
  for (auto& entries : entries_) std::ranges::sort(entries);
  std::iota(first_joined_.begin(), first_joined_.end(), ValueId{0});
}

/// The last node outside both groups that `to` reads and that may follow something; nothing if there is none, as for
/// most groups.
std::optional<ValueId> GroupOrder::last_entry(std::int32_t to, std::int32_t from) const {
  for (auto v = entries_[index(to)].rbegin(); v != entries_[index(to)].rend(); ++v) {
    const bool is_leaf = p_.group_of[*v] < 0 && p_.graph.nodes[*v].operands.empty();
    if (p_.group_of[*v] != from && p_.group_of[*v] != to && !is_leaf) return *v;
  }
  return std::nullopt;
}

/// The first node that may follow v: paths lead on in the order of the graph, or from one member of a group to another.
ValueId GroupOrder::first_after(ValueId v) const {
  while (first_joined_[v] < v) v = first_joined_[v];
  return v;
}

bool GroupOrder::indirect(std::int32_t from, std::int32_t to) const {
  const std::optional<ValueId> last = last_entry(to, from);
  if (!last) return false;
  std::vector<bool> seen(p_.graph.nodes.size(), false);
  std::vector<ValueId> work;
  bool reached = false;
  const auto visit = [&](ValueId v, bool outside) {
    for (const ValueId u : readers_[v]) {
      if (p_.group_of[u] == to)
        reached = reached || outside;
      else if (p_.group_of[u] != from && !seen[u] && first_after(u) <= *last)
        seen[u] = true, work.push_back(u);
    }
  };
  for (const ValueId v : p_.groups[index(from)].members) visit(v, false);
  while (!work.empty() && !reached) {
    const ValueId v = work.back();
    work.pop_back();
    const std::int32_t group = p_.group_of[v];
    if (group < 0) {
      visit(v, true);
      continue;
    }
    const std::vector<ValueId>& members = p_.groups[index(group)].members;
    for (const ValueId m : members) seen[m] = true;
    for (const ValueId m : members) visit(m, true);
  }
  return reached;
}

void GroupOrder::merged(std::int32_t from, std::int32_t into) {
  std::vector<ValueId>& entries = entries_[index(into)];
  entries.insert(entries.end(), entries_[index(from)].begin(), entries_[index(from)].end());
  std::erase_if(entries, [&](ValueId v) { return p_.group_of[v] == into; });
  std::ranges::sort(entries);
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  entries_[index(from)].clear();
  const auto [first, end] = std::ranges::minmax(p_.groups[index(into)].members);
  for (ValueId v = end; first_joined_[v] > first; --v) first_joined_[v] = first;
}

}  // namespace fermata
