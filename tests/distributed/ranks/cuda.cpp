// Collectives of CUDA tensors, on the host executor: the same as those of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/host/executor.h"
#include "fermata/cuda.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

using test::collective_cases, test::CollectiveCase, test::is_same, test::kDTypes, test::operand_of_rank;
using test::operands_of_ranks, test::Reduction, test::takes;

const distributed::Group& world() { return distributed::world(); }
template <class T> const T& own(const std::vector<T>& all) { return all[static_cast<std::size_t>(world().rank())]; }

class RanksCuda : public ::testing::TestWithParam<Mode> {
 protected:
  /// Each rank of a machine has a device of its own.
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
    here_.emplace(static_cast<int>(distributed::local_rank()) % cuda_device_count());
  }
  static Tensor there(const Tensor& x) { return x.to(cuda()); }
  static Tensor back(const Tensor& x) {
    EXPECT_EQ(device(x), cuda());
    EXPECT_EQ(cuda().index(), distributed::local_rank() % cuda_device_count());
    return x.to(cpu());
  }
  ModeGuard mode_{GetParam()};
  std::optional<CudaDeviceGuard> here_;
};
INSTANTIATE_TEST_SUITE_P(Modes, RanksCuda, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(RanksCuda, EveryCollectiveInEveryDType) {
  const std::uint64_t before = gpu::on_host_executor() ? gpu::host_counts().nccl_calls : 0;
  const Shape shape{2 * world().size(), 3 * world().size()};
  for (const CollectiveCase& c : collective_cases(world()))
    for (const DType dtype : kDTypes) {
      if (!takes(c, dtype) || is_complex(dtype)) continue;
      const std::vector<Tensor> xs = operands_of_ranks(world().size(), shape, dtype);
      EXPECT_TRUE(is_same(back(c.call(there(own(xs)))), own(c.simulate(xs)))) << c.name << " " << name(dtype);
    }
  if (gpu::on_host_executor()) { EXPECT_GT(gpu::host_counts().nccl_calls, before + 200); }
}

TEST_P(RanksCuda, OperandsOfAnyStridesAndSizes) {
  const std::int64_t n = world().size();
  for (const CollectiveCase& c : collective_cases(world())) {
    std::vector<Tensor> xs;
    for (std::int64_t r = 0; r < n; ++r)
      xs.push_back(transpose(slice(operand_of_rank(r, {6 * n, 2 * n}, DType::f32).sync(), 0, kNone, kNone, -2)));
    EXPECT_TRUE(is_same(back(c.call(transpose(there(transpose(own(xs)))))), own(c.simulate(xs)))) << c.name;
  }
  EXPECT_EQ(distributed::all_reduce(there(zeros({0, 3}))).shape(), (Shape{0, 3}));
  EXPECT_EQ(back(distributed::all_gather(there(full({1}, 1)))).size(0), n);
}

/// The greatest and the least as the engine has them: NaN of any rank wins, and zeros have an order.
TEST_P(RanksCuda, ExtremesOfUnusualNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    std::vector<Tensor> xs;
    for (std::int64_t r = 0; r < world().size(); ++r) {
      const double sign = r % 2 == 0 ? 1 : -1;
      xs.push_back(
          astype(tensor(std::vector<double>{sign, sign * inf, r == 0 ? std::nan("") : 1, -sign * 1e-3, 5}), dtype));
    }
    const auto expected = [&](bool greatest) {
      const Tensor all = stack(xs, 0);
      return greatest ? max(all, {0}) : min(all, {0});
    };
    for (const bool greatest : {false, true}) {
      const Tensor y = back(distributed::all_reduce(there(own(xs)), greatest ? Reduction::max : Reduction::min));
      EXPECT_TRUE(allclose(y, expected(greatest), 0.0, 0.0, true)) << name(dtype);
    }
  }
}

TEST_P(RanksCuda, GradientsGroupsAndBuckets) {
  const Tensor x = there(operand_of_rank(world().rank(), {4}, DType::f32)).sync();
  Tensor leaf = (x * 1).sync();
  leaf.requires_grad(true);
  sum(square(distributed::all_reduce(leaf))).backward();
  const Tensor all = distributed::all_reduce(x);
  EXPECT_TRUE(allclose(back(leaf.grad()), back(all * 2.0 * static_cast<double>(world().size()))));
  const std::int64_t rank = world().rank();
  const distributed::Group part = world().split(rank % 2, -rank);
  std::int64_t wanted = 0;
  for (std::int64_t r = rank % 2; r < world().size(); r += 2) wanted += r;
  EXPECT_EQ(back(distributed::all_reduce(there(full({}, rank)), Reduction::sum, part)).item<std::int64_t>(), wanted);
  const std::vector<Tensor> several = distributed::all_reduce({x, x * 2, x * 3});
  EXPECT_TRUE(is_same(back(several[2]), back(all * 3)));
}

TEST_P(RanksCuda, FunctionsAreReplayedWithCallsOfBothDevices) {
  const auto step = compile([](const Tensor& x, const Tensor& w) {
    const Tensor y = distributed::all_reduce(x * w + 1, Reduction::mean);
    return distributed::all_gather(tanh(y) * x, 0) + 1;
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = operand_of_rank(world().rank(), {3, 2}, DType::f32, i).sync(), w = full({2}, i, DType::f32).sync();
    EXPECT_TRUE(allclose(back(step(there(x), there(w))), step(x, w)));
    EXPECT_EQ(distributed::all_reduce(full({}, 1)).item<std::int64_t>(), world().size());
  }
}

TEST_P(RanksCuda, MessagesGoThroughTheHost) {
  const std::int64_t n = world().size(), rank = world().rank(), next = (rank + 1) % n, before = (rank + n - 1) % n;
  distributed::send(there(operand_of_rank(rank, {4, 3}, DType::f32)), next);
  EXPECT_TRUE(is_same(distributed::receive({4, 3}, DType::f32, before), operand_of_rank(before, {4, 3}, DType::f32)));
}

/// By itself: a group in which a call has failed makes no others.
TEST(RanksCudaOnlyLate, ARankThatDoesNotComeIsAnError) {
  const Tensor x = ones({4}).to(cuda()).sync();
  EXPECT_EQ(distributed::all_reduce(x).to(cpu()).to_vector<float>()[0], static_cast<float>(world().size()));
  if (world().rank() != 0) return;
  const auto code = [&] {
    try {
      distributed::all_reduce(x).to(cpu()).sync();
    } catch (const CollectiveError& error) { return error.code(); }
    return 0;
  };
  EXPECT_EQ(code(), 7006);
  EXPECT_EQ(code(), 7008);
  EXPECT_EQ((x + 1).to(cpu()).to_vector<float>(), std::vector<float>(4, 2));
}

}  // namespace
}  // namespace fermata
