// What the replaced functions ask: whether the point that they are fails.
#pragma once

#include "ir/fault_points.h"

namespace fermata::faults {

bool fails(FaultKind kind);
bool is_armed();

}  // namespace fermata::faults
