// What a later stage reads back instead of computing it again.
//
// Stages pass over the same elements and each computes what it needs from the start: the exponentials of a softmax
// twice. Where the result of the last stage has the type of such a value, the earlier stage leaves it there, in the
// place where the later one will find and overwrite it while it is still in the cache.
#pragma once

#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace fermata::jit {

struct CarriedValue {
  ValueId value;
  std::uint16_t store;      // in Kernel::stores: whose element holds it in between
  unsigned written, read;   // stages
};

/// The value that saves most, if one saves more than it costs. Stage `read` of the schedule then computes only what the
/// value does not stand for.
std::optional<CarriedValue> carry_value(const Kernel& kernel, KernelSchedule& schedule);

}  // namespace fermata::jit
