// Environment variables. A program that runs with the rights of a user other than the one who started it (setuid)
// ignores that user's environment: every variable reads as unset. scripts/check_style.py forbids other ways to read the
// environment.
#pragma once

#include <cstdint>

namespace fermata {

/// Null if the variable is not set.
const char* environment_variable(const char* name);

/// The value of a variable that is a count, such as 4096 or 1e9. Returns `otherwise` if it is not set, and also, with a
/// warning, if it is not an integer of at least `least`.
std::uint64_t environment_number(const char* name, std::uint64_t otherwise, std::uint64_t least = 0);

}  // namespace fermata
