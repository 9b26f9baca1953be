// Code that checks itself, for tests: a call before every load and store (BoundsChecker in plugin.h).
#pragma once

#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {

/// Adds the calls to the code of a kernel, which is all there. What the code reads and writes besides is its stack, its
/// constants and the description of the launch; anything else is refused, so that no access goes without a check.
void add_bounds_checks(const Emission& e);

}  // namespace fermata::jit
