// What a call costs before any arithmetic: dispatching, running, recording, playing from the cache, replaying.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <atomic>
#include <optional>
#include <thread>

#include "bench/check.h"
#include "bench/programs.h"
#include "fermata/library.h"
#include "fermata/profile.h"
#include "runtime/thread_pool.h"

namespace bench {
namespace {

// Operators of our own: kernels that do nothing, typed and boxed, and a wrapper that passes the call on.
FERMATA_LIBRARY(bench, m) {
  m.def("pure noop(Tensor x) -> Tensor");
  m.def("pure boxed_noop(Tensor x) -> Tensor");
}
FERMATA_LIBRARY_IMPL(bench, CPU, m) {
  m.impl("noop", [](const Tensor&) { return Tensor(); });
  m.impl_boxed("boxed_noop", [](const fm::Call&, fm::Stack& stack) { stack.assign(1, Tensor()); });
}
FERMATA_LIBRARY_IMPL(bench, Autocast, m) {
  m.impl("noop", [](const fm::Call& call, const Tensor& x) {
    return fm::Dispatcher<Tensor(const Tensor&)>::redispatch(call, fm::Functionality::autocast, x);
  });
}

void dispatch(benchmark::State& state, const char* name, fm::DispatchKeySet included) {
  const fm::ModeGuard eager(fm::Mode::eager);
  const Tensor x = fm::ones(1);
  const auto op = fm::OperatorHandle::find(name).typed<Tensor(const Tensor&)>();
  const fm::KeyGuard wrapped(included, {});
  for (auto _ : state) benchmark::DoNotOptimize(op(x));
}
BENCHMARK_CAPTURE(dispatch, noop, "bench::noop", fm::DispatchKeySet())->Name("dispatch/noop");
BENCHMARK_CAPTURE(dispatch, redispatch, "bench::noop", fm::Functionality::autocast)->Name("dispatch/redispatch");
BENCHMARK_CAPTURE(dispatch, boxed, "bench::boxed_noop", fm::DispatchKeySet())->Name("dispatch/boxed");

void eager_add_1(benchmark::State& state) {
  const fm::ModeGuard eager(fm::Mode::eager);
  const Tensor x = fm::ones(1), y = fm::ones(1);
  if ((x + y).item<float>() != 2) return state.SkipWithError("1 + 1 is not 2");
  for (auto _ : state) benchmark::DoNotOptimize(x + y);
}
BENCHMARK(eager_add_1)->Name("eager/add_1");

/// A hundred calls, and their destruction.
void record_chain100_once(const Tensor& x) {
  Tensor t = x + x;
  for (int i = 1; i < 100; ++i) t = t + x;
  benchmark::DoNotOptimize(t);
}

void record_chain100(benchmark::State& state) {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = fm::ones(8).sync();
  while (state.KeepRunningBatch(100)) record_chain100_once(x);
}
BENCHMARK(record_chain100)->Name("record/chain100");

/// The time of one thread while another records too.
void record_chain100_2threads(benchmark::State& state) {
  std::atomic<bool> started{false}, stop{false};
  std::thread other([&] {
    const Tensor x = fm::ones(8).sync();
    while (!stop.load(std::memory_order_relaxed)) {
      record_chain100_once(x);
      started.store(true, std::memory_order_relaxed);
    }
  });
  while (!started.load()) std::this_thread::yield();
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = fm::ones(8).sync();
  while (state.KeepRunningBatch(100)) record_chain100_once(x);
  stop = true;
  other.join();
}
BENCHMARK(record_chain100_2threads)->Name("record/chain100_2threads");

Tensor small_input() { return fm::tensor({0.1f, -0.2f, 0.3f, 1.5f, -2.5f, 0.0f, 4.0f, -0.7f}).sync(); }

std::string differs_from_eager(const Tensor& got, const Tensor& x) {
  const fm::ModeGuard eager(fm::Mode::eager);
  return difference({got}, {chain10_cheap(x)});
}

void sync_cached_chain10(benchmark::State& state) {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = small_input();
  const fm::CompilePolicy policy = fm::set_compile_policy(fm::CompilePolicy::immediate);
  chain10_cheap(x).sync();
  fm::set_compile_policy(policy);
  for (int i = 0; i < 100; ++i)
    chain10_cheap(x).sync();  // the default policy has seen by then that the plan is the shorter way
  if (const std::string d = differs_from_eager(chain10_cheap(x).sync(), x); !d.empty())
    return state.SkipWithError(d.c_str());
  const fm::Stats before = fm::stats();
  for (auto _ : state) benchmark::DoNotOptimize(chain10_cheap(x).sync());
  const fm::Stats after = fm::stats();
  if (after.plan_misses != before.plan_misses || after.call_plays != before.call_plays)
    state.SkipWithError("not played from the plan cache");
}
BENCHMARK(sync_cached_chain10)->Name("sync_cached/chain10");

void replay_chain10(benchmark::State& state) {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = small_input();
  auto replayed = fm::compile([](const Tensor& t) { return chain10_cheap(t); });
  if (const std::string d = differs_from_eager(replayed(x), x); !d.empty()) return state.SkipWithError(d.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(replayed(x));
  if (replayed.captures() != 1) state.SkipWithError("captured more than once");
}
BENCHMARK(replay_chain10)->Name("replay/chain10");

/// A step of about 20 us, and the same while it is profiled: it may take 3% longer.
void step_20us(benchmark::State& state, bool is_profiled) {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const fm::CompilePolicy policy = fm::set_compile_policy(fm::CompilePolicy::immediate);
  const Tensor x = fm::full({200'000}, 0.5f).sync();
  fm::set_thread_count(1);
  for (int i = 0; i < 10; ++i) chain10_cheap(x).sync();
  std::optional<fm::Profile> profile;
  if (is_profiled) profile.emplace();
  for (auto _ : state) benchmark::DoNotOptimize(chain10_cheap(x).sync());
  fm::set_compile_policy(policy);
}
BENCHMARK_CAPTURE(step_20us, off, false)->Name("step_20us");
BENCHMARK_CAPTURE(step_20us, on, true)->Name("step_20us/profiled");

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
