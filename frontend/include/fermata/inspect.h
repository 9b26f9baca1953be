// Seeing inside: the recorded program, what the compiler makes of it and why, what it costs, and what has happened so
// far.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

/// The pending program that would compute `t`, as text that `fermata run` and `fermata opt` read back; for a tensor
/// that has its value, just that input.
std::string dump_ir(const Tensor& t, Location where = Location::current());
std::string dump_ir(const std::vector<Tensor>& tensors, Location where = Location::current());

/// The same program, what the compiler makes of it (groups, kernels, the kernel chosen for each node, the candidates it
/// beat), what was not fused and why, and how long each pass took. Computes nothing.
std::string explain(const Tensor& t, Location where = Location::current());
std::string explain(const std::vector<Tensor>& tensors, Location where = Location::current());

/// Counters since the process began.
struct Stats {
  std::uint64_t records = 0;  // calls recorded by this thread
  std::uint64_t syncs = 0;    // times a value was computed because it was wanted
  std::vector<std::pair<std::string, std::uint64_t>> sync_reasons;
  std::uint64_t plan_hits = 0, plan_misses = 0, plans_compiled = 0;
  std::uint64_t call_plays = 0;  // graphs played op by op, as they had no plan (yet)
  std::uint64_t replays = 0;     // calls of compiled functions that recorded nothing
  std::uint64_t vmap_loops = 0;  // calls that vmap made once for every element of a batch, for want of a rule
  std::uint64_t kernels_compiled = 0, kernel_hits = 0, compile_failures = 0;
  double compile_ms = 0;
  std::uint64_t live_bytes = 0, cached_bytes = 0, peak_bytes = 0;
  std::uint64_t packed_bytes =
      0;                       // of those live: constants as products and convolutions read them (FERMATA_PACKED_LIMIT)
  std::string last_plan_miss;  // the first difference between the last new structure and the nearest known one
};
Stats stats();
std::string to_string(const Stats& stats);

/// What one function costs in both modes.
struct ModeComparison {
  struct Row {
    std::string op;
    std::uint64_t calls = 0;  // per run
    double eager_us = 0;      // per run, all calls together
  };
  struct Step {
    std::string what;  // the kernel or call, and the sizes it works on
    std::uint64_t runs = 0;
    double us = 0;  // per run, all of them together
  };
  std::vector<Row> rows;      // eager, by op, dearest first
  std::vector<Step> steps;    // compiled, dearest first; of the CPU's plans
  double eager_us = 0;        // one run
  double compiled_us = 0;     // one run, recorded and played from cached plans
  double record_us = 0;       // of which recording
  double first_ms = 0;        // the first compiled run, with compiling
  std::uint64_t kernels = 0;  // kernel and call steps per compiled run
};
std::string to_string(const ModeComparison& comparison);

namespace detail {

using ErasedFunction = std::vector<Tensor> (*)(void* context);
ModeComparison compare_modes_erased(ErasedFunction function, void* context);

}  // namespace detail

/// Runs `fn(args...)` in both modes until the figures settle (some tenths of a second) and says what every op costs
/// eager and what the fused plan costs. fn returns a tensor or a vector of tensors, and must be repeatable.
template <class F, class... A> ModeComparison compare_modes(F&& fn, const A&... args) {
  auto run = [&]() -> std::vector<Tensor> {
    if constexpr (std::is_same_v<decltype(fn(args...)), Tensor>)
      return {fn(args...)};
    else
      return fn(args...);
  };
  return detail::compare_modes_erased([](void* context) { return (*static_cast<decltype(run)*>(context))(); }, &run);
}

// Controls of the compiler that tests and benchmarks need.

enum class CompilePolicy : std::uint8_t {
  second_sight,  // small work is played op by op when its structure is new, and compiled when it comes again
  immediate,     // everything is compiled at first sight
  never,         // nothing is compiled
  background,    // small work is played op by op, and compiled by another thread meanwhile if it keeps coming: the
                 // default
};
/// Returns the policy before. FERMATA_COMPILE=background|second_sight|immediate|never sets it at start.
CompilePolicy set_compile_policy(CompilePolicy policy);
/// Returns when nothing is being compiled in the background.
void wait_for_compiling();
/// The longest chain of pending calls; longer ones are computed on the spot. Default 512, or FERMATA_PENDING_LIMIT.
std::uint32_t set_pending_limit(std::uint32_t depth);
/// Whether products and sums are fused into one rounding where compiled: off by default, so that compiled results have
/// the bits of eager ones. FERMATA_FMA=1 turns it on at start.
bool set_form_fma(bool on);
/// Forgets all plans and kernels.
void clear_compile_caches();

}  // namespace fermata
