// See fermata/checks.h. What a sync does while values are checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "runtime/storage.h"
#include "runtime/walk.h"

namespace fermata {

enum ValueCheck : std::uint8_t { kCheckNan = 1, kCheckModes = 2 };

extern std::atomic<std::uint8_t> checks_of_process;
extern constinit thread_local std::uint8_t checks_of_thread;
inline std::uint8_t value_checks() {
  return static_cast<std::uint8_t>(checks_of_process.load(std::memory_order_relaxed) | checks_of_thread);
}
/// Whether the walk can be checked: on the CPU, and, where it is to run twice, without kernels that may do anything.
bool can_check(const Walk& walk, ValueCheck check);

/// As interpret(); FM2401 if an output has NaN or infinities that some call has made.
void interpret_looking_for_nan(const Walk& walk, std::span<StoragePtr> outputs);
/// FM2402 if what a plan has computed is not what the calls give one by one.
void compare_with_calls(const Walk& walk, std::span<const StoragePtr> outputs);

}  // namespace fermata
