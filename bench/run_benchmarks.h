// The main function of a binary whose rows are registered by a function.
#pragma once

#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

namespace bench {

/// Structures are compiled at once, so that no row times another program than it names. Gives the exit status.
inline int run_benchmarks(int argc, char** argv, void (*register_all)()) {
  fermata::set_compile_policy(fermata::CompilePolicy::immediate);
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace bench
