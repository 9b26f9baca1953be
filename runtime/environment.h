// Environment variables. A program that runs with the rights of another user than the one who started it (setuid) is
// not led by what that user says: there no variable is set. scripts/check_style.py keeps other ways out.
#pragma once

#include <cstdint>

namespace fermata {

/// Null where the variable is not set.
const char* environment_variable(const char* name);

/// The value of a variable that is a count, such as 4096 or 1e9. `otherwise` where it is not set, and, with a warning,
/// where it is not a whole number of `least` or more.
std::uint64_t environment_number(const char* name, std::uint64_t otherwise, std::uint64_t least = 0);

}  // namespace fermata
