// The speed of kernels: every program eager and compiled, on one thread and on two, compared with what the machine can
// do.
//
// A row's time is wall time of one run: recording, playing, and freeing the results. Inputs are there before. A
// compiled row is only timed if it gives what eager mode gives.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "bench/cases.h"
#include "bench/check.h"
#include "bench/run_benchmarks.h"
#include "runtime/allocator.h"
#include "runtime/machine_limits.h"
#include "runtime/thread_pool.h"

namespace bench {

namespace fm = fermata;
using fm::machine::Copy, fm::machine::copies, fm::machine::copy_on_threads, fm::machine::Peak, fm::machine::peaks;

namespace {

constexpr std::size_t kCopyBytes = std::size_t{64} << 20;

void kernel(benchmark::State& state, const Case& c, fm::Mode mode, int threads) {
  fm::set_thread_count(threads);
  const fm::ModeGuard guard(mode);
  if (mode == fm::Mode::compiled) {
    Tensors wanted;
    {
      const fm::ModeGuard eager(fm::Mode::eager);
      wanted = run(c.prepare(), c.inputs());
    }
    if (const std::string d = difference(run(c.prepare(), c.inputs()), wanted); !d.empty())
      return state.SkipWithError(d.c_str());
  }
  const Program program = c.prepare();
  const Tensors inputs = c.inputs();
  run(program, inputs);
  for (auto _ : state) run(program, inputs);
}

/// Two ranges of warm pages.
struct CopyRanges {
  fm::Allocation from = fm::allocate_bytes(kCopyBytes), to = fm::allocate_bytes(kCopyBytes);
  CopyRanges() { std::memset(from.data, 1, kCopyBytes), std::memset(to.data, 2, kCopyBytes); }
  ~CopyRanges() { fm::release_bytes(from), fm::release_bytes(to); }
};

void copy_64MiB(benchmark::State& state, int threads) {
  using Clock = std::chrono::steady_clock;
  fm::set_thread_count(threads);
  const CopyRanges ranges;
  const Copy* best = nullptr;
  auto least = Clock::duration::max();
  for (int round = 0; round < 10; ++round)
    for (const Copy& copy : copies()) {
      const auto start = Clock::now();
      copy_on_threads(copy, ranges.to.data, ranges.from.data, kCopyBytes);
      if (const auto time = Clock::now() - start; time < least) least = time, best = &copy;
    }
  state.SetLabel(std::string(best->name));
  for (auto _ : state) copy_on_threads(*best, ranges.to.data, ranges.from.data, kCopyBytes);
  if (std::memcmp(ranges.from.data, ranges.to.data, kCopyBytes) != 0) state.SkipWithError("the copy differs");
}

void peak(benchmark::State& state, const Peak& of, int threads) {
  constexpr std::size_t kRounds = 1'000'000;
  constexpr double kNanoseconds = 3e6;  // more than the pool wants for splitting a loop
  fm::set_thread_count(threads);
  state.SetLabel(std::string(of.instructions));
  double operations = 0;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    std::atomic<double> done{0};
    fm::parallel_for(0, threads, kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) done.fetch_add(of.run(kRounds));
    });
    operations += done;
  }
  state.counters["flops"] =
      operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void register_all() {
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(("copy_64MiB" + suffix).c_str(), copy_64MiB, threads)->Unit(benchmark::kMillisecond);
    for (const Peak& p : peaks())
      benchmark::RegisterBenchmark((std::string(p.name) + suffix).c_str(), peak, p, threads)
          ->Unit(benchmark::kMillisecond);
  }
  for (const Case& c : cases())
    for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled})
      for (const int threads : {1, 2}) {
        const std::string name =
            c.name + (mode == fm::Mode::eager ? "/eager" : "/compiled") + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), kernel, c, mode, threads)->Unit(benchmark::kMillisecond);
      }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv, &bench::register_all); }
