// See fermata/inspect.h.
#include "fermata/inspect.h"

#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <chrono>

#include "dispatch/kernel_cache.h"
#include "dispatch/profile.h"
#include "fermata/device.h"
#include "fermata/modes.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/no_memory.h"
#include "frontend/engine/pending_bound.h"
#include "frontend/engine/sync.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/vmap/batched.h"
#include "passes/pipeline.h"
#include "runtime/allocator.h"
#include "runtime/plan_cache.h"
#include "runtime/prepacked_weights.h"
#include "runtime/stats.h"
#include "runtime/step_profile.h"

namespace fermata {

using detail::ErasedFunction;
namespace {

/// What a sync of these tensors would walk. Only tensors of the calling thread may be pending here.
Graph pending_graph(const std::vector<Tensor>& tensors) {
  std::vector<Node*> roots;
  for (const Tensor& t : tensors) roots.push_back(ordinary_tensor(t).node());
  Walk walk;
  walk.run(roots);
  Graph graph = import_graph(walk);
  for (const Walk::ShownView& v : walk.views)  // what they show is there
    if (std::ranges::find(graph.outputs, v.source) == graph.outputs.end()) graph.outputs.push_back(v.source);
  for (Node* n : roots) {  // a value that is there is its own program
    if (n->pending()) continue;
    GraphNode input;
    input.dtype = n->dtype, input.shape = Shape(n->sizes());
    graph.nodes.push_back(std::move(input));
    graph.outputs.push_back(static_cast<ValueId>(graph.nodes.size() - 1));
  }
  return graph;
}

/// Nothing unless they are partitioned among processes.
std::optional<std::string> explain_divided(const std::vector<Tensor>& tensors) {
  std::vector<Node*> roots;
  for (const Tensor& t : tensors) roots.push_back(ordinary_tensor(t).node());
  Walk walk;
  walk.run(roots);
  if (!is_partitioned(walk)) return std::nullopt;
  return explain_partitioned(walk);
}

/// A plan is of one device.
std::vector<std::vector<Tensor>> by_device(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<Tensor>> parts;
  for (const Tensor& t : tensors) {
    const auto same = [&](const std::vector<Tensor>& part) { return device(part[0]) == device(t); };
    const auto at = std::ranges::find_if(parts, same);
    if (at == parts.end())
      parts.push_back({t});
    else
      at->push_back(t);
  }
  return parts;
}

using Clock = std::chrono::steady_clock;
double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

std::vector<Tensor> run_and_sync(ErasedFunction function, void* context, double* record_us) {
  const auto start = Clock::now();
  std::vector<Tensor> results = function(context);
  if (record_us != nullptr) *record_us = microseconds(Clock::now() - start);
  std::vector<Node*> roots;
  for (const Tensor& t : results)
    if (t.node()->pending()) roots.push_back(t.node());
  if (!roots.empty()) sync_nodes(roots, "compare_modes", Location::current());
  return results;
}

/// What is compared is the compiled program, not the way there.
struct CompileAtOnce {
  CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  ~CompileAtOnce() { set_compile_policy(before); }
};

/// The best of enough runs: other load on the machine only ever adds.
template <class Run> double best_of(Run&& run) {
  constexpr double kBudgetUs = 200'000;
  double best = 1e300, spent = 0;
  for (int i = 0; i < 5 || (spent < kBudgetUs && i < 2000); ++i) {
    const auto start = Clock::now();
    run();
    const double us = microseconds(Clock::now() - start);
    best = std::min(best, us), spent += us;
  }
  return best;
}

}  // namespace

std::string dump_ir(const std::vector<Tensor>& tensors, Location where) {
  for (const Tensor& t : tensors) require_defined("dump_ir", t, where);
  return to_string(pending_graph(tensors), true);
}
std::string dump_ir(const Tensor& t, Location where) { return dump_ir(std::vector<Tensor>{t}, where); }

std::string explain(const std::vector<Tensor>& tensors, Location where) try {
  for (const Tensor& t : tensors) require_defined("explain", t, where);
  std::string text;
  const auto parts = by_device(tensors);
  for (const std::vector<Tensor>& part : parts) {
    const Device on = device(part[0]);
    if (parts.size() > 1 || on != cpu())
      text += fmt::format("{}device {}\n\n", text.empty() ? "" : "\n", to_string(on));
    if (const std::optional<std::string> partitioned = explain_divided(part))
      text += *partitioned;
    else
      text += explain_plan(pending_graph(part), on.backend());
  }
  return text;
} catch (const std::bad_alloc&) { throw_no_memory("explain", where); }
std::string explain(const Tensor& t, Location where) try {
  return explain(std::vector<Tensor>{t}, where);
} catch (const std::bad_alloc&) { throw_no_memory("explain", where); }

Stats stats() {
  Stats s;
  s.records = recorded_nodes;
  s.syncs = sync_count(), s.sync_reasons = sync_reasons();
  s.plan_hits = sum_of(&ThreadCounts::plan_hits), s.plan_misses = counters.plan_misses,
  s.plans_compiled = counters.plans_compiled;
  s.call_plays = sum_of(&ThreadCounts::call_plays), s.replays = sum_of(&ThreadCounts::replays),
  s.vmap_loops = counters.vmap_loops;
  s.kernels_compiled = counters.kernels_compiled, s.kernel_hits = counters.kernel_hits;
  s.compile_failures = counters.compile_failures;
  s.compile_ms = static_cast<double>(counters.compile_ns.load()) / 1e6;
  const MemoryStats memory = memory_stats();
  s.live_bytes = memory.live_bytes, s.cached_bytes = memory.cached_bytes, s.peak_bytes = memory.peak_bytes;
  s.packed_bytes = PrepackedWeights::bytes();
  s.last_plan_miss = PlanCache::instance().last_miss();
  return s;
}

std::string to_string(const Stats& s) {
  std::string text = fmt::format("recorded calls      {}\nsyncs               {}\n", s.records, s.syncs);
  for (const auto& [reason, count] : s.sync_reasons) text += fmt::format("  {:<42} {}\n", reason, count);
  text += fmt::format("plan cache          {} hits, {} misses; {} plans compiled, {} graphs interpreted op by op\n",
                      s.plan_hits, s.plan_misses, s.plans_compiled, s.call_plays);
  text += fmt::format("compiled functions  {} replays\n", s.replays);
  if (s.vmap_loops != 0)
    text += fmt::format("vmap                {} calls run in a loop over the batch\n", s.vmap_loops);
  text += fmt::format("kernels             {} compiled, {} cached, {} failed; {:.1f} ms of compilation\n",
                      s.kernels_compiled, s.kernel_hits, s.compile_failures, s.compile_ms);
  text += fmt::format(
      "memory              {:.1f} MiB live, {:.1f} MiB cached, {:.1f} MiB peak; prepacked weights {:.1f} MiB\n",
      static_cast<double>(s.live_bytes) / 1048576, static_cast<double>(s.cached_bytes) / 1048576,
      static_cast<double>(s.peak_bytes) / 1048576, static_cast<double>(s.packed_bytes) / 1048576);
  if (!s.last_plan_miss.empty()) text += fmt::format("last new structure  {}\n", s.last_plan_miss);
  return text;
}

ModeComparison detail::compare_modes_erased(ErasedFunction function, void* context) {
  ModeComparison result;
  {
    const ModeGuard eager(Mode::eager);
    function(context);  // warm
    CallProfile profile;
    constexpr int kRuns = 5;
    for (int i = 0; i < kRuns; ++i) function(context);
    for (const auto& [op, e] : profile.entries()) result.rows.push_back({op, e.runs / kRuns, e.ns / 1000 / kRuns});
  }
  {
    const ModeGuard eager(Mode::eager);
    result.eager_us = best_of([&] { function(context); });
  }
  std::sort(result.rows.begin(), result.rows.end(),
            [](const auto& a, const auto& b) { return a.eager_us > b.eager_us; });

  const ModeGuard compiled(Mode::compiled);
  const CompileAtOnce at_once;
  const auto start = Clock::now();
  run_and_sync(function, context, nullptr);
  result.first_ms = microseconds(Clock::now() - start) / 1000;
  run_and_sync(function, context, nullptr);
  result.record_us = 1e300;
  result.compiled_us = best_of([&] {
    double record = 0;
    run_and_sync(function, context, &record);
    result.record_us = std::min(result.record_us, record);
  });
  {
    StepProfile profile;
    run_and_sync(function, context, nullptr);
    for (const auto& [what, e] : profile.entries()) result.steps.push_back({what, e.runs, e.ns / 1000});
  }
  std::ranges::sort(result.steps, [](const auto& a, const auto& b) { return a.us > b.us; });
  result.kernels = 0;
  for (const std::vector<Tensor>& part : by_device(function(context)))
    result.kernels += step_count(pending_graph(part), device(part[0]).backend());
  return result;
}

std::string to_string(const ModeComparison& c) {
  std::string text = fmt::format("{:<20} {:>6} {:>12} {:>12}\n", "op", "calls", "eager us", "us per call");
  double kernels = 0;
  for (const ModeComparison::Row& r : c.rows) {
    text += fmt::format("{:<20} {:>6} {:>12.2f} {:>12.3f}\n", r.op, r.calls, r.eager_us,
                        r.eager_us / static_cast<double>(std::max<std::uint64_t>(r.calls, 1)));
    kernels += r.eager_us;
  }
  text += fmt::format("{:<20} {:>6} {:>12.2f}   inside kernels\n", "all ops", "", kernels);
  constexpr std::size_t kMostSteps = 20;
  if (!c.steps.empty()) text += fmt::format("\n{:>6} {:>12}  step of the compiled program\n", "runs", "us");
  for (std::size_t i = 0; i < std::min(c.steps.size(), kMostSteps); ++i)
    text += fmt::format("{:>6} {:>12.2f}  {}\n", c.steps[i].runs, c.steps[i].us, c.steps[i].what);
  if (c.steps.size() > kMostSteps) text += fmt::format("{:>6} more\n", c.steps.size() - kMostSteps);
  text += fmt::format(
      "\neager     {:>10.2f} us per run\ncompiled  {:>10.2f} us per run in {} steps, of which recording {:.2f} us\n",
      c.eager_us, c.compiled_us, c.kernels, c.record_us);
  return text + fmt::format("ratio     {:>10.2f} x; the first compiled run took {:.2f} ms\n",
                            c.eager_us / c.compiled_us, c.first_ms);
}

void clear_compile_caches() {
  PlanCache::instance().clear();
  forget_bound_plans();
  clear_kernel_cache();
}

}  // namespace fermata
