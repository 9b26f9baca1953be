// Makes room in a bounded cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fermata {

/// Removes the least recently used quarter of a map, and at least one entry. `last_used(entry)` is a time that grows.
template <class Map, class LastUsed> void evict_least_recently_used(Map& map, LastUsed last_used) {
  if (map.empty()) return;
  std::vector<std::uint64_t> times;
  times.reserve(map.size());
  for (const auto& entry : map) times.push_back(last_used(entry));
  const auto quarter = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), quarter, times.end());
  const std::uint64_t limit = *quarter;
  std::size_t left = times.size() / 4 + 1;
  for (auto p = map.begin(); p != map.end() && left > 0;) {
    if (last_used(*p) <= limit)
      p = map.erase(p), --left;
    else
      ++p;
  }
}

}  // namespace fermata
