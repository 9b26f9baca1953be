// Which stores of a launch go past the caches.
#include "runtime/streaming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "codegen_cpu/jit_compiler.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Access 0 is read, 1 and 2 are stored.
Kernel two_results(std::uint8_t rank) {
  const auto axes = static_cast<std::uint16_t>((1u << rank) - 1);
  Kernel kernel;
  kernel.rank = rank;
  kernel.accesses.assign(3, {.dtype = DType::f32, .axes = axes, .unit_stride = true});
  const ValueId x = kernel.program.add({.prim = Prim::input, .type = DType::f32});
  kernel.stores = {{1, kernel.program.add({.prim = Prim::add, .type = DType::f32, .a = x, .b = x})}, {2, x}};
  verify(kernel);
  return kernel;
}

class Streaming : public testing::Test {
 protected:
  Streaming() : before_(set_stream_threshold(4096)) {}
  ~Streaming() override { set_stream_threshold(before_); }
  StreamedStores streamed(const Kernel& kernel, std::vector<void*> pointers, std::vector<std::int64_t> sizes,
                          std::vector<std::int64_t> strides) {
    return stores_to_stream(kernel,
                            {pointers.data(), sizes.data(), strides.data(), nullptr, nullptr, 0, 1, 0, sizes[0]});
  }
  static void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }  // never followed

 private:
  const std::int64_t before_;
};

TEST_F(Streaming, IsForLargeResults) {
  const Kernel kernel = two_results(1);
  const std::vector<void*> pointers = {at(0x10000), at(0x20000), at(0x30000)};
  EXPECT_EQ(streamed(kernel, pointers, {1023}, {1, 1, 1}), 0u);
  EXPECT_EQ(streamed(kernel, pointers, {1024}, {1, 1, 1}), 3u);
}

TEST_F(Streaming, LeavesOutWhatIsWrittenWhereItWasRead) {
  EXPECT_EQ(streamed(two_results(1), {at(0x10000), at(0x10000), at(0x30000)}, {2048}, {1, 1, 1}), 2u);
}

TEST_F(Streaming, NeedsResultsInStep) {
  const Kernel kernel = two_results(1);
  EXPECT_EQ(streamed(kernel, {at(0x10000), at(0x20004), at(0x30044)}, {2048}, {1, 1, 1}), 3u);
  EXPECT_EQ(streamed(kernel, {at(0x10000), at(0x20004), at(0x30008)}, {2048}, {1, 1, 1}), 1u);
  const Kernel rows = two_results(2);
  const std::vector<void*> pointers = {at(0x10000), at(0x20000), at(0x30000)};
  EXPECT_EQ(streamed(rows, pointers, {4, 1000}, {1000, 1, 1000, 1, 1000, 1}), 3u);
  EXPECT_EQ(streamed(rows, pointers, {4, 1000}, {1000, 1, 1000, 1, 1004, 1}), 1u);
}

TEST_F(Streaming, NeedsSomethingThatIsReadInOrder) {
  Kernel kernel = two_results(1);
  const std::vector<void*> pointers = {at(0x10000), at(0x20000), at(0x30000)};
  kernel.accesses[0].unit_stride = false;
  EXPECT_EQ(streamed(kernel, pointers, {2048}, {7, 1, 1}), 0u);
  kernel.accesses[0].axes = 0;  // one number, to fill with
  EXPECT_EQ(streamed(kernel, pointers, {2048}, {0, 1, 1}), 0u);
}

TEST_F(Streaming, VariantsAreCompiledInTheBackground) {
  std::string failure_reason;
  if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
  const std::string kept = DiskCache::instance().set_directory("");
  const int threads = thread_count();
  const Kernel kernel = two_results(1);
  std::vector<float> x(4096, 3), y(4096), z(4096);
  void* const pointers[] = {x.data(), y.data(), z.data()};
  const std::int64_t size = 4096, strides[] = {1, 1, 1}, offsets[] = {0, 0, 0};
  const KernelLaunch launch{pointers, &size, strides, offsets, nullptr, 0, 1, 0, size};
  for (const int n : {1, 2}) {
    set_thread_count(n);
    const auto executable = JitCompiler::instance().compile(kernel);
    const bool waits = &executable->variant_for(launch) != executable.get();
    EXPECT_EQ(waits, n == 1);  // else it goes on with what is there
    wait_for_background();
    const Executable& variant = executable->variant_for(launch);
    EXPECT_NE(&variant, executable.get());
    variant.launch(launch);
    EXPECT_EQ(y, std::vector<float>(4096, 6));
    EXPECT_EQ(z, x);
  }
  set_thread_count(threads);
  DiskCache::instance().set_directory(kept);
}

TEST_F(Streaming, WideCodeIsForAnyLaunchOnceAKernelHasWorkedEnough) {
  std::string failure_reason;
  if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
  const std::string kept = DiskCache::instance().set_directory("");
  const int threads = thread_count();
  set_thread_count(1);
  Kernel kernel = two_results(1);  // long enough to be narrow at first
  ValueId x = kernel.stores[1].value;
  for (int i = 0; i < 100; ++i)
    x = kernel.program.add(
        {.prim = i % 2 == 0 ? Prim::mul : Prim::add, .type = DType::f32, .a = x, .b = kernel.stores[1].value});
  kernel.stores[0].value = x;
  verify(kernel);
  const auto executable = JitCompiler::instance().compile(kernel);
  std::vector<float> in(1000, 0.75f), y(1000), z(1000), wide(1000);
  void* pointers[] = {in.data(), y.data(), z.data()};
  const std::int64_t size = 1000, much = std::int64_t{1} << 31, strides[] = {1, 1, 1}, offsets[] = {0, 0, 0};
  const KernelLaunch small{pointers, &size, strides, offsets, nullptr, 0, 1, 0, size};
  EXPECT_EQ(&executable->variant_for(small), executable.get());
  executable->launch(small);
  const std::int64_t before = set_stream_threshold(std::int64_t{1} << 40);
  const KernelLaunch large{pointers, &much, strides, offsets, nullptr, 0, 1, 0, much};
  const Executable& variant = executable->variant_for(large);
  EXPECT_NE(&variant, executable.get());
  EXPECT_EQ(&executable->variant_for(small), &variant);
  pointers[1] = wide.data();
  variant.launch(small);
  EXPECT_EQ(wide, y);
  set_stream_threshold(before);
  set_thread_count(threads);
  DiskCache::instance().set_directory(kept);
}

TEST_F(Streaming, LanesLieAcrossShortRowsOnceAKernelHasWorkedEnough) {
  std::string failure_reason;
  if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
  const std::string kept = DiskCache::instance().set_directory("");
  const int threads = thread_count();
  set_thread_count(1);
  Kernel kernel = two_results(2);  // x + x and x, and the product of each row
  kernel.reduced = 2;
  kernel.accesses.push_back({.dtype = DType::f32, .axes = 1});
  Reduction product{.lifted = {kernel.stores[1].value}, .types = {DType::f32}, .identity = {0x3f800000}, .combine = {}};
  Formula& combine = product.combine;
  combine.parameters = {DType::f32, DType::f32};
  for (const std::uint16_t side : {std::uint16_t{0}, std::uint16_t{1}})
    combine.program.add({.prim = Prim::parameter, .type = DType::f32, .index = side});
  combine.results = {combine.program.add({.prim = Prim::mul, .type = DType::f32, .a = 0, .b = 1})};
  kernel.reductions.push_back(product);
  kernel.stores.push_back({3, kernel.program.add({.prim = Prim::reduced, .type = DType::f32, .index = 0})});
  verify(kernel);
  const auto executable = JitCompiler::instance().compile(kernel);
  constexpr std::int64_t kRows = 1000, kLength = 5;
  std::vector<float> x(kRows * kLength), twice(x.size()), same(x.size()), products(kRows);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.5f + static_cast<float>(i % 97) / 64;
  void* pointers[] = {x.data(), twice.data(), same.data(), products.data()};
  const std::int64_t strides[] = {kLength, 1, kLength, 1, kLength, 1, 1, 0}, offsets[4] = {};
  const auto launch_of = [&](const std::int64_t* sizes) {
    return KernelLaunch{pointers, sizes, strides, offsets, nullptr, 0, sizes[0], 0, 1};
  };
  const std::int64_t small[] = {kRows, kLength}, much[] = {std::int64_t{1} << 31, kLength}, longer[] = {kRows, 65};
  EXPECT_EQ(&executable->variant_for(launch_of(small)), executable.get());
  executable->launch(launch_of(small));
  const std::vector<float> wanted = products;
  const Executable& variant = executable->variant_for(launch_of(much), false);
  EXPECT_NE(&variant, executable.get());
  EXPECT_EQ(&executable->variant_for(launch_of(small), false), &variant);
  EXPECT_NE(&executable->variant_for(launch_of(longer), false), &variant);
  std::ranges::fill(products, 0.0f), std::ranges::fill(twice, 0.0f), std::ranges::fill(same, 0.0f);
  variant.launch(launch_of(small));
  EXPECT_EQ(products, wanted);
  EXPECT_EQ(same, x);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(twice[i], 2 * x[i]);
  set_thread_count(threads);
  DiskCache::instance().set_directory(kept);
}

TEST_F(Streaming, IsNotForWhatIsReadAgainSoon) {
  std::string failure_reason;
  if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
  const std::string kept = DiskCache::instance().set_directory("");
  const int threads = thread_count();
  set_thread_count(1);
  const auto executable = JitCompiler::instance().compile(two_results(1));
  std::int64_t size = 64;
  const std::int64_t strides[] = {1, 1, 1}, offsets[] = {0, 0, 0};
  void* const pointers[] = {at(0x10000), at(0x20000), at(0x30000)};
  const KernelLaunch launch{pointers, &size, strides, offsets, nullptr, 0, 1, 0, 64};
  const auto variant = [&](bool may_stream = true) { return &executable->variant_for(launch, may_stream); };
  EXPECT_EQ(variant(), executable.get());
  size = std::int64_t{1} << 32;  // as much work as it takes
  const Executable* const much_used = variant(false);
  EXPECT_NE(much_used, executable.get());
  EXPECT_NE(variant(), much_used);  // streams
  size = 64;
  EXPECT_EQ(variant(), much_used);  // from now on
  set_thread_count(threads);
  DiskCache::instance().set_directory(kept);
}

}  // namespace
}  // namespace fermata
