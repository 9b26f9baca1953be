// See nvrtc_check.h.
#include "tests/codegen_cuda/nvrtc_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>
#include <vector>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/runtime/kernels.h"
#include "ir/error.h"

namespace fermata::test {
namespace {

/// NVRTC's first complaint, or nothing.
std::string compile_kept_sources() {
  static std::set<std::string> done;
  std::string failure_reason;
  const gpu::CompilerFunctions* const nvrtc = gpu::nvrtc_library(&failure_reason);
  if (nvrtc == nullptr) {
    std::printf("NVRTC was not found, so nothing was compiled by it: %s\n", failure_reason.c_str());
    return {};
  }
  constexpr std::size_t kTogether = 25;
  std::vector<std::string> programs;
  std::size_t in_last = kTogether, kernels = 0;
  for (const gpu::KernelSource& source : gpu::kept_sources()) {
    if (!done.insert(source.name).second) continue;
    if (in_last == kTogether) programs.emplace_back(), in_last = 0;
    programs.back() += source.body, ++in_last, ++kernels;
  }
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next{0};
  std::vector<std::string> complaints(programs.size() * 2);
  const auto work = [&] {
    for (std::size_t i = next++; i < complaints.size(); i = next++) try {
        gpu::compile_source(*nvrtc, programs[i / 2], i % 2 == 0 ? "sm_80" : "sm_90", nullptr,
                            gpu::CompileEffort::quick);
      } catch (const Error& error) { complaints[i] = error.what(); }
  };
  std::thread other(work);
  work();
  other.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("NVRTC compiled %zu kernels for sm_80 and sm_90 in %.1f s\n", kernels, taken.count());
  const auto first = std::ranges::find_if(complaints, [](const std::string& c) { return !c.empty(); });
  return first == complaints.end() ? std::string() : *first;
}

}  // namespace

CompiledSources::CompiledSources() { gpu::keep_sources(true); }
CompiledSources::~CompiledSources() {
  gpu::keep_sources(false);
  EXPECT_EQ(compile_kept_sources(), "");
}

}  // namespace fermata::test
