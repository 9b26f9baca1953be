// The host executor finds what is planted: a missing barrier, an index out of bounds, a divergent barrier, memory that
// nobody has written. And the engine goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen_cuda/irregular/call_source.h"
#include "runtime/device_run.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using gpu::CallSource;
using ::testing::HasSubstr;
using testing::message;

class HostExecutor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpu::on_host_executor()) GTEST_SKIP() << "these errors are those of the host executor";
  }
  /// Starts a kernel with this text on two buffers of 256 floats, as step "planted" of a plan; gives the error.
  static std::string run(const std::string& text) {
    const Tensor x = (full({256}, 1.0f, DType::f32, cuda()) * iota({256}, 0, cuda())).sync();
    const gpu::Workspace out(256 * 4);
    CallSource s("planted");
    s.line("FM_SHARED(shared); f32* const row = (f32*)shared; const int i = threadIdx.x;");
    s.line("const f32* const x = " + s.pointer("const f32", x.node()->storage.load()->data) + ";");
    s.line("f32* const out = " + s.pointer("f32", out.data()) + ";");
    s.line(text);
    const RunSite site{"planted_step", Location::current()};
    const RunSiteGuard guard(site);
    return message<InternalError>([&] { s.launch_blocks(1, 256, 1024), gpu::synchronize(gpu::current_stream()); });
  }
  static void expect_still_works() {
    EXPECT_THAT((tensor({1.0f, 2.0f}).to(cuda()) + 1).to_vector<float>(), ::testing::ElementsAre(2, 3));
  }
};

TEST_F(HostExecutor, RunsWhatIsRight) {
  EXPECT_EQ(
      run("fm_shared_store(row + i, fm_load(x + i)); fm_barrier(); fm_store(out + i, fm_shared_load(row + (i + 37) % 256));"),
      "no error");
}

TEST_F(HostExecutor, FindsAMissingBarrier) {
  // Each thread sees what its neighbor has written, or has not, by the order in which they run.
  const std::string text = run(
      "fm_shared_store(row + i, 0.0f); fm_barrier(); fm_shared_store(row + i, fm_load(x + i)); fm_store(out + i, fm_shared_load(row + (i + 37) % 256));");
  EXPECT_THAT(
      text,
      HasSubstr(
          "FM9101 InternalError: cuda: cuStreamSynchronize failed with CUDA_ERROR_LAUNCH_FAILED: kernel fm_planted_"));
  EXPECT_THAT(text, HasSubstr("the result depends on the order of threads (a missing barrier?)"));
  EXPECT_THAT(text, HasSubstr("step planted_step"));
  EXPECT_THAT(text, HasSubstr("executor_test.cpp:"));
  expect_still_works();
}

TEST_F(HostExecutor, FindsSharedMemoryThatNobodyHasWritten) {
  EXPECT_THAT(run("fm_shared_store(row + i, fm_load(x + i)); fm_store(out + i, fm_shared_load(row + (i + 37) % 256));"),
              HasSubstr("reads uninitialized shared memory: byte 148 of 1024"));
  expect_still_works();
}

TEST_F(HostExecutor, FindsIndicesOutOfBounds) {
  EXPECT_THAT(run("fm_store(out + i, fm_load(x + i + 1));"),
              HasSubstr("thread (255, 0, 0) reads 4 bytes out of bounds: 0 bytes past the end of a buffer of 1024"));
  EXPECT_THAT(run("fm_store(out + i + 3, fm_load(x + i));"),
              HasSubstr("thread (253, 0, 0) writes 4 bytes out of bounds: 0 bytes past the end of a buffer of 1024"));
  EXPECT_THAT(run("fm_shared_store(row + i + 1, fm_load(x + i));"),
              HasSubstr("accesses shared memory out of bounds: byte 1024 of 1024"));
  EXPECT_THAT(run("fm_store((f64*)(out + 1), 1.0);"), HasSubstr("accesses 8 bytes at a misaligned address"));
  expect_still_works();
}

TEST_F(HostExecutor, FindsDivergentBarriers) {
  EXPECT_THAT(run("if (i < 7) fm_barrier(); fm_store(out + i, 1.0f);"),
              HasSubstr("divergent barrier: threads of the block wait at different barriers"));
  EXPECT_THAT(run("if (i % 32 < 5) fm_store(out + i, fm_shuffle(fm_load(x + i), 1));"), HasSubstr("divergent barrier"));
  expect_still_works();
}

TEST_F(HostExecutor, FindsMemoryThatNobodyHasWritten) {
  EXPECT_THAT(run("fm_store(out + i, fm_load(out + i) + 1.0f);"),
              HasSubstr("thread (0, 0, 0) reads 4 uninitialized bytes: byte 0 of a buffer of 1024"));
  expect_still_works();
}

TEST_F(HostExecutor, RunsKernelsWithBarriersInBothOrders) {
  const gpu::HostCounts before = gpu::host_counts();
  const Tensor x = randn({5, 100}).to(cuda());
  for (int i = 0; i < 4; ++i) softmax(x, -1).sync();
  const gpu::HostCounts after = gpu::host_counts();
  EXPECT_EQ(after.reversed_launches - before.reversed_launches, 2u);
  EXPECT_GE(after.launches - before.launches, 4u);
}

TEST_F(HostExecutor, ReportsKernelsThatDoNotCompile) {
  EXPECT_THAT(run("this is no kernel;"), HasSubstr("could not be compiled for the host executor"));
  expect_still_works();
}

}  // namespace
}  // namespace fermata
