// Introspection: the recorded program, its compiled plan and the reasons for it, costs, and counters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

/// Returns the pending program that computes `t`, as text that `fermata run` and `fermata opt` read back. For a
/// materialized tensor, it is just that input.
std::string dump_ir(const Tensor& t, Location where = Location::current());
std::string dump_ir(const std::vector<Tensor>& tensors, Location where = Location::current());

/// Returns the same program with its fusion groups, the kernel chosen for each node and the rejected candidates, the
/// reasons why calls were not fused, and the time of each pass. Computes nothing.
std::string explain(const Tensor& t, Location where = Location::current());
std::string explain(const std::vector<Tensor>& tensors, Location where = Location::current());

/// Counters since process start.
struct Stats {
  std::uint64_t records = 0;  // calls recorded by this thread
  std::uint64_t syncs = 0;    // times pending values were computed on demand
  std::vector<std::pair<std::string, std::uint64_t>> sync_reasons;
  std::uint64_t plan_hits = 0, plan_misses = 0, plans_compiled = 0;
  std::uint64_t call_plays = 0;  // graphs interpreted op by op because they had no plan (yet)
  std::uint64_t replays = 0;     // calls of compiled functions that recorded nothing
  std::uint64_t vmap_loops = 0;  // calls that vmap ran in a loop over the batch because the op has no batching rule
  std::uint64_t kernels_compiled = 0, kernel_hits = 0, compile_failures = 0;
  double compile_ms = 0;
  std::uint64_t live_bytes = 0, cached_bytes = 0, peak_bytes = 0;
  std::uint64_t packed_bytes = 0;  // part of live_bytes: prepacked weights (FERMATA_PACKED_LIMIT)
  std::string last_plan_miss;      // the first difference between the last new structure and the nearest cached one
};
Stats stats();
std::string to_string(const Stats& stats);

/// The cost of a function in both modes.
struct ModeComparison {
  struct Row {
    std::string op;
    std::uint64_t calls = 0;  // per run
    double eager_us = 0;      // per run, total of all calls
  };
  struct Step {
    std::string what;  // the kernel or call, with its sizes
    std::uint64_t runs = 0;
    double us = 0;  // per run, total of all runs
  };
  std::vector<Row> rows;      // eager, by op, most expensive first
  std::vector<Step> steps;    // compiled, most expensive first; CPU plans only
  double eager_us = 0;        // one run
  double compiled_us = 0;     // one run, recorded and run from cached plans
  double record_us = 0;       // the part of compiled_us spent recording
  double first_ms = 0;        // the first compiled run, including compilation
  std::uint64_t kernels = 0;  // kernel and call steps per compiled run
};
std::string to_string(const ModeComparison& comparison);

namespace detail {

using ErasedFunction = std::vector<Tensor> (*)(void* context);
ModeComparison compare_modes_erased(ErasedFunction function, void* context);

}  // namespace detail

/// Runs `fn(args...)` in both modes until the timings settle (some tenths of a second). Returns the cost of each op in
/// eager mode and of each step of the fused plan. fn returns a tensor or a vector of tensors, and must be repeatable.
template <class F, class... A> ModeComparison compare_modes(F&& fn, const A&... args) {
  auto run = [&]() -> std::vector<Tensor> {
    if constexpr (std::is_same_v<decltype(fn(args...)), Tensor>)
      return {fn(args...)};
    else
      return fn(args...);
  };
  return detail::compare_modes_erased([](void* context) { return (*static_cast<decltype(run)*>(context))(); }, &run);
}

// Compiler settings for tests and benchmarks.

enum class CompilePolicy : std::uint8_t {
  second_sight,  // small work is interpreted when its structure is new, and compiled when it recurs
  immediate,     // everything is compiled when first seen
  never,         // nothing is compiled
  background,    // the default: small work is interpreted, and compiled on another thread if it recurs
};
/// Sets the policy and returns the previous one. FERMATA_COMPILE=background|second_sight|immediate|never sets the
/// initial one.
CompilePolicy set_compile_policy(CompilePolicy policy);
/// Waits until no background compilation is in progress.
void wait_for_compiling();
/// Sets the maximum depth of pending calls; deeper chains are computed immediately. Returns the previous limit. The
/// default is 512, or FERMATA_PENDING_LIMIT.
std::uint32_t set_pending_limit(std::uint32_t depth);
/// Sets whether compiled code contracts multiply and add into fma. Off by default, so that compiled results have the
/// same bits as eager ones. FERMATA_FMA=1 enables it initially. Returns the previous setting.
bool set_form_fma(bool on);
/// Sets whether a kernel of products or convolutions is replaced if measurements show that another one is faster; the
/// new one may round in another way. Off: predictions alone select kernels, so that values have the same bits in every
/// run on this machine. On by default, unless FERMATA_CALIBRATE=0. Returns the previous setting.
bool set_replace_kernels(bool on);
/// Clears all cached plans and kernels.
void clear_compile_caches();

}  // namespace fermata
