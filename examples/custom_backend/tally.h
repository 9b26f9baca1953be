// tally: a device that is not there. Its memory is out of the CPU's reach, its kernels interpret the portable kernel
// description, and it counts what it does.
//
// Everything that a real device needs is here in small: an allocator, copies in both directions, something that runs a
// kernel description, and a kernel of its own for an op that no description can say.
#pragma once

#include <cstdint>

#include "fermata/backend.h"

namespace tally {

/// What the device has done since the program began.
struct Counts {
  std::uint64_t copies_in = 0, copies_out = 0;  // between the CPU's memory and the device's
  std::uint64_t compiled = 0, launched = 0;     // kernels
  std::uint64_t matmuls = 0;                    // calls of its own kernel
  std::uint64_t live_bytes = 0;                 // of its memory
};
Counts counts();

/// Registers the device under PrivateUse1, with its matrix product. Once. `missing_on_cpu` is that of
/// fermata::DeviceOptions.
void register_device(bool missing_on_cpu = false);

}  // namespace tally
