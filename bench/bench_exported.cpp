// Exported programs beside compiled functions: the programs of bench_kernels, each run by libfermata_run_math and by
// compile(), in turns.
//
// A row's time is that of the exported program, with what it allocates for the results. The counters `compiled` and
// `ratio` are the least time of the compiled function, in seconds, and the quotient of the least times. Rows have as
// many threads as the engine (FERMATA_NUM_THREADS). A program that cannot be exported says why.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "bench/cases.h"
#include "bench/check.h"
#include "bench/exported.h"
#include "bench/run_benchmarks.h"
#include "runtime/thread_pool.h"

namespace bench {
namespace {

namespace fm = fermata;

template <class F> double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  benchmark::DoNotOptimize(f());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void not_supported(benchmark::State& state, const fm::Error& error) {
  state.SkipWithError(("not supported: " + std::string(error.what())).c_str());
}

void exported(benchmark::State& state, const Case& c) try {
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensors inputs = c.inputs();
  const Exported e({}, c.prepare(), inputs);
  const Views views(inputs);
  auto function = fm::compile(c.prepare());
  const auto replay = [&] { return function(inputs); };
  if (const std::string d = difference(tensors(e.program().run(views.list)), replay()); !d.empty())
    return state.SkipWithError(d.c_str());
  double least = std::numeric_limits<double>::infinity(), compiled_least = least;
  for (auto _ : state) {
    const double time = seconds([&] { return e.program().run(views.list); });
    state.SetIterationTime(time);
    least = std::min(least, time), compiled_least = std::min(compiled_least, seconds(replay));
  }
  state.counters["compiled"] = compiled_least, state.counters["ratio"] = least / compiled_least;
} catch (const fm::UnsupportedError& error) { not_supported(state, error); } catch (const fm::UserError& error) {
  not_supported(state, error);  // a program that keeps state, or reads values
} catch (const std::exception& error) { state.SkipWithError(error.what()); }

void register_all() {
  const std::string suffix = "/exported/threads:" + std::to_string(fm::thread_count());
  for (const Case& c : cases())
    benchmark::RegisterBenchmark((c.name + suffix).c_str(), exported, c)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run_benchmarks(argc, argv, &bench::register_all); }
