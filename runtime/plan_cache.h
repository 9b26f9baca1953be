// Cache of plans by structure: shared, bounded, verified by comparing whole keys.
//
// Each thread finds its recent plans without a lock. `recorded` is the root's hash from recording; it only selects the
// first slot to check, so a stale or colliding hash costs a lookup in the shared table, never a wrong plan.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/fork.h"
#include "runtime/plan.h"
#include "runtime/plan_trial.h"

namespace fermata {

struct PlanEntry {
  std::vector<std::uint32_t> key;
  std::atomic<std::uint32_t> sights{0};
  std::atomic<std::uint64_t> played_ns{0};     // predicted cost of its executions op by op so far
  std::atomic<bool> is_being_compiled{false};  // in the background; also set if that failed
  std::atomic<const Plan*> plan{nullptr};      // null until compiled; set once
  std::mutex compiling;
  std::unique_ptr<const Plan> owned;
  std::atomic<std::uint64_t> last_used{0};
  /// The same results with one call per op, for compiled functions; null until one asks. Set once.
  std::atomic<const Plan*> calls{nullptr};
  std::unique_ptr<const Plan> owned_calls;
  // By sizes.
  static constexpr std::size_t kTrials = 32;
  std::array<PlanTrial, kTrials> trials;           // of syncs
  std::array<PlanTrial, kTrials> trials_of_calls;  // of compiled functions
  PlanEntry() {
    for (PlanTrial& trial : trials_of_calls) trial.begin_with_plan();
  }
};
using PlanEntryPtr = std::shared_ptr<PlanEntry>;

class PlanCache {
 public:
  static PlanCache& instance();
  PlanCache();
  /// A recent entry of the thread, for one run: taken out of its place and put back, so that threads with one plan do
  /// not count references to it in one word.
  class Use {
   public:
    Use(std::uint32_t recorded, std::span<const std::uint32_t> key);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    const PlanEntryPtr& operator*() const { return entry_; }

   private:
    PlanEntryPtr entry_;
    std::uint64_t generation_;
    std::uint32_t place_;
  };
  PlanEntryPtr find(std::uint32_t recorded, std::span<const std::uint32_t> key) { return *Use(recorded, key); }
  /// Drops all plans. Other threads release their recent plans at their next lookup.
  void clear();
  /// How often it has been cleared.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  std::size_t size();
  /// A description of the first difference between the key of the last miss and the nearest cached key; empty if none.
  std::string last_miss();

  /// Sets the maximum number of plans: 4096, or FERMATA_PLAN_LIMIT. Returns the previous limit.
  std::size_t set_limit(std::size_t plans);
  std::size_t limit();
  /// For tests, to make all hashes collide.
  std::atomic<std::uint64_t> hash_mask{~0ull};

 private:
  struct Recent {
    std::uint64_t generation = 0;
    std::array<PlanEntryPtr, 64> slots{};
  };
  static Recent& recent_of_thread();
  PlanEntryPtr find_shared(std::span<const std::uint32_t> key);
  ForkSafeMutex mutex_;
  std::size_t limit_;
  std::unordered_multimap<std::uint64_t, PlanEntryPtr> plans_;
  std::string last_miss_;
  std::atomic<std::uint64_t> clock_{0}, generation_{0};
};

}  // namespace fermata
