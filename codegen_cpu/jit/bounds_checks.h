// Bounds checks for tests: a call before every load and store (BoundsChecker in plugin.h).
#pragma once

#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {

/// Adds the calls to the finished code of a kernel. Accesses to the stack, constants and the launch arguments need no
/// check; any other unknown access is an error, so no access goes unchecked.
void add_bounds_checks(const Emission& e);

}  // namespace fermata::jit
