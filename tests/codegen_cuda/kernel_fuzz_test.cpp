// Random kernels through the CUDA emitter against the interpreter, bit for bit; every source by NVRTC as well.
// FERMATA_SEED and FERMATA_FUZZ_COUNT choose other ones.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codegen_cpu/kernel_generator.h"
#include "tests/codegen_cuda/device_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

using test::DeviceCase;
using test::KernelCase;
using test::KernelShape;
using test::Random;

class CudaFuzz : public testing::TestWithParam<KernelShape> {};

struct Prepared {
  std::uint64_t seed;
  std::unique_ptr<gpu::CudaExecutable> executable;
  Kernel kernel;
  std::vector<std::vector<std::int64_t>> sizes;
};

TEST_P(CudaFuzz, AgreesWithTheInterpreter) {
  std::string failure_reason;
  if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  const test::CompiledSources sources;
  const std::uint64_t first = test::seed_or(1);
  std::vector<Prepared> all;
  for (int i = 0; i < test::fuzz_count_or(12); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    Random random(seed * 3 + static_cast<std::uint64_t>(GetParam()));
    test::KernelGenerator generator(random, GetParam());
    Prepared p{seed, nullptr, generator.kernel(), {}};
    for (int repetition = 0; repetition < 3; ++repetition) p.sizes.push_back(generator.sizes());
    p.executable = std::make_unique<gpu::CudaExecutable>(p.kernel);
    p.executable->prepare_all();  // so that they are compiled together
    all.push_back(std::move(p));
  }
  unsigned idle = 0, busy = 0;
  for (const Prepared& p : all) {
    Random random(p.seed * 7 + 1);
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(p.seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(p.kernel));
    for (const auto& sizes : p.sizes) {
      const KernelCase original(p.kernel, sizes, random);
      SCOPED_TRACE("sizes " + to_string(std::span(original.sizes())));
      KernelCase expected = original, got = original;
      interpret(p.kernel, expected.launch());
      ++(original.difference(expected).empty() ? idle : busy);
      DeviceCase on_device(got);
      p.executable->launch(on_device.launch());
      ASSERT_NO_THROW(on_device.fetch());
      ASSERT_EQ(expected.difference(got), "") << p.executable->source(p.executable->usual_schedule(), false);
    }
  }
  EXPECT_TRUE(busy > 2 * idle || busy + idle < 30) << busy << " busy runs, " << idle << " idle ones";
}

/// A run with an axis of one element whose strides are so large that offsets need 64 bits; they mean nothing, so
/// results are the same.
struct WideRun {
  const Prepared& prepared;
  KernelCase expected, got;
  std::unique_ptr<DeviceCase> on_device;
  std::vector<std::int64_t> strides;

  WideRun(const Prepared& p, const std::vector<std::int64_t>& sizes, Random& random)
      : prepared(p), expected(p.kernel, sizes, random), got(expected) {}
  void start() {
    on_device = std::make_unique<DeviceCase>(got);
    KernelLaunch launch = on_device->launch();
    const unsigned rank = prepared.kernel.rank;
    strides.assign(launch.strides, launch.strides + prepared.kernel.accesses.size() * rank);
    for (std::size_t a = 0; a < prepared.kernel.accesses.size(); ++a)
      if ((prepared.kernel.accesses[a].axes & 1u) != 0) strides[a * rank] = std::int64_t{1} << 33;
    launch.strides = strides.data();
    prepared.executable->launch(launch);
  }
};

TEST_P(CudaFuzz, OffsetsOf64BitsAreFollowed) {
  std::string failure_reason;
  if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  const test::CompiledSources sources;
  const std::uint64_t first = test::seed_or(100);
  std::vector<std::unique_ptr<Prepared>> kernels;
  std::vector<std::unique_ptr<WideRun>> runs;
  for (int i = 0; i < test::fuzz_count_or(12); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    Random random(seed * 3 + static_cast<std::uint64_t>(GetParam()));
    test::KernelGenerator generator(random, GetParam());
    kernels.push_back(std::make_unique<Prepared>(Prepared{seed, nullptr, generator.kernel(), {}}));
    Prepared& p = *kernels.back();
    const bool varies = std::ranges::any_of(p.kernel.accesses, [](const Access& a) { return (a.axes & 1u) != 0; });
    if (p.kernel.rank < 2 || !varies) continue;
    p.executable = std::make_unique<gpu::CudaExecutable>(p.kernel);
    std::vector<std::int64_t> sizes = generator.sizes();
    sizes[0] = 1;
    runs.push_back(std::make_unique<WideRun>(p, sizes, random));
    interpret(p.kernel, runs.back()->expected.launch());
    runs.back()->start();  // all of them before any is waited for, so that they are compiled together
  }
  EXPECT_FALSE(runs.empty());
  for (const auto& run : runs) {
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(run->prepared.seed) + " FERMATA_FUZZ_COUNT=1\n" +
                 to_string(run->prepared.kernel));
    ASSERT_NO_THROW(run->on_device->fetch());
    ASSERT_EQ(run->expected.difference(run->got), "");
  }
  const auto kept = gpu::kept_sources();
  EXPECT_TRUE(std::ranges::any_of(
      kept, [](const gpu::KernelSource& s) { return s.body.find("const i64 n0 = ") != std::string::npos; }));
}

std::string case_name(const testing::TestParamInfo<KernelShape>& info) {
  return info.param == KernelShape::map ? "map" : info.param == KernelShape::row ? "row" : "column";
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaFuzz, testing::Values(KernelShape::map, KernelShape::row, KernelShape::column),
                         case_name);

}  // namespace
}  // namespace fermata
