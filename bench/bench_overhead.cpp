// What a call costs before any arithmetic: dispatching, running, recording, playing from the cache, replaying.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <atomic>
#include <thread>

#include "bench/check.h"
#include "bench/programs.h"
#include "dispatch/operator.h"

namespace bench {
namespace {

using Noop = fm::Dispatcher<fm::UnaryCall>;

Tensor noop(const fm::Call&, const fm::Operand&) { return {}; }
Tensor pass_on(const fm::Call& call, const fm::Operand& x) {
  return Noop::redispatch(call, fm::Functionality::autocast, x);
}

/// An operator of our own: nothing in the backend cell, a wrapper that passes the call on in another.
const fm::OperatorEntry& noop_operator() {
  static fm::OperatorEntry* const entry = [] {
    auto* e = new fm::OperatorEntry;
    e->name = "noop";
    e->cells[fm::cell_of(fm::Functionality::dense, fm::BackendKey::cpu)] = reinterpret_cast<fm::ErasedKernel>(&noop);
    e->cells[fm::cell_of(fm::Functionality::autocast) + 1] = reinterpret_cast<fm::ErasedKernel>(&pass_on);
    return e;
  }();
  return *entry;
}

void dispatch_noop(benchmark::State& state) {
  const fm::ModeGuard eager(fm::Mode::eager);
  const Tensor x = fm::ones(1);
  const fm::OperatorEntry& entry = noop_operator();
  const auto where = fm::Location::current();
  for (auto _ : state) benchmark::DoNotOptimize(Noop::call(entry, where, x));
}
BENCHMARK(dispatch_noop)->Name("dispatch/noop");

void dispatch_redispatch(benchmark::State& state) {
  const fm::ModeGuard eager(fm::Mode::eager);
  const Tensor x = fm::ones(1);
  const fm::KeyGuard wrapped(fm::Functionality::autocast, {});
  const fm::OperatorEntry& entry = noop_operator();
  const auto where = fm::Location::current();
  for (auto _ : state) benchmark::DoNotOptimize(Noop::call(entry, where, x));
}
BENCHMARK(dispatch_redispatch)->Name("dispatch/redispatch");

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
  for (int i = 0; i < 3; ++i) chain10_cheap(x).sync();  // compiled when it comes again
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

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
