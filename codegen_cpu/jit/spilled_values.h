// What later stages read back instead of computing it again.
//
// The stages of a kernel pass over the same elements, and each computes what it needs from the start: the argument of a
// softmax three times, its exponentials twice. A value that costs more than a store and a load is kept instead: the
// first stage that computes it leaves it in the kernel's *room*, memory for the points of one row (in column kernels:
// of one group of columns) that comes with the launch. A row of ordinary length stays in the first-level cache, and a
// long one costs what materializing the value between two kernels would.
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
      slots;  // of the room; one serves several values where their lifetimes meet in a stage or not at all
  std::vector<Stage> stages;  // as in the schedule
};

/// Chooses the values to keep by counting primitives. Stages of the schedule then compute only what is not read back;
/// the values that are read stay in their lists.
SpilledValues keep_values(const Kernel& kernel, KernelSchedule& schedule);

}  // namespace fermata::jit
