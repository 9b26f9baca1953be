// What compiling costs: a program never seen, in a process that has compiled before; one whose kernels are on disk; and
// a size or a number never seen, which must compile nothing.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/programs.h"
#include "dispatch/kernel_cache.h"
#include "runtime/disk_cache.h"
#if FERMATA_WITH_CUDA
#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/executable.h"
#endif

namespace bench {
namespace {

using Program = Tensor (*)(const Tensor&);

void cold(benchmark::State& state, Program program, const Tensor& x) {
  fm::DiskCache::instance().set_directory("");
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::ModeGuard compiled(fm::Mode::compiled);
  Tensor wanted;
  {
    const fm::ModeGuard eager(fm::Mode::eager);
    wanted = program(x);
  }
  if (const std::string d = difference({program(x).sync()}, {wanted}); !d.empty())
    return state.SkipWithError(d.c_str());
  const fm::Stats before = fm::stats();
  for (auto _ : state) {
    state.PauseTiming();
    fm::clear_compile_caches();
    state.ResumeTiming();
    benchmark::DoNotOptimize(program(x).sync());
  }
  const auto kernels = static_cast<double>(fm::stats().kernels_compiled - before.kernels_compiled);
  state.counters["kernels"] = kernels / static_cast<double>(state.iterations());
  if (kernels == 0) state.SkipWithError("nothing was compiled");
}

void cold_chain10(benchmark::State& state) { cold(state, &chain10_math, fm::ones(1000).sync()); }
BENCHMARK(cold_chain10)->Name("cold/chain10")->Unit(benchmark::kMillisecond);
void cold_chain100(benchmark::State& state) {
  cold(
      state, [](const Tensor& x) { return chain100_cheap(x); }, (fm::ones(1000) * 0.3).sync());
}
BENCHMARK(cold_chain100)->Name("cold/chain100")->Unit(benchmark::kMillisecond);
void cold_softmax(benchmark::State& state) {
  cold(
      state, [](const Tensor& x) { return fm::softmax(x, -1); }, fm::randn({16, 100}).sync());
}
BENCHMARK(cold_softmax)->Name("cold/softmax")->Unit(benchmark::kMillisecond);

/// Nothing is known in memory, and the machine code is on disk.
void disk_chain10(benchmark::State& state) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("fermata_bench." + std::to_string(getpid()))).string();
  const std::string before = fm::DiskCache::instance().set_directory(folder);
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = fm::ones(1000).sync();
  fm::clear_compile_caches();
  chain10_math(x).sync();
  const std::uint64_t hits = fm::DiskCache::instance().counts().hits;
  for (auto _ : state) {
    state.PauseTiming();
    fm::clear_compile_caches();
    state.ResumeTiming();
    benchmark::DoNotOptimize(chain10_math(x).sync());
  }
  if (fm::DiskCache::instance().counts().hits - hits < static_cast<std::uint64_t>(state.iterations()))
    state.SkipWithError("the disk was not used");
  fm::DiskCache::instance().set_directory(before);
  std::filesystem::remove_all(folder);
}
BENCHMARK(disk_chain10)->Name("disk/chain10")->Unit(benchmark::kMillisecond);

void set_kernels(benchmark::State& state, std::uint64_t before) {
  const std::uint64_t kernels = fm::stats().kernels_compiled - before;
  state.counters["kernels"] = static_cast<double>(kernels);
  if (kernels != 0) state.SkipWithError("kernels were compiled");
}

void new_size_chain10(benchmark::State& state) {
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::ModeGuard compiled(fm::Mode::compiled);
  chain10_math(fm::ones(7).sync()).sync();
  std::vector<Tensor> inputs;  // each of another size
  for (std::int64_t size = 100; size < 1124; ++size) inputs.push_back(fm::ones(size).sync());
  const std::uint64_t before = fm::stats().kernels_compiled;
  std::size_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(chain10_math(inputs[next++ % inputs.size()]).sync());
  set_kernels(state, before);
}
BENCHMARK(new_size_chain10)->Name("new_size/chain10")->Unit(benchmark::kMicrosecond);

void new_scalar_chain10(benchmark::State& state) {
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::ModeGuard compiled(fm::Mode::compiled);
  const Tensor x = fm::ones(612).sync();  // as long as those of new_size are on average
  const auto program = [&](double number) {
    return fm::sqrt(fm::abs(fm::sigmoid(fm::exp(fm::tanh(x * number + 0.5) * -2) + 0.1) - x));
  };
  program(1.01).sync();
  const std::uint64_t before = fm::stats().kernels_compiled;
  double number = 1;
  for (auto _ : state) benchmark::DoNotOptimize(program(number += 1e-6).sync());
  set_kernels(state, before);
}
BENCHMARK(new_scalar_chain10)->Name("new_scalar/chain10")->Unit(benchmark::kMicrosecond);

#if FERMATA_WITH_CUDA
// Kernels for CUDA need NVRTC and no device.

/// The description of the one kernel that a program becomes.
std::string cuda_source(Program program, const Tensor& x, std::string* name, fm::gpu::CompileEffort* effort = nullptr) {
  static fm::Kernel kernel;
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  const fm::ModeGuard compiled(fm::Mode::compiled);
  fm::clear_compile_caches();
  fm::before_compile = [](const fm::Kernel& k) { kernel = k; };
  program(x).sync();
  fm::before_compile = nullptr;
  const fm::gpu::CudaExecutable executable(kernel);
  if (effort != nullptr) *effort = fm::gpu::effort_for(executable.usual_schedule());
  return executable.source(executable.usual_schedule(), false, 0, name);
}

void nvrtc(benchmark::State& state, Program program, const Tensor& x) {
  std::string failure_reason, name;
  const fm::gpu::CompilerFunctions* const compiler = fm::gpu::nvrtc_library(&failure_reason);
  if (compiler == nullptr) return state.SkipWithError(failure_reason.c_str());
  fm::gpu::CompileEffort effort;
  const std::string body = cuda_source(program, x, &name, &effort);
  for (auto _ : state) benchmark::DoNotOptimize(fm::gpu::compile_source(*compiler, body, "sm_90", nullptr, effort));
}
void nvrtc_chain10(benchmark::State& state) { nvrtc(state, &chain10_math, fm::ones(1000).sync()); }
BENCHMARK(nvrtc_chain10)->Name("cuda_cold/chain10")->Unit(benchmark::kMillisecond);
void nvrtc_softmax(benchmark::State& state) {
  nvrtc(
      state, [](const Tensor& x) { return fm::softmax(x, -1); }, fm::randn({16, 100}).sync());
}
BENCHMARK(nvrtc_softmax)->Name("cuda_cold/softmax")->Unit(benchmark::kMillisecond);

void cuda_disk_chain10(benchmark::State& state) {
  std::string failure_reason, name;
  if (fm::gpu::nvrtc_library(&failure_reason) == nullptr) return state.SkipWithError(failure_reason.c_str());
  const std::string body = cuda_source(&chain10_math, fm::ones(1000).sync(), &name);
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("fermata_bench." + std::to_string(getpid()))).string();
  const std::string before = fm::DiskCache::instance().set_directory(folder);
  fm::gpu::code_of(name, body, "sm_90");
  const std::uint64_t hits = fm::DiskCache::instance().counts().hits;
  for (auto _ : state) benchmark::DoNotOptimize(fm::gpu::code_of(name, body, "sm_90"));
  if (fm::DiskCache::instance().counts().hits - hits < static_cast<std::uint64_t>(state.iterations()))
    state.SkipWithError("the disk was not used");
  fm::DiskCache::instance().set_directory(before);
  std::filesystem::remove_all(folder);
}
BENCHMARK(cuda_disk_chain10)->Name("cuda_disk/chain10")->Unit(benchmark::kMillisecond);
#endif

}  // namespace
}  // namespace bench

BENCHMARK_MAIN();
