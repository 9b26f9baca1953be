// See compile_policy.h.
#include "frontend/compile_policy.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "frontend/play_calls.h"
#include "passes/pipeline.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

/// About what compiling a small plan costs: work above it is compiled at first sight.
constexpr double kCompileNanoseconds = 3e6;
/// Larger graphs are always played op by op: compile time grows with the graph, and such a graph is a loop that the
/// bound on pending nodes would have cut.
constexpr std::size_t kMaxCompiledNodes = 8192;

CompilePolicy from_environment() {
  const char* text = std::getenv("FERMATA_COMPILE");
  const std::string_view value = text == nullptr ? "" : text;
  return value == "immediate" ? CompilePolicy::immediate : value == "never" ? CompilePolicy::never : CompilePolicy::second_sight;
}
std::atomic<CompilePolicy> policy{from_environment()};

}  // namespace

CompilePolicy set_compile_policy(CompilePolicy p) { return policy.exchange(p); }

bool should_compile(PlanEntry& entry, const Walk& walk) {
  if (walk.backend != BackendKey::cpu) return true;  // devices may have no kernels to play
  const std::uint32_t before = entry.sights.fetch_add(1, std::memory_order_relaxed);
  if (walk.order.size() > kMaxCompiledNodes) return false;
  switch (policy.load(std::memory_order_relaxed)) {
    case CompilePolicy::immediate: return true;
    case CompilePolicy::never: return false;
    case CompilePolicy::second_sight: break;
  }
  return before > 0 || call_cost(walk) > kCompileNanoseconds;
}

const Plan* compile_entry(PlanEntry& entry, const Walk& walk) {
  std::lock_guard lock(entry.compiling);
  if (const Plan* done = entry.plan.load(std::memory_order_acquire)) return done;
  const auto start = std::chrono::steady_clock::now();
  entry.owned = compile_plan(import_graph(walk), entry.key, walk.backend);
  entry.plan.store(entry.owned.get(), std::memory_order_release);
  counters.plans_compiled.fetch_add(1, std::memory_order_relaxed);
  counters.compile_ns.fetch_add(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count()));
  return entry.owned.get();
}

}  // namespace fermata
