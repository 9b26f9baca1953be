// What a plan is made of.
#pragma once

#include <cstdint>

namespace fermata {

enum class PlanForm : std::uint8_t {
  fused,    // kernels of several ops, and calls
  calls,    // one call per op, as in eager mode
  shipped,  // as fused, for a process without call kernels for ops with an emit form
};

}  // namespace fermata
