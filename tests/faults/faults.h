// Lets the n-th point of a kind fail: an allocation, a call that concerns a file, a compile, a call of a library, the
// start of a thread, a call of the CUDA driver.
//
// Functions of the C library, of oneDNN, LAPACK and libzip are replaced in the program that this is linked to, or, with
// LD_PRELOAD, in any program; then FERMATA_FAULTS=KIND:N says what fails (docs/testing.md).
#pragma once

#include <cstdint>
#include <string>

#include "ir/fault_points.h"

namespace fermata::faults {

inline constexpr const char* kKindNames[kFaultKinds] = {"allocation", "file", "compile", "library", "thread", "cuda"};

/// Lets a process see what has failed in processes that it forks after this.
void share_with_children();
/// Makes the engine ask at its own points. Before the engine runs; threads that have used it before are left alone.
void install();
/// Starts to count, and lets point `number` of the kind fail, counted from 1; none if it is 0.
void arm(FaultKind kind, std::uint64_t number);
/// Ends it; gives how many points of that kind there were.
std::uint64_t disarm();
/// Whether the point that was to fail has failed.
bool has_failed();
/// The calls that led to it, and whether the program itself asked, not the engine on its behalf.
std::string place();
bool was_of_program();

/// Blocks that `operator new` has given out.
std::int64_t live_blocks();

}  // namespace fermata::faults
