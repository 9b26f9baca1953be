// Edit distance of names, for "did you mean" hints.
#pragma once

#include <cstddef>
#include <string_view>

namespace fermata {

/// The Levenshtein distance: the minimum number of single-letter insertions, deletions and replacements.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace fermata
