// Fault injection points for tests (docs/testing.md, "Fault injection").
//
// Calls of the C library and other libraries need no points: tests/faults interposes its own functions. The few
// remaining points below are not on hot paths.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fermata {

enum class FaultKind : std::uint8_t { allocation, file, compile, library, thread, cuda };
inline constexpr std::size_t kFaultKinds = 6;

/// Decides whether a point fails. Null except in programs that inject faults, which set it before the engine runs.
using FaultInjector = bool (*)(FaultKind);
extern std::atomic<FaultInjector> fault_injector;

inline bool injects_faults() { return fault_injector.load(std::memory_order_relaxed) != nullptr; }
inline bool fails_here(FaultKind kind) {
  const FaultInjector injector = fault_injector.load(std::memory_order_relaxed);
  return injector != nullptr && injector(kind);
}

/// Disables faults on this thread for work that terminates the process if it gets no memory, and whose memory has been
/// reserved.
class WithoutFaults {
 public:
  WithoutFaults() { ++depth_; }
  ~WithoutFaults() { --depth_; }
  WithoutFaults(const WithoutFaults&) = delete;
  WithoutFaults& operator=(const WithoutFaults&) = delete;
  static bool in_force() { return depth_ != 0; }

 private:
  static thread_local int depth_;
};

}  // namespace fermata
