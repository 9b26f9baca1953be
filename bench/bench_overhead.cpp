// What a call costs before any arithmetic: dispatching, running, recording, playing from the cache, replaying.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "bench/check.h"
#include "bench/programs.h"
#include "fermata/library.h"
#include "fermata/profile.h"
#include "runtime/thread_pool.h"

#ifdef FERMATA_WITH_RUN
#include "bench/exported.h"
#endif

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

/// Threads of a program that compute values of their own, side by side: the time of all for one step. What they write
/// together, or wait for, shows as a time that does not fall with the number of processors, or rises beyond it.
void users(benchmark::State& state, fm::Mode mode, bool is_replayed) {
  static auto replayed = fm::compile([](const Tensor& t) { return fm::exp(t * 0.5 + 1) - t; });
  const fm::ModeGuard of_thread(mode);
  const Tensor x = fm::ones({256}).sync(), w = fm::ones({16, 16}).sync();
  const auto step = [&] {
    if (is_replayed) return replayed(x);
    (fm::exp(x * 0.5 + 1) - x).sync();
    return fm::matmul(w, w).sync();
  };
  for (int i = 0; i < 3000; ++i) step();
  for (auto _ : state) benchmark::DoNotOptimize(step());
}
#define FERMATA_USERS(name, ...) \
  BENCHMARK_CAPTURE(users, name, __VA_ARGS__)->ThreadRange(1, 16)->UseRealTime()->Name("users/" #name)
FERMATA_USERS(eager, fm::Mode::eager, false);
FERMATA_USERS(sync, fm::Mode::compiled, false);
FERMATA_USERS(replay, fm::Mode::compiled, true);

/// A step of a decoder of width 64 with a cache of 128 keys and values.
std::vector<Tensor> decode(const std::vector<Tensor>& x) {
  const Tensor &token = x[0], &keys = x[1], &values = x[2], &weights = x[3], &out = x[4];
  const Tensor projected = fm::matmul(fm::rms_norm(token), weights);
  const auto heads = [&](std::int64_t part) {
    return fm::reshape(projected.slice(-1, 64 * part, 64 * (part + 1)), {4, 1, 16});
  };
  const Tensor all_keys = fm::concat({keys, heads(1)}, 1), all_values = fm::concat({values, heads(2)}, 1);
  const Tensor scores = fm::softmax(fm::matmul(heads(0), fm::transpose(all_keys)) * 0.25, -1);
  return {token + fm::matmul(fm::reshape(fm::matmul(scores, all_values), {1, 64}), out), all_keys, all_values};
}
std::vector<Tensor> decode_inputs() {
  fm::manual_seed(1);
  const std::vector<Tensor> x{fm::randn({1, 64}), fm::randn({4, 128, 16}), fm::randn({4, 128, 16}),
                              fm::randn({64, 192}) / 8, fm::randn({64, 64}) / 8};
  fm::sync(x);
  return x;
}

void replay_decode(benchmark::State& state) {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const std::vector<Tensor> x = decode_inputs();
  auto replayed = fm::compile(&decode);
  for (int i = 0; i < 100; ++i) benchmark::DoNotOptimize(replayed(x));
  for (auto _ : state) benchmark::DoNotOptimize(replayed(x));
}
BENCHMARK(replay_decode)->Name("replay/decode");

#ifdef FERMATA_WITH_RUN

void exported_chain10(benchmark::State& state) try {
  const Tensor x = small_input();
  const Exported e(
      {}, [](const Tensor& t) { return chain10_cheap(t); }, x);
  const Views inputs({x});
  if (const std::string d = difference(tensors(e.program().run(inputs.list)), {chain10_cheap(x)}); !d.empty())
    return state.SkipWithError(d.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(e.program().run(inputs.list));
} catch (const std::exception& error) { state.SkipWithError(error.what()); }
BENCHMARK(exported_chain10)->Name("exported/chain10");

Exported exported_decoder(const std::vector<Tensor>& x) {
  return Exported({.dynamic = {{1, 1, "past"}, {2, 1, "past"}}}, &decode, x);
}

void exported_decode(benchmark::State& state) try {
  const std::vector<Tensor> x = decode_inputs();
  const Exported e = exported_decoder(x);
  const Views inputs(x);
  if (const std::string d = difference(tensors(e.program().run(inputs.list)), decode(x)); !d.empty())
    return state.SkipWithError(d.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(e.program().run(inputs.list));
} catch (const std::exception& error) { state.SkipWithError(error.what()); }
BENCHMARK(exported_decode)->Name("exported/decode");

/// The cache grows by one with every run, up to 128, and starts over.
void exported_growing_cache(benchmark::State& state) try {
  const std::vector<Tensor> x = decode_inputs();
  const Exported e = exported_decoder(x);
  Views inputs(x);
  std::int64_t past = 64;
  for (auto _ : state) {
    past = past == 128 ? 64 : past + 1;
    inputs.list[1].sizes[1] = inputs.list[2].sizes[1] = past;
    benchmark::DoNotOptimize(e.program().run(inputs.list));
  }
} catch (const std::exception& error) { state.SkipWithError(error.what()); }
BENCHMARK(exported_growing_cache)->Name("exported/growing_cache");

/// Loading a file that is in memory, and the first run with it.
void exported_load(benchmark::State& state, bool runs) try {
  const std::vector<Tensor> x = decode_inputs();
  const Exported e = exported_decoder(x);
  const Views inputs(x);
  for (auto _ : state) {
    const fm::run::Program program(e.path());
    if (runs) benchmark::DoNotOptimize(program.run(inputs.list));
  }
} catch (const std::exception& error) { state.SkipWithError(error.what()); }
BENCHMARK_CAPTURE(exported_load, alone, false)->Name("exported/load");
BENCHMARK_CAPTURE(exported_load, runs, true)->Name("exported/first_result");

#endif

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
