// Counters of the process: what stats() shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fermata {

struct Counters {
  std::atomic<std::uint64_t> plan_hits{0}, plan_misses{0}, plans_compiled{0}, call_plays{0}, replays{0},
      kernels_compiled{0}, kernel_hits{0}, compile_ns{0}, compile_failures{0}, vmap_loops{0};
};
extern Counters counters;

/// Counts a sync under its reason, a string literal. Lock-free; reasons beyond the first 31 share one count.
void count_sync(const char* reason);
std::vector<std::pair<std::string, std::uint64_t>> sync_reasons();
std::uint64_t sync_count();

}  // namespace fermata
