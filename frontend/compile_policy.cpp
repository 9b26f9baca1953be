// See compile_policy.h.
#include "frontend/compile_policy.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "frontend/play_calls.h"
#include "passes/pipeline.h"
#include "runtime/background.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

/// About what compiling costs, once a process has compiled something.
constexpr double kPlanNanoseconds = 3e6, kNodeNanoseconds = 5e4;
/// Larger graphs are always played op by op: compile time grows with the graph, and such a graph is a loop that the
/// bound on pending nodes would have cut.
constexpr std::size_t kMaxCompiledNodes = 8192;
/// Compiling in the background begins once this part of its cost has gone into playing. Later, and more would be played that need not;
/// sooner, and structures that come a few times would keep a processor busy.
constexpr double kBeginAfter = 0.125;

double compile_cost(const Walk& walk) {
  return kPlanNanoseconds + kNodeNanoseconds * static_cast<double>(walk.order.size());
}

CompilePolicy from_environment() {
  const char* text = std::getenv("FERMATA_COMPILE");
  const std::string_view value = text == nullptr ? "" : text;
  return value == "immediate"      ? CompilePolicy::immediate
         : value == "never"        ? CompilePolicy::never
         : value == "second_sight" ? CompilePolicy::second_sight
                                   : CompilePolicy::background;
}
std::atomic<CompilePolicy> policy{from_environment()};

const Plan* compile(PlanEntry& entry, Graph graph, BackendKey backend) {
  std::lock_guard lock(entry.compiling);
  if (const Plan* done = entry.plan.load(std::memory_order_acquire)) return done;
  const auto start = std::chrono::steady_clock::now();
  entry.owned = compile_plan(std::move(graph), entry.key, backend);
  entry.plan.store(entry.owned.get(), std::memory_order_release);
  counters.plans_compiled.fetch_add(1, std::memory_order_relaxed);
  counters.compile_ns.fetch_add(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count()));
  return entry.owned.get();
}

/// The plan appears in the entry when it is ready. If it cannot be made, the structure is played for ever.
void compile_in_background(const PlanEntryPtr& entry, const Walk& walk) {
  if (entry->is_being_compiled.exchange(true)) return;
  run_beside([entry, graph = import_graph(walk), backend = walk.backend] {
    try {
      compile(*entry, graph, backend);
    } catch (const std::exception&) {
      counters.compile_failures.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

/// Work for which compiling costs less than one play is compiled now; the rest is played meanwhile.
bool is_worth_waiting_for(const PlanEntryPtr& entry, const Walk& walk) {
  const double play = call_cost(walk), cost = compile_cost(walk);
  if (play > cost) return true;
  const std::uint64_t played =
      static_cast<std::uint64_t>(play) + entry->played_ns.fetch_add(static_cast<std::uint64_t>(play), std::memory_order_relaxed);
  if (static_cast<double>(played) > kBeginAfter * cost && entry->sights.load(std::memory_order_relaxed) > 1)
    compile_in_background(entry, walk);
  return false;
}

bool is_due(const PlanEntryPtr& entry, const Walk& walk) {
  if (walk.backend != BackendKey::cpu) return true;  // devices may have no kernels to play
  const std::uint32_t before = entry->sights.fetch_add(1, std::memory_order_relaxed);
  if (walk.order.size() > kMaxCompiledNodes) return false;
  switch (policy.load(std::memory_order_relaxed)) {
    case CompilePolicy::immediate: return true;
    case CompilePolicy::never: return false;
    case CompilePolicy::second_sight: return before > 0 || call_cost(walk) > kPlanNanoseconds;
    case CompilePolicy::background: break;
  }
  return is_worth_waiting_for(entry, walk);
}

}  // namespace

CompilePolicy set_compile_policy(CompilePolicy p) { return policy.exchange(p); }
void wait_for_compiling() { wait_for_background(); }

const Plan* plan_if_due(const PlanEntryPtr& entry, const Walk& walk) {
  return is_due(entry, walk) ? compile_entry(*entry, walk) : nullptr;
}

const Plan* compile_entry(PlanEntry& entry, const Walk& walk) {
  if (const Plan* done = entry.plan.load(std::memory_order_acquire)) return done;
  return compile(entry, import_graph(walk), walk.backend);
}

}  // namespace fermata
