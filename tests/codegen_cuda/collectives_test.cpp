// Collectives of CUDA tensors in one process, or with ranks as threads, compared with those of the CPU. Several
// processes are in tests/distributed/ranks/cuda.cpp.
#include <gtest/gtest.h>

#include "codegen_cuda/runtime/device.h"
#include "fermata/cuda.h"
#include "fermata/distributed.h"
#include "fermata/mesh.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

class CudaCollectives : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }
  static void expect_those_of_the_cpu() {
    const distributed::Group world = distributed::world();
    const Shape shape{2 * world.size(), 3 * world.size()};
    for (const test::CollectiveCase& c : test::collective_cases(world))
      for (const DType dtype : {DType::boolean, DType::i16, DType::bf16, DType::f32}) {
        if (!test::takes(c, dtype)) continue;
        const Tensor x = test::operand_of_rank(world.rank(), shape, dtype);
        EXPECT_TRUE(test::is_same(c.call(x.to(cuda())).to(cpu()), c.call(x))) << c.name << " " << name(dtype);
      }
  }
  const ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, CudaCollectives, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(CudaCollectives, OfOneRank) { expect_those_of_the_cpu(); }

TEST_P(CudaCollectives, OfThreadsGoThroughTheHost) {
  distributed::simulate(3, [](int) {
    const ModeGuard mode(GetParam());
    expect_those_of_the_cpu();
  });
}

}  // namespace
}  // namespace fermata
