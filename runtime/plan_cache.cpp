// See plan_cache.h.
#include "runtime/plan_cache.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "ir/per_thread.h"
#include "runtime/environment.h"
#include "runtime/events.h"
#include "runtime/evict_least_recently_used.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

bool equal(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(std::uint32_t)) == 0;
}

}  // namespace

PlanCache::PlanCache() : limit_(environment_number("FERMATA_PLAN_LIMIT", 4096, 1)) {}

PlanCache& PlanCache::instance() {
  static PlanCache* cache = new PlanCache;  // outlives static tensors
  return *cache;
}

PlanCache::Recent& PlanCache::recent_of_thread() {
  static constinit thread_local PerThread<Recent> mine;
  return mine.get();
}

PlanCache::Use::Use(std::uint32_t recorded, std::span<const std::uint32_t> key)
    : generation_(instance().generation()), place_(recorded % 64) {
  PlanCache& cache = instance();
  Recent& recent = recent_of_thread();
  if (recent.generation != generation_) [[unlikely]]
    recent = {generation_, {}};
  entry_ = std::move(recent.slots[place_]);
  if (entry_ == nullptr || !equal(entry_->key, key)) [[unlikely]]
    entry_ = cache.find_shared(key);
  else
    ThreadCounts::add_one(ThreadCounts::mine().plan_hits);
  const std::uint64_t now = cache.clock_.load(std::memory_order_relaxed);
  if (entry_->last_used.load(std::memory_order_relaxed) != now) entry_->last_used.store(now, std::memory_order_relaxed);
}

/// Unless what ran meanwhile has used the place, or cleared the cache.
PlanCache::Use::~Use() {
  Recent& recent = recent_of_thread();
  PlanEntryPtr& slot = recent.slots[place_];
  if (recent.generation == generation_ && slot == nullptr) [[likely]]
    slot = std::move(entry_);
}

PlanEntryPtr PlanCache::find_shared(std::span<const std::uint32_t> key) {
  const std::uint64_t h = XXH3_64bits(key.data(), key.size() * sizeof(std::uint32_t)) & hash_mask.load();
  std::lock_guard lock(mutex_);
  clock_.fetch_add(1, std::memory_order_relaxed);
  const auto [first, last] = plans_.equal_range(h);
  for (auto p = first; p != last; ++p)
    if (equal(p->second->key, key)) {
      ThreadCounts::add_one(ThreadCounts::mine().plan_hits);
      return p->second;
    }
  counters.plan_misses.fetch_add(1, std::memory_order_relaxed);
  std::size_t best = 0;
  last_miss_.clear();
  for (const auto& [hash, entry] : plans_) {
    const auto [a, b] = std::mismatch(key.begin(), key.end(), entry->key.begin(), entry->key.end());
    const auto same = static_cast<std::size_t>(a - key.begin());
    if (same <= best) continue;
    best = same;
    last_miss_ =
        fmt::format("the first {} of {} words match a cached plan of {} words; then {:#x} instead of {:#x}", same,
                    key.size(), entry->key.size(), a == key.end() ? 0 : *a, b == entry->key.end() ? 0 : *b);
    if (plans_.size() > 64) break;  // a hint for people; not worth a scan of everything
  }
  if (wants_events())
    add_instant(keep_event_info({.kind = EventKind::plan_miss, .name = "new structure", .detail = last_miss_}));
  // A plan in use lives on in its user's pointer.
  while (plans_.size() >= limit_)
    evict_least_recently_used(plans_,
                              [](const auto& plan) { return plan.second->last_used.load(std::memory_order_relaxed); });
  auto entry = std::make_shared<PlanEntry>();
  entry->key.assign(key.begin(), key.end());
  return plans_.emplace(h, std::move(entry))->second;
}

std::size_t PlanCache::set_limit(std::size_t plans) {
  std::lock_guard lock(mutex_);
  return std::exchange(limit_, std::max<std::size_t>(plans, 1));
}

std::size_t PlanCache::limit() {
  std::lock_guard lock(mutex_);
  return limit_;
}

void PlanCache::clear() {
  const std::uint64_t next = [&] {
    std::lock_guard lock(mutex_);
    plans_.clear();
    return generation_.fetch_add(1, std::memory_order_release) + 1;
  }();
  recent_of_thread() = {next, {}};
}

std::size_t PlanCache::size() {
  std::lock_guard lock(mutex_);
  return plans_.size();
}

std::string PlanCache::last_miss() {
  std::lock_guard lock(mutex_);
  return last_miss_;
}

}  // namespace fermata
