// Sharded tensors on real processes: programs that the partitioner writes, compared with one process.
#include <fermata/mesh.h>
#include <fermata/modules.h>
#include <fermata/profile.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "passes/pipeline.h"
#include "tests/distributed/ranks/simulation.h"
#include "tests/frontend/close_values.h"

namespace fermata {
namespace {

const distributed::Group& world() { return distributed::world(); }

class WithoutBuckets {
 public:
  WithoutBuckets() { set_disabled_passes({"bucket_collectives"}); }
  ~WithoutBuckets() { set_disabled_passes({}); }
};

/// Gradients of a few layers, of which the ranks have parts of a batch, and how many collectives they took.
std::vector<Tensor> gradients_of_layers(std::uint64_t& calls) {
  const Mesh mesh({{"data", world().size()}});
  manual_seed(7);
  Tensor x = shard(randn({world().size() * 4, 8}), mesh, {"data"}).sync();
  std::vector<Tensor> parameters, gradients;
  for (int i = 0; i < 6; ++i) {
    Tensor w = (randn({8, 8}) * 0.4).sync();
    parameters.push_back(w.requires_grad(true));
  }
  for (const Tensor& w : parameters) x = tanh(matmul(x, w));
  const std::uint64_t before = partition_counts().collectives;
  x.sum().backward();
  for (const Tensor& w : parameters) gradients.push_back(w.grad());
  sync(gradients);
  calls = partition_counts().collectives - before;
  return gradients;
}

TEST(RanksPartitioned, GradientsAreOneCall) {
  const ModeGuard compiled(Mode::compiled);
  std::uint64_t joined = 0, single = 0;
  const std::vector<Tensor> a = gradients_of_layers(joined);
  const WithoutBuckets none;
  const std::vector<Tensor> b = gradients_of_layers(single);
  if (world().size() > 1) {
    EXPECT_EQ(joined, 1u);
    EXPECT_EQ(single, 6u);
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    // MPI adds the elements of more than two ranks in an order that may depend on the size of the call.
    if (world().size() <= 2)
      EXPECT_EQ(a[i].to_vector<float>(), b[i].to_vector<float>());
    else
      EXPECT_EQ(test::difference(b[i], a[i]), "");
  }
}

TEST(RanksPartitioned, CompiledFunctionsJoinTheReductionsThatTheyCall) {
  const ModeGuard compiled(Mode::compiled);
  const auto reduce = [](const std::vector<Tensor>& gradients) {
    std::vector<Tensor> reduced;
    for (const Tensor& g : gradients) reduced.push_back(distributed::all_reduce(g * 2, distributed::Reduction::mean));
    return reduced;
  };
  std::vector<Tensor> gradients;
  for (int i = 1; i < 6; ++i) gradients.push_back(full({i, 3}, static_cast<double>(world().rank() + i)).sync());
  const auto f = compile(reduce);
  std::vector<Tensor> want;
  {
    const WithoutBuckets none;
    want = compile(reduce)(gradients);
  }
  for (int call = 0; call < 3; ++call) {
    const std::vector<Tensor> got = f(gradients);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(want[i].to_vector<float>(), got[i].to_vector<float>()) << i;
  }
  // One rank reads what the others do not: the order of calls is the same.
  const std::vector<Tensor> late = f(gradients);
  if (world().rank() == 0) { EXPECT_EQ(late[4].to_vector<float>().size(), 15u); }
  Profile profile;
  sync(f(gradients));
  const std::string path =
      std::filesystem::temp_directory_path() / ("fermata_ranks_buckets_" + std::to_string(getpid()) + ".json");
  save(profile, path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  const std::string trace = text.str(), name = "\"name\":\"all_reduce\",\"ph\":\"X\"";
  std::size_t calls = 0;
  for (std::size_t at = trace.find(name); at != trace.npos; at = trace.find(name, at + 1)) ++calls;
  EXPECT_EQ(calls, 1u) << trace;
}

TEST(RanksPartitioned, LoopsOfDividedTensorsAndTheirGradients) {
  const ModeGuard compiled(Mode::compiled);
  const std::int64_t n = world().size();
  const Mesh mesh({{"data", n}});
  manual_seed(3);
  const std::vector<Tensor> whole{randn({n * 2, n * 4}).sync(), randn({5, n * 2, 6}).sync(),
                                  (randn({n * 4, n * 4}) * 0.2).sync(), (randn({6, n * 4}) * 0.3).sync()};
  const auto run = [](const std::vector<Tensor>& given) {
    std::vector<Tensor> v;
    for (const Tensor& t : given) v.push_back(t.detach().requires_grad(true));
    auto [last, all] = scan(
        [w = v[2], u = v[3]](const Tensor& h, const Tensor& x) {
          const Tensor next = cond(
              x.sum() > 0, [](const Tensor& a) { return tanh(a); }, [](const Tensor& a) { return a * 0.5; },
              matmul(h, w) + matmul(x, u));
          return std::pair(next, next * 2);
        },
        v[0], v[1]);
    (square(last).mean() + square(all).mean()).backward();
    std::vector<Tensor> results{last.detach(), all.detach()};
    for (const Tensor& t : v) results.push_back(t.grad());
    return results;
  };
  const std::vector<Tensor> want = run(whole);
  sync(want);
  for (const std::vector<AxisSplits>& splits : std::vector<std::vector<AxisSplits>>{
           {{"data"}, {{}, "data"}, {}, {}}, {{{}, "data"}, {{}, {}, {}}, {{}, "data"}, {{}, "data"}}}) {
    std::vector<Tensor> divided;
    for (std::size_t i = 0; i < whole.size(); ++i) divided.push_back(shard(whole[i], mesh, splits[i]).sync());
    const std::vector<Tensor> got = run(divided);
    sync(got);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(test::difference(want[i], got[i]), "") << i;
    const auto again = compile([](const Tensor& h, const Tensor& w) {
      return fori_loop(
          0, 3, [w](const Tensor&, const Tensor& p) { return tanh(matmul(p, w)); }, h);
    });
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(test::difference(again(whole[0], whole[2]), again(divided[0], divided[2])), "");
  }
}

/// The last ranks have fewer elements than others, or none.
TEST(RanksPartitioned, UnevenBlocksTrainAsOneProcess) {
  const std::int64_t n = world().size();
  const Mesh mesh({{"data", n}});
  for (const Mode mode : {Mode::eager, Mode::compiled})
    for (const std::int64_t rows : {n + 1, 2 * n - 1, std::int64_t{1}}) {
      const ModeGuard guard(mode);
      manual_seed(5);
      const Tensor x = randn({rows, 5}).sync(), first = (randn({5, 7}) * 0.4).sync(), second = randn({7, 3}).sync(),
                   classes = randint(0, 3, {rows}).sync();
      const auto train = [&](bool is_divided) {
        const auto place = [&](const Tensor& t, const AxisSplits& splits) {
          return is_divided ? shard(t, mesh, splits) : copy(t);
        };
        const std::vector<Tensor> weights{place(first, {{}, "data"}).requires_grad(true),
                                          place(second, {"data"}).requires_grad(true)};
        const Tensor batch = place(x, {"data"}), labels = place(classes, {"data"});
        optim::Adam adam(weights, {.learning_rate = 0.05});
        std::vector<double> losses;
        for (int i = 0; i < 4; ++i) {
          const Tensor logits = matmul(tanh(matmul(batch, weights[0])), weights[1]);
          const Tensor loss = cross_entropy(logits, labels) + square(logits).max() * 0.01 + logits.mean();
          adam.zero_grad();
          loss.backward();
          adam.step();
          losses.push_back(loss.item<double>());
        }
        if (is_divided) {
          EXPECT_EQ(sharding_of(weights[0]), "[-, data]");
          EXPECT_EQ(sharding_of(weights[1]), "[data, -]");
        }
        return losses;
      };
      const std::vector<double> want = train(false), got = train(true);
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 2e-6 * std::max(1.0, std::abs(want[i]))) << rows << " rows";
    }
}

}  // namespace
}  // namespace fermata
