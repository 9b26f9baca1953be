// See stats.h.
#include "runtime/stats.h"

#include <array>
#include <cstring>

#include "ir/per_thread.h"

namespace fermata {

Counters counters;

std::atomic<ThreadCounts*> ThreadCounts::all_{nullptr};

ThreadCounts& ThreadCounts::mine() {
  struct Lease {
    ThreadCounts* counts = all_.load();
    Lease() {
      while (counts != nullptr && counts->taken_.exchange(true)) counts = counts->next_;
      if (counts != nullptr) return;
      counts = new ThreadCounts;
      counts->next_ = all_.load();
      while (!all_.compare_exchange_weak(counts->next_, counts)) {}
    }
    ~Lease() { counts->taken_ = false; }
  };
  static constinit thread_local PerThread<Lease> lease;
  return *lease.get().counts;
}

std::uint64_t sum_of(std::atomic<std::uint64_t> ThreadCounts::*count) {
  std::uint64_t sum = 0;
  for (const ThreadCounts* t = ThreadCounts::all_.load(); t != nullptr; t = t->next_)
    sum += (t->*count).load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t syncs_by_reason(std::size_t reason) {
  std::uint64_t count = 0;
  for (const ThreadCounts* t = ThreadCounts::all_.load(); t != nullptr; t = t->next_)
    count += t->syncs[reason].load(std::memory_order_relaxed);
  return count;
}

namespace {
std::array<std::atomic<const char*>, ThreadCounts::kReasons> reasons{};  // the last one is for all that find no place
}  // namespace

void count_sync(const char* reason) {
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const bool last = i + 1 == reasons.size();
    const char* text = reasons[i].load(std::memory_order_acquire);
    if (text == nullptr) {
      const char* const mine = last ? "other" : reason;
      if (reasons[i].compare_exchange_strong(text, mine)) text = mine;
    }
    if (text == reason || last) return ThreadCounts::add_one(ThreadCounts::mine().syncs[i]);
  }
}

std::uint64_t sync_count() {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < reasons.size(); ++i) count += syncs_by_reason(i);
  return count;
}

std::vector<std::pair<std::string, std::uint64_t>> sync_reasons() {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    const char* text = reasons[i].load();
    if (text == nullptr) break;
    bool merged = false;  // equal literals of two translation units
    for (auto& [seen, count] : out)
      if (seen == text) count += syncs_by_reason(i), merged = true;
    if (!merged) out.emplace_back(text, syncs_by_reason(i));
  }
  return out;
}

}  // namespace fermata
