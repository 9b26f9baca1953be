// Values that later stages reload instead of recomputing.
//
// The stages of a kernel pass over the same elements, and each recomputes its operands: the argument of a softmax three
// times, its exponentials twice. A value that costs more than a store and a load is kept instead: the first stage that
// computes it stores it in scratch memory for the points of one row (in column kernels: of one
// group of columns) that the launch provides. Rows of ordinary length stay in the L1 cache; long rows cost as much as
// materializing the value between two kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace fermata::jit {

struct KeptValue {
  ValueId value;
  std::uint16_t slot;
};

struct SpilledValues {
  struct Stage {
    std::vector<KeptValue> written, read;
  };
  std::vector<DType>
      slots;  // of the scratch; values share a slot if their lifetimes do not overlap, or only touch in one stage
  std::vector<Stage> stages;  // as in the schedule
};

/// Chooses the values to keep by counting primitives. Stages of the schedule then compute only values that are not
/// reloaded; reloaded values stay in their lists.
SpilledValues keep_values(const Kernel& kernel, KernelSchedule& schedule);

}  // namespace fermata::jit
