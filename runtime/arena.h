// Where temporaries of a plan lie in the one block of memory that they share.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/plan.h"

namespace fermata {

/// Fills `offsets`, one per slot, and returns how large the block is. Slots that are alive at the same time do not
/// overlap.
std::size_t place_temporaries(const Plan& plan, std::span<const std::size_t> slot_bytes,
                              std::vector<std::size_t>& offsets);

}  // namespace fermata
