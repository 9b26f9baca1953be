// Random programs (tests/fuzz/random_program.h) on CUDA, in both modes, against the CPU; every kernel by NVRTC as well.
//
// Programs are started in groups, so that their kernels are compiled together. FERMATA_FUZZ_COUNT and FERMATA_SEED
// choose other ones; one that fails is program 0 of the seed that is printed.
#include <gtest/gtest.h>

#include "codegen_cuda/runtime/device.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"
#include "tests/fuzz/random_program.h"

namespace fermata {
namespace {

using testing::AxisSizes;
using testing::Certainty;
using testing::Execution;
using testing::Program;

struct Outcome {
  std::vector<Tensor> values;
  std::vector<Certainty> certainties;
  std::string errors;
};

/// What a program keeps; started, and not waited for.
Outcome start(const Program& program, const AxisSizes& sizes, Device device, Mode mode) {
  const ModeGuard guard(mode);
  Execution execution(sizes, device);
  execution.run(program);
  Outcome out;
  for (const std::uint32_t v : program.kept)
    if (execution.values[v].defined())
      out.values.push_back(execution.values[v].detach()), out.certainties.push_back(execution.certainty(v));
  execution.values.clear();
  flush(out.values);
  out.errors = std::move(execution.errors);
  return out;
}

/// As in tests/fuzz: sums whose order may differ are close.
std::string difference(const Tensor& got, const Tensor& wanted, Certainty certainty) {
  if (certainty == Certainty::exact || !is_floating(wanted.dtype()))
    return certainty == Certainty::unknown ? "" : test::difference(got, wanted);
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape()) return "types differ";
  if (certainty == Certainty::unknown) return {};
  const double allowed = wanted.dtype() == DType::f64 ? 1e-11 : wanted.dtype() == DType::f32 ? 1e-3 : 5e-2;
  const std::vector<double> a = got.to_vector<double>(), b = wanted.to_vector<double>();
  double largest = 1;
  for (const double x : b)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i]) && !(std::isnan(a[i]) && std::isnan(b[i])) && !(std::abs(a[i] - b[i]) <= allowed * largest))
      return fmt::format("element {}: {} and {}", i, a[i], b[i]);
  return {};
}

/// Errors without the name of the device.
std::string without_device(std::string text) {
  for (const std::string_view name : {"CUDA", "CPU"})
    for (std::size_t at = 0; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), "?");
  return text;
}

TEST(CudaRandomGraphs, AgreeWithTheCpu) {
  std::string failure_reason;
  if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  const test::CompiledSources sources;
  constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 70, 0};
  constexpr std::uint64_t kTogether = 40;
  const std::uint64_t seed = test::seed_or(20250101), count = static_cast<std::uint64_t>(test::fuzz_count_or(40));
  std::size_t exact = 0;
  for (std::uint64_t first = 0; first < count; first += kTogether) {
    std::vector<Outcome> eager, compiled, wanted;
    const std::uint64_t end = std::min(first + kTogether, count);
    for (std::uint64_t i = first; i < end; ++i) {
      std::mt19937_64 random(seed + i);
      SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed + i) + " FERMATA_FUZZ_COUNT=1");
      AxisSizes sizes;
      for (std::int64_t& size : sizes) size = kSizes[random() % (std::size(kSizes) - (random() % 4 == 0 ? 0 : 1))];
      const Program program = testing::random_program(random, 4 + random() % 20, sizes);
      try {
        wanted.push_back(start(program, sizes, BackendKey::cpu, Mode::eager));
        eager.push_back(start(program, sizes, cuda(), Mode::eager));
        compiled.push_back(start(program, sizes, cuda(), Mode::compiled));
      } catch (const Error& error) { FAIL() << error.what(); }
    }
    for (std::uint64_t i = first; i < end; ++i) {
      SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed + i) + " FERMATA_FUZZ_COUNT=1");
      const Outcome& cpu = wanted[i - first];
      for (const Outcome* const on_device : {&eager[i - first], &compiled[i - first]}) {
        SCOPED_TRACE(on_device == &eager[i - first] ? "eager" : "compiled");
        ASSERT_EQ(without_device(on_device->errors), without_device(cpu.errors));
        ASSERT_EQ(on_device->values.size(), cpu.values.size());
        for (std::size_t k = 0; k < cpu.values.size(); ++k) {
          ASSERT_EQ(device(on_device->values[k]), cuda());
          ASSERT_EQ(difference(on_device->values[k], cpu.values[k], on_device->certainties[k]), "")
              << "kept value " << k;
          exact += on_device->certainties[k] == Certainty::exact ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(exact + 20, count) << "too little was compared";
}

}  // namespace
}  // namespace fermata
