// See profiled_plans.h.
#include "frontend/engine/profiled_plans.h"

#include <array>
#include <memory>
#include <mutex>

#include "ir/fork.h"
#include "ir/per_thread.h"
#include "runtime/events.h"

namespace fermata {
namespace {

constexpr std::size_t kMostPlans = 256;

struct Known {
  ForkSafeMutex mutex;
  std::map<std::uint64_t, ProfiledPlan> plans;
};
Known& known() {
  static Known* const all = new Known;
  return *all;
}

}  // namespace

void note_profiled_plan(std::uint64_t number, FunctionRef<ProfiledPlan()> make) {
  if (!keeps_events()) return;
  static constinit thread_local PerThread<std::array<std::uint64_t, 64>> seen_by_thread;
  std::array<std::uint64_t, 64>& seen = seen_by_thread.get();
  std::uint64_t& recent = seen[number % seen.size()];
  if (recent == number) return;
  recent = number;
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  if (all.plans.size() >= kMostPlans || all.plans.contains(number)) return;
  all.plans.emplace(number, make());
}

std::map<std::uint64_t, ProfiledPlan> profiled_plans() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  return all.plans;
}

}  // namespace fermata
