// Ranges for tools that watch a process from outside: NVTX, which Nsight Systems and others read.
//
// Such a tool is attached when it has set NVTX_INJECTION64_PATH. Then syncs, steps, compiles and scopes are ranges in
// the domain "fermata"; without one nothing of this is ever called.
#pragma once

namespace fermata {

/// Begins to show ranges if a tool is attached and the build found nvtx3. Called when the library is loaded.
void show_ranges_to_tools();

}  // namespace fermata
