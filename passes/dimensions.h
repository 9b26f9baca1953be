// Dimensions: which sizes are equal for every binding of sizes.
//
// Plans are valid for all sizes with one structure, so two axes may be treated as equal only if the structure implies
// it: because an op joined them without stretching, never because their sizes happen to agree.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace fermata {

class Dimensions {
 public:
  explicit Dimensions(const Graph& graph);
  static constexpr std::uint32_t kOne = 0;  // known to be 1

  std::uint32_t of(ValueId value, unsigned axis) const { return find(axes_[value][axis]); }
  /// True if the axis has one element for every binding, also if it is kept apart from kOne because it is reduced.
  bool has_one_element(ValueId value, unsigned axis) const;
  /// True if both values have the same axes in the same order.
  bool same_shape(ValueId a, ValueId b) const;

 private:
  std::uint32_t find(std::uint32_t d) const;
  void join(std::uint32_t a, std::uint32_t b);
  void join_broadcast(const Graph& graph, ValueId operand, ValueId result);
  void add(const Graph& graph, ValueId value);
  void add_single_elements(const Graph& graph);
  std::vector<std::vector<std::uint32_t>> axes_;
  mutable std::vector<std::uint32_t> parent_{kOne};
  std::vector<std::uint32_t> single_;  // roots of reduced axes of one element
};

}  // namespace fermata
