// Collectives joined to buckets: those that the partitioner writes, and those written by hand.
#include <fermata/control_flow.h>
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <fermata/profile.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

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

// ---- Collectives written by hand, in functions that all ranks run as a whole

using Function = std::function<std::vector<Tensor>(const Tensor&)>;

constexpr int kRanks = 2;

Tensor operand_of(int rank) { return (arange(6, DType::f32) * 0.25 + (1 + 0.5 * rank)).reshape({2, 3}).sync(); }

/// The results of the last rank, after some calls of compile(f).
std::vector<std::vector<float>> results_of_calls(const Function& f, int calls) {
  std::vector<std::vector<float>> results;
  distributed::simulate(kRanks, [&](int rank) {
    const ModeGuard mode(Mode::compiled);
    const Tensor x = operand_of(rank);
    const auto compiled = compile(f);
    for (int i = 0; i < calls; ++i) {
      const std::vector<Tensor> ys = compiled(x);
      sync(ys);
      if (rank != kRanks - 1 || i != calls - 1) continue;
      for (const Tensor& y : ys) results.push_back(y.to_vector<float>());
    }
  });
  return results;
}

std::uint64_t all_reduces(const Function& f, int calls) {
  Profile profile;
  static_cast<void>(results_of_calls(f, calls));
  profile.stop();
  std::uint64_t found = 0;
  for (const ProfileStep& step : profile.summary().steps)
    if (step.name.starts_with("all_reduce")) found += step.runs;
  return found;
}
/// The all_reduces that a rank makes in a replay of compile(f).
std::uint64_t all_reduces_of_replay(const Function& f) { return (all_reduces(f, 4) - all_reduces(f, 3)) / kRanks; }

/// A replay makes so many calls, and gives the bits of one that makes them all.
void expect_calls(const Function& f, std::uint64_t joined, std::uint64_t single) {
  EXPECT_EQ(all_reduces_of_replay(f), joined);
  const std::vector<std::vector<float>> results = results_of_calls(f, 3);
  const DisabledPasses none({"bucket_collectives"});
  EXPECT_EQ(all_reduces_of_replay(f), single);
  EXPECT_EQ(results_of_calls(f, 3), results);
}

Tensor sum_of_ranks(const Tensor& x) { return distributed::all_reduce(x); }

TEST(Buckets, CallsOfACompiledFunctionAreJoinedPastALoop) {
  expect_calls(
      [](const Tensor& x) {
        const Tensor a = sum_of_ranks(x), b = sum_of_ranks(x * 2);
        const Tensor looped = fori_loop(
            0, 3, [](const Tensor&, const Tensor& s) { return tanh(s) + 1; }, x);
        return std::vector<Tensor>{a, b, looped, sum_of_ranks(exp(x))};
      },
      1, 3);
}

TEST(Buckets, CallsInFunctionsOfControlFlowAreJoined) {
  const auto step = [](const Tensor&, const Tensor& s) { return sum_of_ranks(s * 0.25) + sum_of_ranks(tanh(s)); };
  expect_calls(
      [&](const Tensor& x) {
        const Tensor a = sum_of_ranks(x), looped = fori_loop(0, 3, step, x);
        return std::vector<Tensor>{a, looped, sum_of_ranks(exp(x))};
      },
      1 + 3 * 1, 2 + 3 * 2);
  const auto both = [](const Tensor& t) { return sum_of_ranks(t + 1) * sum_of_ranks(t); };
  expect_calls(
      [&](const Tensor& x) {
        const Tensor predicate = sum_of_ranks(x.sum()) > 0;
        return std::vector<Tensor>{cond(
            predicate, both, [](const Tensor& t) { return t; }, x)};
      },
      2, 3);
}

/// What the functions capture are the tensors themselves: a replay sees what has been written to them.
TEST(Buckets, FunctionsOfControlFlowReadWhatTheyCapture) {
  distributed::simulate(kRanks, [&](int rank) {
    const ModeGuard mode(Mode::compiled);
    const Tensor x = operand_of(rank), ten = full({2, 3}, 10.0f).sync();
    Tensor w = full({2, 3}, 0.5f).sync();
    w.requires_grad(true);
    const auto f = compile([&](const Tensor& t) {
      return fori_loop(
          0, 2, [&](const Tensor&, const Tensor& s) { return sum_of_ranks(s * w) + sum_of_ranks(s + ten) * 0.125; }, t);
    });
    const auto wanted = [&] {
      const ModeGuard eager(Mode::eager);
      Tensor s = x;
      for (int i = 0; i < 2; ++i) s = sum_of_ranks(s * w.detach()) + sum_of_ranks(s + ten) * 0.125;
      return s.to_vector<float>();
    };
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(f(x).detach().to_vector<float>(), wanted()) << i;
      const NoGradGuard no_grad;
      w.assign(w * 1.5f);
    }
  });
}

TEST(Buckets, GradientsThroughLoopsAreThoseOfSingleCalls) {
  expect_calls(
      [](const Tensor& x) {
        const auto loss = [](const Tensor& t) {
          const auto step = [](const Tensor&, const Tensor& s) {
            return tanh(sum_of_ranks(s * 0.25)) + sum_of_ranks(s * s) * 0.125;
          };
          return fori_loop(0, 2, step, t).sum();
        };
        return std::vector<Tensor>{grad(loss)(x)};
      },
      6, 12);
}

TEST(Buckets, CallsThatMustKeepTheirPlaceDivideThem) {
  expect_calls(
      [](const Tensor& x) {
        const Tensor a = sum_of_ranks(x);
        distributed::barrier();
        const Tensor b = sum_of_ranks(x * 2);
        return std::vector<Tensor>{a, b, sum_of_ranks(x * 3)};
      },
      2, 3);
  const auto meets = [](const Tensor&, const Tensor& s) {
    distributed::barrier();
    return s * 0.5;
  };
  expect_calls(
      [&](const Tensor& x) {
        const Tensor a = sum_of_ranks(x), looped = fori_loop(0, 2, meets, x);
        const Tensor b = sum_of_ranks(x * 2);
        return std::vector<Tensor>{a, looped, b, sum_of_ranks(x * 3)};
      },
      2, 3);
}

}  // namespace
}  // namespace fermata
