// Memory, streams, devices, recorded runs, deferred errors, the cache on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "codegen_cuda/executable.h"
#include "codegen_cuda/findings.h"
#include "codegen_cuda/listing.h"
#include "codegen_cuda/runtime/kernels.h"
#include "dispatch/backend.h"
#include "dispatch/dump.h"
#include "dispatch/kernel_cache.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message;

class CudaRuntime : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, CudaRuntime, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

std::vector<float> floats(const Tensor& x) { return x.to_vector<float>(); }

TEST_P(CudaRuntime, ElementsGoThereAndBack) {
  const Tensor x = tensor({1.0f, -2.0f, 3.5f});
  EXPECT_EQ(device(x.to(cuda())), cuda());
  EXPECT_THAT(floats(x.to(cuda()).to(BackendKey::cpu)), ElementsAre(1, -2, 3.5f));
  EXPECT_THAT(floats(zeros({0, 3}).to(cuda()) + 1), ElementsAre());
  EXPECT_EQ((tensor(2.0f).to(cuda()) * 4).item<float>(), 8);
  EXPECT_THAT(floats(x.to(cuda()) * tensor(2.0f)), ElementsAre(2, -4, 7));  // a 0-d tensor of the CPU meets any device
}

TEST_P(CudaRuntime, MemoryHasALimitAndTheEngineGoesOn) {
  trim_cuda_cache();
  const std::size_t before = set_cuda_memory_limit(cuda_memory().live_bytes + (std::size_t{4} << 20));
  const Tensor x = ones({1000}).to(cuda());
  const std::string text = message<OutOfMemoryError>([&] { zeros({3000, 1000}, DType::f32, cuda()).sync(); });
  EXPECT_THAT(text, HasSubstr("FM3002 OutOfMemoryError: cuda:0: cannot allocate a buffer of 11.4 MiB\n  device "));
  EXPECT_THAT(text, HasSubstr("hint   free tensors, work on smaller parts, or raise FERMATA_CUDA_MEMORY_LIMIT"));
  EXPECT_EQ(sum(x + 1).item<float>(), 2000);
  set_cuda_memory_limit(before);
  EXPECT_EQ(sum(ones({3000, 1000}, DType::f32, cuda())).item<float>(), 3e6f);
}

TEST_P(CudaRuntime, FreedMemoryIsUsedAgain) {
  gpu::Allocator& allocator = gpu::current_device().allocator();
  const bool before = allocator.set_caching(true);
  trim_cuda_cache();
  const auto live = cuda_memory().live_bytes;
  void* first = nullptr;
  {
    const Tensor x = ones({5000}).to(cuda());
    first = x.node()->storage.load()->data;
    EXPECT_GE(cuda_memory().live_bytes, live + 20000);
  }
  EXPECT_EQ(cuda_memory().live_bytes, live);
  EXPECT_GE(cuda_memory().cached_bytes, 20000u);
  EXPECT_EQ(ones({5000}).to(cuda()).node()->storage.load()->data, first);
  EXPECT_GE(trim_cuda_cache(), 20000u);
  EXPECT_EQ(cuda_memory().cached_bytes, 0u);
  allocator.set_caching(before);
}

TEST_P(CudaRuntime, StreamsAndThreads) {
  const Tensor x = ones({300}).to(cuda());
  const CudaStream stream;
  Tensor y;
  {
    const CudaStreamGuard guard(stream);
    y = exp(x * 0) + x;
    y.sync();
  }
  stream.synchronize();
  EXPECT_EQ(sum(y * 2).item<float>(), 1200);
  float other = 0;
  std::thread([&] {
    const CudaStream mine;
    const CudaStreamGuard guard(mine);
    other = sum(y + 1).item<float>();
  }).join();
  EXPECT_EQ(other, 900);
}

TEST_P(CudaRuntime, NodesOwnFunctionsThatRunThere) {
  const Tensor x = tensor({1.0f, 2.0f}).to(cuda()), w = tensor({2.0f, 3.0f}).to(cuda());
  for (const float k : {1.0f, 5.0f}) {
    const Tensor element = tensor(k);  // of the CPU
    const auto [last, all] = scan(
        [=](const Tensor& s, const Tensor& u) {
          const Tensor next = cond(
              sum(s) < 20, [=](const Tensor& a) { return a * w + element; }, [](const Tensor& a) { return a - 1; }, s);
          return std::pair(next, next + u);
        },
        x, ones({3}, DType::f32, cuda()));
    const Tensor grown = while_loop([](const Tensor& a) { return fermata::all(a < 20); },
                                    [=](const Tensor& a) { return a * w + element; }, x);
    EXPECT_EQ(floats(last), k == 1 ? (std::vector<float>{6, 21}) : (std::vector<float>{18, 37}));
    EXPECT_EQ(floats(all),
              k == 1 ? (std::vector<float>{4, 8, 8, 23, 7, 22}) : (std::vector<float>{8, 12, 20, 39, 19, 38}));
    EXPECT_EQ(floats(grown), k == 1 ? (std::vector<float>{7, 22}) : (std::vector<float>{19, 38}));
  }
}

TEST_P(CudaRuntime, DevicesHaveAnIndex) {
  EXPECT_EQ(cuda(), cuda(0));
  if (cuda_device_count() < 2) GTEST_SKIP() << "one device";
  const Tensor x = tensor({1.0f, 2.0f}), first = x.to(cuda(0)), second = x.to(cuda(1));
  EXPECT_EQ(device(first), cuda(0));
  EXPECT_EQ(device(second), cuda(1));
  EXPECT_EQ(to_string(second.device()), "cuda:1");
  EXPECT_THAT(floats(second), ElementsAre(1, 2));  // read from where it is
  EXPECT_EQ(device(second.to(cuda(0))), cuda(0));
  EXPECT_THAT(floats(second.to(cuda(0)) + first), ElementsAre(2, 4));
  for (const Tensor& made : {zeros({2}, DType::f32, cuda(1)), full({2}, 3, DType::f32, cuda(1)), iota({2}, 0, cuda(1)),
                             rand({2}, DType::f32, cuda(1)), empty({2}, DType::f32, cuda(1)), ones_like(second)})
    EXPECT_EQ(device(made), cuda(1));
  const CudaDeviceGuard guard(1);
  EXPECT_EQ(cuda(), cuda(1));
  EXPECT_THAT(floats(second + ones({2}, DType::f32, cuda())), ElementsAre(2, 3));
  EXPECT_EQ(device(second + 1), cuda(1));
  EXPECT_THAT(message<DeviceError>([&] { x.to(cuda(99)); }), HasSubstr("FM1406 DeviceError: to: no device cuda:99"));
}

TEST_P(CudaRuntime, AGuardOfTheDeviceKeepsTheStream) {
  const CudaStream stream;
  const CudaStreamGuard chosen(stream);
  DeviceUnits& all = *backend(BackendKey::cuda)->units();
  void* const queue = all.current_queue();
  EXPECT_NE(queue, nullptr);
  for (int number = 0; number < cuda_device_count(); ++number) {
    { const CudaDeviceGuard guard(number); }
    EXPECT_EQ(all.current_queue(), queue) << "after device " << number;
  }
}

TEST_P(CudaRuntime, SeveralDevices) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "one device";
  const Tensor here = ones({4}).to(cuda());
  Tensor there;
  {
    const CudaDeviceGuard guard(1);
    there = ones({4}).to(cuda()) * 3;
    EXPECT_THAT(floats(there), ElementsAre(3, 3, 3, 3));
    EXPECT_THAT(message<DeviceError>([&] { (here + 1).sync(); }),
                HasSubstr("FM1407 DeviceError: cuda: an operand is not on device 1"));
  }
  EXPECT_THAT(message<DeviceError>([&] { (there + 1).sync(); }),
              HasSubstr("FM1407 DeviceError: cuda: an operand is not on device 0"));
  EXPECT_THAT(floats(here + 1), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(message<DeviceError>([&] { const CudaDeviceGuard none(99); }),
            "FM1406 DeviceError: CudaDeviceGuard: no device 99; there are " + std::to_string(cuda_device_count()) +
                "\n  at   HERE");
}

TEST_P(CudaRuntime, PositionsOutOfRangeNameTheirCall) {
  const Tensor x = ones({4, 3}).to(cuda()), at = tensor({1, 9}).to(cuda());
  Tensor taken = take(x, at, 0);
  EXPECT_EQ(message<IndexError>([&] { floats(taken); }).substr(0, 148),
            "FM1204 IndexError: take: position 9 leaves axis 0 of size 4\n"
            "  x     f32[4, 3]   axis 0 is 4\n"
            "  index i64[2]      element 1 is 9\n"
            "  at    codegen_cuda/");
  EXPECT_EQ(floats(take(x, tensor({1, -1}).to(cuda()), 0)).size(), 6u);
  EXPECT_THAT(message<IndexError>([&] {
                index_add(x, tensor({-7}).to(cuda()), ones({1, 3}).to(cuda()), 0).sync();
              }),
              HasSubstr("FM1204 IndexError: index_add: position -7 leaves axis 0 of size 4"));
  // The plan that this line makes serves the next one, which is to be named.
  EXPECT_EQ(floats(gather(x, tensor({{0, 1, -4}}).to(cuda()), 0)).size(), 3u);
  const Tensor places = tensor({{0, 1, 4}}).to(cuda());
  EXPECT_EQ(message<IndexError>([&] { floats(gather(x, places, 0)); }),
            "FM1204 IndexError: gather: position 4 leaves axis 0 of size 4\n"
            "  x     f32[4, 3]   axis 0 is 4\n"
            "  index i64[1, 3]   element 2 is 4\n"
            "  at    HERE");
  EXPECT_THAT(message<IndexError>([&] {
                floats(scatter_add(x, places, ones({1, 3}).to(cuda()), 0));
              }),
              HasSubstr("FM1204 IndexError: scatter_add: position 4 leaves axis 0 of size 4"));
}

TEST_P(CudaRuntime, WhatHasNoKernelRunsOnTheCpu) {
  const auto fallbacks = [] {
    for (const auto& [reason, count] : stats().sync_reasons)
      if (reason == "CPU fallback for a device without a kernel") return count;
    return std::uint64_t{0};
  };
  const Tensor x = tensor({{4.0f, 2.0f}, {2.0f, 3.0f}}), there = x.to(cuda());
  {
    const ModeGuard compiled(Mode::compiled);
    EXPECT_THAT(explain(linalg::cholesky(there) + 1), HasSubstr("cholesky         -> on_cpu   call step"));
  }
  const std::uint64_t before = fallbacks();
  const Tensor factor = linalg::cholesky(there + 0);
  EXPECT_EQ(device(factor), cuda());
  EXPECT_EQ(floats(factor), floats(linalg::cholesky(x)));
  EXPECT_EQ(fallbacks() - before, 1u);
  // In a plan that runs again on the same buffers, and in a dtype that CUDA has no kernels for.
  auto f = compile([](const Tensor& a) { return sum(linalg::inv(a * 2) + 1, {1}); });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(floats(f(there)), floats(f(x)));
  const Tensor z = complex(x, x * 2);
  const auto of_complex = [](const Tensor& c, const Tensor& a) {
    return floats(real(where(c > 2, a * a, 3 - a)));  // chosen by a, not by the condition or the number
  };
  EXPECT_EQ(of_complex(there, z.to(cuda())), of_complex(x, z));
  EXPECT_THAT(message<ValueError>([&] { floats(linalg::cholesky(-there)); }), HasSubstr("cholesky"));
}

TEST_P(CudaRuntime, GradientsComeBack) {
  Tensor x = tensor({1.0f, 2.0f});
  x.requires_grad(true);
  sum(square(x.to(cuda())) * 3).backward();
  EXPECT_EQ(device(x.grad()), BackendKey::cpu);
  EXPECT_THAT(floats(x.grad()), ElementsAre(6, 12));
}

TEST(CudaCompile, ReplaysAreRecorded) {
  if (!gpu::on_host_executor()) GTEST_SKIP() << "counts are those of the host executor";
  gpu::Allocator& allocator = gpu::current_device().allocator();
  const bool before = allocator.set_caching(true);  // a steady program has the same addresses each time
  const Tensor x = randn({20, 30}).sync(), w = randn({30, 10}).sync();
  auto f = compile([](const Tensor& a, const Tensor& b) { return sum(exp(matmul(a, b) * 0.01) + 1, {1}); });
  const Tensor wanted = f(x, w), x_there = x.to(cuda()), w_there = w.to(cuda());
  const auto graphs = gpu::host_counts().graph_launches;
  for (int i = 0; i < 6; ++i) EXPECT_LT(test::relative_difference(f(x_there, w_there), wanted), 1e-6);
  EXPECT_GE(gpu::host_counts().graph_launches - graphs, 4u);
  const Tensor other = (x_there * 2).sync();
  EXPECT_LT(test::relative_difference(f(other, w_there), f((x * 2).sync(), w)), 1e-6);
  allocator.set_caching(before);
}

TEST(CudaCompile, CodeIsKeptOnDisk) {
  const gpu::CompilerFunctions* const nvrtc = gpu::nvrtc_library();
  if (nvrtc == nullptr) GTEST_SKIP() << "NVRTC was not found";
  const std::string code =
      gpu::compile_source(*nvrtc, "FM_KERNEL(fm_small, 1, 32) { fm_store((f32*)a.v[0], 1.0f); }\n", "sm_80", nullptr);
  EXPECT_EQ(code.substr(1, 3), "ELF");
  std::string ptx;
  gpu::compile_source(*nvrtc, "FM_KERNEL(fm_small, 1, 32) { fm_store((f32*)a.v[0], 1.0f); }\n", "sm_80", &ptx);
  EXPECT_THAT(ptx, HasSubstr(".entry fm_small"));
  EXPECT_THAT(message<UnsupportedError>([&] { gpu::compile_source(*nvrtc, "no kernel", "sm_80", nullptr); }),
              HasSubstr("FM2102 UnsupportedError: NVRTC cannot compile a kernel for sm_80:\n"));
}

TEST(CudaCompile, PtxKnowsTheLinesOfTheSource) {
  const gpu::CompilerFunctions* const nvrtc = gpu::nvrtc_library();
  if (nvrtc == nullptr) GTEST_SKIP() << "NVRTC was not found";
  const std::string body =
      "FM_KERNEL(fm_lines, 1, 32) {\n  f32 x = fm_load((f32*)a.v[0]);\n  x = x * 3.0f;\n"
      "  fm_store((f32*)a.v[0], x);\n}\n";
  std::string ptx;
  gpu::compile_source(*nvrtc, body, "sm_80", &ptx);
  EXPECT_THAT(ptx, ContainsRegex("ld\\.global[^\n]*// @2\n")) << ptx;
  EXPECT_THAT(ptx, ContainsRegex("mul[^\n]*// @3\n"));
  EXPECT_THAT(ptx, ContainsRegex("st\\.global[^\n]*// @4\n"));
  EXPECT_THAT(ptx, Not(HasSubstr(".loc")));
  EXPECT_THAT(ptx, Not(HasSubstr(".debug_")));
}

TEST(CudaCompile, PacksAreOneAccess) {
  const gpu::CompilerFunctions* const nvrtc = gpu::nvrtc_library();
  if (nvrtc == nullptr) GTEST_SKIP() << "NVRTC was not found";
  for (const auto& [dtype, access] :
       {std::pair{DType::f32, "v4"}, {DType::f16, "v4"}, {DType::f64, "v[24]"}, {DType::u8, "[bu]64"}}) {
    Kernel copy;
    copy.accesses = {{dtype, 1, true, false}, {dtype, 1, true, false}};
    const ValueId x = copy.program.add({.prim = Prim::input, .type = dtype, .index = 0});
    copy.stores = {{1, x}};
    const gpu::CudaExecutable executable(copy);
    std::string ptx;
    gpu::compile_source(*nvrtc, executable.source(gpu::Schedule::map, false), "sm_90", &ptx,
                        gpu::effort_for(gpu::Schedule::map));
    EXPECT_THAT(ptx, ContainsRegex(std::string("ld\\.global\\.") + access)) << name(dtype);
    EXPECT_THAT(ptx, ContainsRegex(std::string("st\\.global\\.") + access)) << name(dtype);
  }
}

TEST(CudaCompile, DumpsShowSourceAndCode) {
  if (!gpu::usable()) GTEST_SKIP() << "without a device there is no architecture to compile for";
  Kernel copy;
  copy.accesses = {{DType::f32, 1, true, false}, {DType::f32, 1, true, false}};
  copy.stores = {{1, copy.program.add({.prim = Prim::input, .type = DType::f32, .index = 0})}};
  const gpu::CudaExecutable executable(copy);
  set_dump("cuda,ptx,sass");
  const KernelListing listing = gpu::list_kernel(copy, executable);
  set_dump("");
  EXPECT_THAT(listing.source, HasSubstr("FM_KERNEL(fm_map_"));
  const bool compiles = gpu::nvrtc_library() != nullptr;
  EXPECT_THAT(listing.ptx, HasSubstr(compiles ? ".entry fm_map_" : "NVRTC was not found"));
  if (!compiles) return;
  EXPECT_THAT(listing.sass,
              ::testing::AnyOf(HasSubstr("STG.E.128"), HasSubstr("neither nvdisasm nor cuobjdump is on the PATH")));
}

TEST(CudaFindings, SayWhatThereIs) {
  if (!gpu::usable()) GTEST_SKIP() << "CudaWithoutDevice says what there is not";
  std::string text;
  for (const BackendFinding& f : gpu::cuda_findings()) text += f.what + ": " + f.found + "\n";
  EXPECT_THAT(
      text,
      ContainsRegex(
          "CUDA driver: .*, for CUDA [0-9.]+\nNVRTC: [0-9.]+, .*\ncuBLASLt: .*\nCUDA device 0: .*, sm_[0-9]+, [0-9]+ multiprocessors, .* GiB\n"));
}

TEST(CudaWithoutDevice, FindingsSayWhatToDo) {
  if (gpu::usable()) GTEST_SKIP() << "there is a device; ctest runs this once more without the host executor";
  const std::vector<BackendFinding> findings = gpu::cuda_findings();
  ASSERT_GE(findings.size(), 2u);
  EXPECT_EQ(findings[0].what, "CUDA driver");
  EXPECT_EQ(findings[1].what, "NVRTC");
  for (const BackendFinding& f : findings) {
    if (!f.found.starts_with("none: ") || f.what == "CUDA devices") continue;
    EXPECT_THAT(f.advice, ContainsRegex("[Ii]nstall ")) << f.what;
  }
}

TEST(CudaWithoutDevice, OneClearError) {
  if (gpu::usable()) GTEST_SKIP() << "there is a device; ctest runs this once more without the host executor";
  EXPECT_FALSE(cuda_available());
  EXPECT_EQ(cuda_device_count(), 0);
  const Tensor x = ones({2});
  const std::string why = "CUDA is not available: ";
  const std::string hint = "\n  hint `fermata doctor` shows what was searched for and how to fix it";
  for (const std::string& text :
       {message<DeviceError>([&] { x.to(cuda()); }), message<DeviceError>([&] { zeros({2}, DType::f32, cuda()); }),
        message<DeviceError>([&] { cuda_synchronize(); }), message<DeviceError>([&] { const CudaStream s; })}) {
    EXPECT_THAT(text, HasSubstr("FM1405 DeviceError: "));
    EXPECT_THAT(text, HasSubstr(why));
    EXPECT_THAT(text, HasSubstr("\n  at   HERE" + hint));
  }
  EXPECT_EQ(sum(x).item<float>(), 2);
}

}  // namespace
}  // namespace fermata
