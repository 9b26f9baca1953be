// The kernel comparisons of this process, and the results of earlier processes on this processor model.
//
// Calls are of one kind if op, dtypes, layouts, attributes and the number of threads agree, and sizes to about a tenth.
// Results are stored next to machine code (runtime/disk_cache.h); later processes use them from their start.
// FERMATA_CALIBRATE=0: nothing is compared, and no results are used.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dispatch/kernel_table.h"
#include "runtime/steps/open_choice.h"

namespace fermata {

/// Calls that are predicted to take less than this (ns) are never timed.
inline constexpr double kLeastCompared = 5e3;

/// The kernel of a call of the CPU that is predicted to be fastest with `predicted`.
ChosenKernel measured_choice(const BackendCell& cell, const KernelVariant& predicted, DType operand,
                             const CallArgs& args);

/// What is known about the kernels of such a call. Measures nothing.
struct MeasuredTimes {
  struct Time {
    std::string variant;
    double ns;
  };
  std::vector<Time> times;
  std::string winner;  // replaces the predicted one; empty if it stays
};
std::optional<MeasuredTimes> measured_times(BackendKey backend, const BackendCell& cell, const CallArgs& args);

/// From now on this process uses predictions alone: ranks that compute the same values must round alike.
void hold_choices();
/// Whether measurements may replace a kernel; true at first. Returns the setting before.
bool set_replace_kernels(bool on);
bool choices_are_held();

/// For `fermata doctor`: one line for each kind of call whose kernel was replaced.
std::vector<std::string> replaced_choices();
/// Removes the results from the disk.
void forget_choices();
/// For tests: the clock of comparisons that begin from now on, in ns; null for the machine's.
void set_choice_clock(std::int64_t (*clock)());

}  // namespace fermata
