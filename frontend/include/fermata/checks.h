// Finding mistakes: which call made a NaN, and whether compiled code computes what eager mode does.
//
// The checks are slow: they are for finding a mistake that is known to be there. docs/profiling.md has an example.
#pragma once

#include <cstdint>

namespace fermata {

/// While it lives, calls and syncs of this thread on the CPU look for NaN and infinities. A result that has some, of
/// operands that had none of the kind, is an error at the line of the call; the operands' ranges are in the text. A
/// sync runs call by call, and fails only if a value that it was asked for is affected. Compiled functions run as if
/// they were not compiled. FERMATA_CHECK_NAN=1 does this for a whole process.
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

/// While it lives, every sync of this thread on the CPU is compiled, run, and compared with what its calls give one by
/// one, as in eager mode. Floats may differ by rounding. FERMATA_CHECK_MODES=1 does this for a whole process.
///
/// Errors   ValueError FM2402 that names the first call whose result differs.
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
