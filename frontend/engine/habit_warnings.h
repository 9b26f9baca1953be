// Warnings about habits that make a program slow: a value that is computed at every iteration of a loop, structures
// that never come again. Once for each line; FERMATA_WARN=1.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>

namespace fermata {

extern std::atomic<bool> habit_warnings;

/// A sync has ended: so many calls had been recorded since the one before, and so many structures were new.
void note_habit(std::source_location where, std::uint64_t recorded, std::uint64_t misses);

}  // namespace fermata
