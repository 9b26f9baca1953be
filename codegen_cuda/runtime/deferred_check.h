// Deferred checks of device data: indices of take and index_add, patterns of sparse matrices.
//
// A kernel that finds an invalid value substitutes a safe one and writes the lowest position of the error to a slot.
// Slots are read when the host next waits for the device; the error then names the op and its line, as on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

/// Bits 32 to 63: the position, saturated; bits 0 to 31: the value found there, saturated to a signed number.
struct Found {
  std::uint32_t place;
  std::int32_t value;
};
/// Allocates a slot for one launch. `raise` throws; it is called on the waiting thread. A slot holds ~0 until an error
/// is found.
Address deferred_check(std::function<void(const Found&)> raise);
/// Throws the first failed check in launch order, and clears all checks.
void throw_failed_checks();

/// The number of checks on the current device; and marks recorded checks as running again.
std::uint64_t checks_made();
void expect_checks();

}  // namespace fermata::gpu
