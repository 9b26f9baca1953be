// Checks of data that only the device sees: positions of take and index_add, patterns of sparse matrices.
//
// A kernel that finds something wrong goes on with what is safe and writes the lowest place of it to a slot. Slots are
// read when the host next waits for the device; the error then names the op and its line as the CPU's does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

/// Bits 32 to 63: the place, saturated; bits 0 to 31: the value found there, saturated to a signed number.
struct Found {
  std::uint32_t place;
  std::int32_t value;
};
/// A slot for one launch. `raise` throws; it is called on the thread that waits. Every slot holds ~0 until something is
/// found.
Address deferred_check(std::function<void(const Found&)> raise);
/// Throws the first of the checks that have failed, in order of their launches; forgets all of them.
void throw_failed_checks();

/// How many checks the current device has been given; and that some of them, part of a recording, run again.
std::uint64_t checks_made();
void expect_checks();

}  // namespace fermata::gpu
