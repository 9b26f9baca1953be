// Debugging checks: find the call that produced a NaN, and compare compiled results with eager ones.
//
// The checks are slow; use them to locate a known problem. docs/profiling.md has an example.
#pragma once

#include <cstdint>

namespace fermata {

/// Checks the results of this thread's calls and syncs on the CPU for NaN and infinities. A result that has some
/// although no operand had any of that kind is an error at the line of the call; the message shows the operands'
/// ranges. A sync runs call by call, and fails only if a requested value is affected. Compiled functions run
/// uncompiled. FERMATA_CHECK_NAN=1 enables this for the whole process.
///
/// Errors   ValueError FM2401, at the call in eager mode and at the sync otherwise; the values stay pending.
class CheckNanGuard {
 public:
  CheckNanGuard();
  ~CheckNanGuard();
  CheckNanGuard(const CheckNanGuard&) = delete;
  CheckNanGuard& operator=(const CheckNanGuard&) = delete;

 private:
  std::uint8_t before_;
};

/// Compiles and runs every sync of this thread on the CPU, and compares the results with those of running its calls one
/// by one, as in eager mode. Floats may differ by rounding. FERMATA_CHECK_MODES=1 enables this for the whole process.
///
/// Errors   ValueError FM2402, which names the first call whose result differs.
class CheckModesGuard {
 public:
  CheckModesGuard();
  ~CheckModesGuard();
  CheckModesGuard(const CheckModesGuard&) = delete;
  CheckModesGuard& operator=(const CheckModesGuard&) = delete;

 private:
  std::uint8_t before_;
};

}  // namespace fermata
