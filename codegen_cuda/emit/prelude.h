// What every generated kernel leans on: a few dozen lines of header-free C++ that mean the same to NVRTC and to the
// host compiler of the executor. Header-free source is what NVRTC compiles fastest.
#pragma once

#include <string_view>

namespace fermata::gpu {

/// Types, integer arithmetic that wraps, conversions, packs, slots: for both compilers.
std::string_view shared_prelude();
/// Threads, barriers, shuffles and memory as CUDA has them.
std::string_view device_prelude();

}  // namespace fermata::gpu
