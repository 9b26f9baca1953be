// Values that hardly any element needs: what only the third operand of selects of kRare is computed from.
//
// They are computed behind a branch, where an element of a group of vectors chooses them: the reduction of large
// angles is most of the program of a sine.
#pragma once

#include <vector>

#include "codegen_cpu/jit/spilled_values.h"
#include "ir/kernel.h"

namespace fermata::jit {

class RareValues {
 public:
  RareValues(const Kernel& kernel, const SpilledValues& kept);
  /// Whether a value is computed behind a branch only.
  bool contains(ValueId id) const { return condition_of_[id] != kNoValue; }
  /// The condition under which a value is not needed; kNoValue if it is not rare.
  ValueId condition_of(ValueId id) const { return condition_of_[id]; }
  /// What is computed from a rare value.
  const std::vector<ValueId>& users(ValueId id) const { return users_[id]; }

 private:
  std::vector<ValueId> condition_of_;
  std::vector<std::vector<ValueId>> users_;
};

}  // namespace fermata::jit
