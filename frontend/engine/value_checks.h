// See fermata/checks.h. The checks of a sync.
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
/// Whether the walk can be checked: it runs on the CPU and, if it must run twice, has no kernels with unknown effects.
bool can_check(const Walk& walk, ValueCheck check);

/// interpret() that throws FM2401 if an output has NaN or infinities that a call introduced.
void interpret_looking_for_nan(const Walk& walk, std::span<StoragePtr> outputs);
/// Throws FM2402 if the results of a plan differ from those of its calls run one by one.
void compare_with_calls(const Walk& walk, std::span<const StoragePtr> outputs);

}  // namespace fermata
