// The reductions of collectives.
#pragma once

#include <cstdint>
#include <string_view>

namespace fermata {

enum class CollectiveReduction : std::uint8_t { sum, mean, max, min, prod };
inline constexpr std::string_view kCollectiveReductionNames[] = {"sum", "mean", "max", "min", "prod"};
constexpr std::string_view name(CollectiveReduction r) {
  return kCollectiveReductionNames[static_cast<std::size_t>(r)];
}

}  // namespace fermata
