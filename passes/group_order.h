// The order of groups: whether two of them can be one step, without another step that must run between them.
//
// Views are no steps: reads are followed past them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/program.h"

namespace fermata {

class GroupOrder {
 public:
  /// Follows `program.groups` and `program.group_of`, which are of single members now.
  explicit GroupOrder(const Program& program);
  /// False if a path leads from one group to the other through something outside both.
  bool are_next_to_each_other(std::int32_t a, std::int32_t b) const { return !indirect(a, b) && !indirect(b, a); }
  /// Call it when the members of `from` are those of `into`, too.
  void merged(std::int32_t from, std::int32_t into);

 private:
  std::optional<ValueId> last_entry(std::int32_t to, std::int32_t from) const;
  ValueId first_after(ValueId v) const;
  bool indirect(std::int32_t from, std::int32_t to) const;

  const Program& p_;
  std::vector<std::vector<ValueId>> readers_;  // of each value, past all views
  std::vector<std::vector<ValueId>> entries_;  // of a group: what its members read of others, in order
  std::vector<ValueId> first_joined_;          // the first node of the groups that have this one or a later one
};

}  // namespace fermata
