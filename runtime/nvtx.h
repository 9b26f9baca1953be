// NVTX ranges for external profilers such as Nsight Systems.
//
// A profiler is attached if it has set NVTX_INJECTION64_PATH. Syncs, steps, compiles and scopes are then ranges in the
// domain "fermata"; without a profiler none of this is called.
#pragma once

namespace fermata {

/// Starts to emit ranges if a profiler is attached and the build found nvtx3. Called when the library is loaded.
void show_ranges_to_tools();

}  // namespace fermata
