// Recording calls of custom operators and of kernels that a program registers for built-in ones: one node of a boxed
// op, which remembers how the call was dispatched.
#pragma once

#include "dispatch/operator.h"

namespace fermata {

/// The kernel of the Capture key for such calls: recorded where their type can be told without running them, else run
/// on the spot.
void capture_boxed(const Call& call, Stack& stack);

}  // namespace fermata
