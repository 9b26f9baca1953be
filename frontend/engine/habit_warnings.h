// Warnings about slow patterns: a sync in every iteration of a loop, structures that never recur. Once per line;
// enabled by FERMATA_WARN=1.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>

namespace fermata {

extern std::atomic<bool> habit_warnings;

/// Called after a sync with the number of calls recorded since the previous one and the number of new structures.
void note_habit(std::source_location where, std::uint64_t recorded, std::uint64_t misses);

}  // namespace fermata
