// See compile_policy.h.
#include "frontend/engine/compile_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <string_view>
#include <utility>

#include "frontend/engine/interpreter.h"
#include "passes/pipeline.h"
#include "runtime/background.h"
#include "runtime/environment.h"
#include "runtime/events.h"
#include "runtime/stats.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// About what compiling costs; and loading the compiler, before that.
constexpr double kPlanNanoseconds = 3e6, kNodeNanoseconds = 5e4, kFirstNanoseconds = 4e7;
/// Larger graphs are always played op by op: compile time grows with the graph, and such a graph is a loop that the
/// bound on pending nodes would have cut.
constexpr std::size_t kMaxCompiledNodes = 8192;
/// Compiling in the background begins once this part of its cost has gone into playing. Later, and more would be played
/// that need not; sooner, and structures that come a few times would keep a processor busy.
constexpr double kBeginAfter = 0.25;
/// What all structures together have cost so far; counted until something has been compiled.
std::atomic<std::uint64_t> all_played_ns{0};

double compile_cost(const Walk& walk) {
  return kPlanNanoseconds + kNodeNanoseconds * static_cast<double>(walk.order.size());
}

CompilePolicy from_environment() {
  const char* text = environment_variable("FERMATA_COMPILE");
  const std::string_view value = text == nullptr ? "" : text;
  return value == "immediate"      ? CompilePolicy::immediate
         : value == "never"        ? CompilePolicy::never
         : value == "second_sight" ? CompilePolicy::second_sight
                                   : CompilePolicy::background;
}
std::atomic<CompilePolicy> policy{from_environment()};

/// One in PlanTrial::kOneIn, at random: a period of the program must not hide a structure.
bool is_sampled() {
  static constinit thread_local std::uint32_t random = 1;
  random = random * 1664525 + 1013904223;
  return random < ~0u / PlanTrial::kOneIn;
}

std::uint64_t use_before_repeat() { return thread_count() == 1 ? PlanTrial::kUseOfOneThreadNs : PlanTrial::kUseNs; }

/// The trial for the sizes at hand: those of one have elements and last axes of the same size up to a factor of four. A
/// few others may share it.
std::size_t trial_of_sizes(const Walk& walk) {
  std::uint64_t elements = 0;
  std::size_t last_axes = 0;
  for (const std::uint32_t i : {std::uint32_t{0}, walk.outputs.back()}) {
    const auto sizes = walk.order[i].node->sizes();
    elements += static_cast<std::uint64_t>(element_count(sizes));
    const std::int64_t last = sizes.empty() ? 1 : sizes.back();
    last_axes = 3 * last_axes + static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(last))) / 2;
  }
  constexpr std::size_t kApart = 5;  // neighbors in both ways do not meet
  return (static_cast<std::size_t>(std::bit_width(elements)) / 2 + kApart * last_axes) % PlanEntry::kTrials;
}

const Plan* compile(PlanEntry& entry, Graph graph, BackendKey backend, std::string_view when) {
  std::lock_guard lock(entry.compiling);
  if (const Plan* done = entry.plan.load(std::memory_order_acquire)) return done;
  const EventScope event([&] {
    return keep_event_info(
        {.kind = EventKind::compile, .name = "plan", .detail = fmt::format("{} nodes, {}", graph.nodes.size(), when)});
  });
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
      compile(*entry, graph, backend, "in the background");
    } catch (const std::exception&) { counters.compile_failures.fetch_add(1, std::memory_order_relaxed); }
  });
}

/// Work for which compiling costs less than one play is compiled now; the rest is played meanwhile.
bool is_worth_waiting_for(const PlanEntryPtr& entry, const Walk& walk) {
  const double play = interpretation_cost(walk), cost = compile_cost(walk);
  if (play > cost) return true;
  const auto ns = static_cast<std::uint64_t>(play);
  const std::uint64_t played = ns + entry->played_ns.fetch_add(ns, std::memory_order_relaxed);
  if (counters.plans_compiled.load(std::memory_order_relaxed) == 0 &&
      static_cast<double>(ns + all_played_ns.fetch_add(ns, std::memory_order_relaxed)) <
          kBeginAfter * kFirstNanoseconds)
    return false;
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
    case CompilePolicy::second_sight: return before > 0 || interpretation_cost(walk) > kPlanNanoseconds;
    case CompilePolicy::background: break;
  }
  return is_worth_waiting_for(entry, walk);
}

}  // namespace

CompilePolicy set_compile_policy(CompilePolicy p) { return policy.exchange(p); }
bool may_play_calls() {
  const CompilePolicy p = policy.load(std::memory_order_relaxed);
  return p == CompilePolicy::background || p == CompilePolicy::never;
}
void wait_for_compiling() { wait_for_background(); }

PlanRun::PlanRun(const PlanEntryPtr& entry, const Walk& walk) : plan_(entry->plan.load(std::memory_order_acquire)) {
  if (plan_ == nullptr && is_due(entry, walk)) plan_ = compile_entry(*entry, walk);
  if (policy.load(std::memory_order_relaxed) != CompilePolicy::background || walk.backend != BackendKey::cpu) return;
  PlanTrial& trial = entry->trials[trial_of_sizes(walk)];
  turn_.begin(trial, plan_ != nullptr);
  if (turn_.runs_plan()) return;
  if (plan_ != nullptr && trial.is_open() &&
      interpretation_cost(walk) > compile_cost(walk)) {  // a trial would cost more than it could show
    trial.choose_plan();
    turn_.drop();
    return;
  }
  plan_ = nullptr;
}

void TrialTurn::begin(PlanTrial& trial, bool has_plan) {
  turn_ = trial.next(has_plan, is_sampled(), use_before_repeat());
  if (!turn_.is_timed) return;
  trial_ = &trial;
  if (turn_.warms_up) is_warming_up = true;
  start_ = std::chrono::steady_clock::now();
}

void TrialTurn::note_time() const {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
  trial_->note(turn_, static_cast<std::uint64_t>(ns), use_before_repeat());
}

const Plan* compile_entry(PlanEntry& entry, const Walk& walk) {
  if (const Plan* done = entry.plan.load(std::memory_order_acquire)) return done;
  return compile(entry, import_graph(walk), walk.backend, "in the foreground");
}

const Plan* compile_calls(PlanEntry& entry, Graph graph, BackendKey backend) {
  if (const Plan* done = entry.calls.load(std::memory_order_acquire)) return done;
  std::lock_guard lock(entry.compiling);
  if (const Plan* done = entry.calls.load(std::memory_order_acquire)) return done;
  entry.owned_calls = compile_calls_plan(std::move(graph), entry.key, backend);
  entry.calls.store(entry.owned_calls.get(), std::memory_order_release);
  return entry.owned_calls.get();
}

PlanTrial* trial_of_calls(PlanEntry& entry, const Walk& walk) {
  if (policy.load(std::memory_order_relaxed) != CompilePolicy::background || walk.backend != BackendKey::cpu)
    return nullptr;
  PlanTrial& trial = entry.trials_of_calls[trial_of_sizes(walk)];
  return trial.is_settled_on_plan() ? nullptr : &trial;
}

}  // namespace fermata
