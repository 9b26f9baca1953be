// Comparisons of a position along the vector axis with uniform values: whether a part of a concatenation, a padded
// tensor or a triangle is here. Between two *edges*, the columns where one of them changes, they are the same for all
// lanes, so that loops that end at edges need neither masks nor positions.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace fermata::jit {

/// The axes that each value of a kernel's program varies along.
std::vector<std::uint16_t> axes_of_values(const Kernel& kernel);

class Edges {
 public:
  /// With `joins`, parts that are chosen between are one load.
  Edges(const Kernel& kernel, bool joins);

  /// Whether a value is such a comparison, or an input that is guarded by one.
  bool has_edge(ValueId id) const { return decided_[id]; }
  /// Whether a value is a position that is only compared.
  bool is_only_compared(ValueId id) const { return only_compared_[id]; }
  /// Whether a value is an element of memory whose place is known between edges: guarded, or chosen from two such.
  bool has_place(ValueId id) const { return has_place_[id]; }
  /// Whether such an element is not read but only chosen from.
  bool is_only_chosen(ValueId id) const { return only_chosen_[id]; }

 private:
  std::vector<bool> decided_, only_compared_, has_place_, only_chosen_;
};

}  // namespace fermata::jit
