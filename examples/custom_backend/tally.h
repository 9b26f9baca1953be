// tally: a simulated device. The CPU cannot access its memory, its kernels interpret the portable kernel description,
// and it counts its operations.
//
// It has all parts of a real device in small: an allocator, copies in both directions, an executable for kernel
// descriptions, and its own kernel for an op that a description cannot express.
#pragma once

#include <cstdint>

#include "fermata/backend.h"

namespace tally {

/// Counters since the program started.
struct Counts {
  std::uint64_t copies_in = 0, copies_out = 0;  // between the CPU's memory and the device's
  std::uint64_t compiled = 0, launched = 0;     // kernels
  std::uint64_t matmuls = 0;                    // calls of the device's own kernel
  std::uint64_t live_bytes = 0;                 // of device memory
};
Counts counts();

/// Registers the device as PrivateUse1, with its matrix product. Call it once. `missing_on_cpu` is passed to
/// fermata::DeviceOptions.
void register_device(bool missing_on_cpu = false);

}  // namespace tally
