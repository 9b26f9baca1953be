// See stats.h.
#include "runtime/stats.h"

#include <array>
#include <cstring>

namespace fermata {

Counters counters;

namespace {
struct Reason {
  std::atomic<const char*> text{nullptr};
  std::atomic<std::uint64_t> count{0};
};
std::array<Reason, 32> reasons;  // the last one is for all that find no place
}  // namespace

void count_sync(const char* reason) {
  for (Reason& r : reasons) {
    const char* text = r.text.load(std::memory_order_acquire);
    if (text == nullptr) {
      const char* const mine = &r == &reasons.back() ? "other" : reason;
      if (r.text.compare_exchange_strong(text, mine)) text = mine;
    }
    if (text != reason && &r != &reasons.back()) continue;
    r.count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

std::uint64_t sync_count() {
  std::uint64_t count = 0;
  for (const Reason& r : reasons) count += r.count.load(std::memory_order_relaxed);
  return count;
}

std::vector<std::pair<std::string, std::uint64_t>> sync_reasons() {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (const Reason& r : reasons) {
    const char* text = r.text.load();
    if (text == nullptr) break;
    bool merged = false;  // equal literals of two translation units
    for (auto& [seen, count] : out)
      if (seen == text) count += r.count.load(), merged = true;
    if (!merged) out.emplace_back(text, r.count.load());
  }
  return out;
}

}  // namespace fermata
