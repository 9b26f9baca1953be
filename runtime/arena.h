// The placement of a plan's temporaries in the block of memory that they share.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/plan.h"

namespace fermata {

/// Fills `offsets`, one per slot, and returns the size of the block. Slots that are alive at the same time do not
/// overlap.
std::size_t place_temporaries(const Plan& plan, std::span<const std::size_t> slot_bytes,
                              std::vector<std::size_t>& offsets);

}  // namespace fermata
