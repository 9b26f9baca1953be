// Counters of the process, as returned by stats().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fermata {

struct Counters {
  std::atomic<std::uint64_t> plan_misses{0}, plans_compiled{0}, kernels_compiled{0}, kernel_hits{0}, compile_ns{0},
      compile_failures{0}, vmap_loops{0};
};
extern Counters counters;

/// The counters of one thread, updated at every sync and replay without locked instructions, because only the thread
/// itself writes. Counts of ended threads are kept.
struct alignas(64) ThreadCounts {
  static constexpr std::size_t kReasons = 32;
  std::atomic<std::uint64_t> plan_hits{0}, call_plays{0}, replays{0};
  std::array<std::atomic<std::uint64_t>, kReasons> syncs{};  // by reason
  static ThreadCounts& mine();
  static void add_one(std::atomic<std::uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  friend std::uint64_t sum_of(std::atomic<std::uint64_t> ThreadCounts::*count);
  friend std::uint64_t syncs_by_reason(std::size_t reason);
  std::atomic<bool> taken_{true};
  ThreadCounts* next_ = nullptr;
  static std::atomic<ThreadCounts*> all_;  // only grows; entries of ended threads are reused
};
/// A count over all threads.
std::uint64_t sum_of(std::atomic<std::uint64_t> ThreadCounts::*count);

/// Counts a sync under its reason, a string literal. Reasons beyond the first 31 share one count.
void count_sync(const char* reason);
std::vector<std::pair<std::string, std::uint64_t>> sync_reasons();
std::uint64_t sync_count();

}  // namespace fermata
