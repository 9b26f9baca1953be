// Records calls of custom operators, and of kernels that a program registers for built-in ones, as one node of a boxed
// op with the dispatch context of the call.
#pragma once

#include "dispatch/operator.h"

namespace fermata {

/// The kernel of the Capture key for such calls: records them if their result type can be inferred without running
/// them, else runs them immediately.
void capture_boxed(const Call& call, Stack& stack);

}  // namespace fermata
