// Points at which a test lets the engine fail (docs/testing.md, "Fault injection").
//
// Calls of the C library and of other libraries need no mention here: tests/faults puts its own functions in their
// place. What is left are the few points below, none of which is on a path that a program takes often.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fermata {

enum class FaultKind : std::uint8_t { allocation, file, compile, library, thread, cuda };
inline constexpr std::size_t kFaultKinds = 6;

/// Says whether a point fails. Null in every program but those that inject faults, which set it before the engine runs.
using FaultInjector = bool (*)(FaultKind);
extern std::atomic<FaultInjector> fault_injector;

inline bool injects_faults() { return fault_injector.load(std::memory_order_relaxed) != nullptr; }
inline bool fails_here(FaultKind kind) {
  const FaultInjector injector = fault_injector.load(std::memory_order_relaxed);
  return injector != nullptr && injector(kind);
}

/// Work of this thread that ends the process where it gets no memory, and whose memory has been seen to.
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
