// The fallback of other devices for operators whose only kernel is the CPU's.
#pragma once

#include "dispatch/library.h"

namespace fermata {

/// A kernel that runs the operator on the CPU: its tensors are copied there and the results back. stats() counts it.
BoxedKernel run_on_host();

}  // namespace fermata
