// Sums of small integers, whose lanes are as narrow as what a block adds up to.
//
// A lane of a block (ir/kernel.h) takes kReductionBlock / kReductionLanes elements: 128 bytes add up to less than 2^16.
// Vectors of lanes of 16 bits hold four times as many as those of the sum, which has 64. Integers may be grouped
// anyhow.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace fermata::jit {

class NarrowSums {
 public:
  explicit NarrowSums(const Kernel& kernel);

  /// What a reduction adds up, before it was converted to the sum's dtype; kNoValue if a reduction is as it says.
  ValueId source(std::uint16_t reduction) const { return sources_[reduction]; }
  /// The narrowest dtype for lanes of a block of such a reduction.
  DType least(std::uint16_t reduction) const { return least_[reduction]; }
  /// The dtype in vectors of `lanes` lanes, so that what has as many lanes is as wide where that is enough.
  DType in_block(std::uint16_t reduction, unsigned lanes, unsigned vector_bits) const;
  /// Whether a value is converted for such sums only.
  bool is_only_added(ValueId id) const { return only_added_[id]; }

 private:
  std::vector<ValueId> sources_;
  std::vector<DType> least_;
  std::vector<bool> only_added_;
};

}  // namespace fermata::jit
