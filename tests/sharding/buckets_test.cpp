// Collectives that the partitioner writes, joined to buckets.
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;

/// Gradients of a few layers, of which the processes have parts of a batch.
std::vector<Tensor> gradients_of_layers(const Mesh& mesh) {
  manual_seed(7);
  std::vector<Tensor> parameters;
  Tensor x = shard(randn({12, 8}), mesh, {"data"}).sync();
  for (int i = 0; i < 6; ++i) {
    Tensor w = (randn({8, 8}) * 0.4).sync();
    parameters.push_back(w.requires_grad(true));
  }
  for (const Tensor& w : parameters) x = tanh(matmul(x, w));
  x.sum().backward();
  std::vector<Tensor> gradients;
  for (const Tensor& w : parameters) gradients.push_back(w.grad());
  sync(gradients);
  return gradients;
}

class DisabledPasses {
 public:
  explicit DisabledPasses(std::vector<std::string> names) { set_disabled_passes(std::move(names)); }
  ~DisabledPasses() { set_disabled_passes({}); }
};

TEST(ShardedBuckets, GradientsAreOneCallWithTheSameBits) {
  std::vector<std::vector<float>> joined, single;
  std::uint64_t calls = 0;
  const auto run = [&](std::vector<std::vector<float>>& all) {
    distributed::simulate(3, [&](int rank) {
      const ModeGuard mode(Mode::compiled);
      const std::uint64_t before = partition_counts().collectives;
      const std::vector<Tensor> gradients = gradients_of_layers(Mesh({{"data", 3}}));
      if (rank != 0) return;
      calls = partition_counts().collectives - before;
      for (const Tensor& g : gradients) all.push_back(g.to_vector<float>());
    });
  };
  run(joined);
  EXPECT_EQ(calls, 1u);
  {
    const DisabledPasses none({"bucket_collectives"});
    run(single);
    EXPECT_EQ(calls, 6u);
  }
  EXPECT_EQ(joined, single);
}

TEST(ShardedBuckets, ExplainNamesThem) {
  distributed::simulate(2, [&](int) {
    const ModeGuard mode(Mode::compiled);
    const Mesh mesh({{"data", 2}});
    const Tensor x = shard(ones({4, 8}), mesh, {"data"});
    const std::string text = explain({x.sum({0}), exp(x).sum({0})});
    EXPECT_THAT(text, HasSubstr("sum of the partial results of sum (bucket 1)\n"));
    EXPECT_THAT(text, HasSubstr("2 in total, in one call, 64 B sent by each process\n"));
    EXPECT_THAT(text, HasSubstr("concat("));
  });
}

/// Processes other than the first add zeros instead of what an update adds to, and join the same calls all the same.
TEST(ShardedBuckets, AreTheSameOnAllProcesses) {
  distributed::simulate(2, [&](int) {
    const ModeGuard mode(Mode::compiled);
    const test::CheapTransfers cheap;
    manual_seed(1);
    const Mesh mesh({{"data", 2}});
    const Tensor whole = randn({8, 4}).sync(), index = remainder(arange(8), 4).sync();
    const auto f = [&](const Tensor& x, const Tensor& at) {
      const Tensor sums = x.sum({0}), table = index_add(expand_dims(sums, 0) * ones({4, 1}), at, x, 0);
      return std::vector<Tensor>{table, exp(x).sum({0}), table.sum({0}) * sums};
    };
    const std::vector<Tensor> want = f(whole, index),
                              got = f(shard(whole, mesh, {"data"}), shard(index, mesh, {"data"}));
    sync(got);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(test::difference(want[i], got[i]), "") << i;
  });
}

}  // namespace
}  // namespace fermata
