// How far one name is from another, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace fermata {

/// The number of single-letter edits (insert, drop, replace) that turn one name into the other: Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace fermata
