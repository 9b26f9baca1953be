// Collectives that a program calls beside those of the partitioner: ranks read the results of the former where they
// like, and those of the latter together, and make all of them in one order.
#include <fermata/control_flow.h>
#include <fermata/mesh.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/environment.h"
#include "tests/distributed/ranks/simulation.h"

namespace fermata {
namespace {

const distributed::Group& world() { return distributed::world(); }

/// A random program of plain values that are reduced by hand and divided ones. All draws are from `shared` but where
/// this rank reads a plain value, which are from `own`. What the plain values have to be is simulated: each rank begins
/// with a multiple of one value, and all that is done to them is linear.
class MixedProgram {
 public:
  MixedProgram(std::uint64_t seed, const Mesh& mesh, Mode mode)
      : shared_(seed), own_(seed * 1000 + static_cast<std::uint64_t>(world().rank()) + 1), mesh_(mesh), mode_(mode) {}

  bool run() {
    const ModeGuard mode(mode_);
    manual_seed(shared_() % 1000);
    whole_ = randn({world().size() * 2, 6}, DType::f64).sync();
    weights_ = (randn({6, 6}, DType::f64) * 0.4).sync();
    divided_ = shard(whole_, mesh_, {"data"}).sync();
    plain_ = {full({5}, static_cast<double>(world().rank() + 1), DType::f64)};
    expected_ = {{}};
    for (std::int64_t r = 0; r < world().size(); ++r) expected_[0].push_back(static_cast<double>(r + 1));
    bool same = true;
    for (int i = 0; i < 20; ++i) {
      switch (shared_() % 6) {
        case 0:
        case 1: reduce_by_hand(); break;
        case 2: reduce_in_a_loop(); break;
        case 3: reduce_divided(); break;
        default: same = same && step(); break;
      }
      if (own_() % 3 == 0) same = same && is_expected(own_() % plain_.size());
    }
    for (std::size_t i = 0; i < plain_.size(); ++i) same = same && is_expected(i);
    return same && allclose(divided_, whole_, 1e-9, 1e-9);
  }

 private:
  void reduce_by_hand() {
    const std::size_t i = shared_() % plain_.size();
    plain_.push_back(distributed::all_reduce(plain_[i] / 2, distributed::Reduction::mean) + 1);
    expected_.push_back(std::vector<double>(expected_[i].size(), mean(expected_[i]) / 2 + 1));
  }
  void reduce_in_a_loop() {
    const std::size_t i = shared_() % plain_.size();
    plain_.push_back(fori_loop(
        0, 2,
        [](const Tensor&, const Tensor& t) { return distributed::all_reduce(t, distributed::Reduction::mean) * 0.5; },
        plain_[i]));
    expected_.push_back(std::vector<double>(expected_[i].size(), mean(expected_[i]) / 4));
  }
  /// Of what takes collectives itself: a call that all ranks have to make after those.
  void reduce_divided() {
    divided_.sync();
    const Tensor x = divided_.sum().reshape({1}), y = whole_.sum().reshape({1});
    plain_.push_back(distributed::all_reduce(x - y, distributed::Reduction::max) * ones({5}, DType::f64));
    expected_.push_back(std::vector<double>(static_cast<std::size_t>(world().size()), 0.0));
  }
  /// Several reductions of divided values, read by all ranks.
  bool step() {
    const std::vector<Tensor> got = shared_() % 3 == 0 ? compiled_(std::vector<Tensor>{divided_, weights_})
                                                       : gradients({divided_, weights_}),
                              want = gradients({whole_, weights_});
    bool same = true;
    for (std::size_t i = 0; i < got.size(); ++i) same = same && allclose(got[i], want[i], 1e-9, 1e-9);
    divided_ = tanh(divided_ + got[1] * 0.1), whole_ = tanh(whole_ + want[1] * 0.1);
    if (shared_() % 2 == 0) divided_.sync();
    return same;
  }
  static std::vector<Tensor> gradients(const std::vector<Tensor>& of) {
    const Tensor y = tanh(matmul(of[0], of[1]));
    return {matmul(transpose(of[0]), y), y.sum({0}), exp(y).sum({0})};
  }
  bool is_expected(std::size_t i) {
    const double value = expected_[i][static_cast<std::size_t>(world().rank())];
    return allclose(plain_[i], full({5}, value, DType::f64), 1e-9, 1e-9);
  }
  static double mean(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
  }

  std::mt19937_64 shared_, own_;
  const Mesh& mesh_;
  Mode mode_;
  Tensor whole_, divided_, weights_;
  std::vector<Tensor> plain_;
  std::vector<std::vector<double>> expected_;  // by rank
  CompiledFunction<std::vector<Tensor> (*)(const std::vector<Tensor>&)> compiled_ = compile(&gradients);
};

TEST(RanksMixedOrder, RanksReadPlainValuesWhereTheyLike) {
  const std::uint64_t first = environment_number("FERMATA_SEED", 1),
                      count = environment_number("FERMATA_FUZZ_COUNT", 20);
  const Mesh mesh({{"data", world().size()}});
  for (const Mode mode : {Mode::compiled, Mode::eager})
    for (std::uint64_t seed = first; seed < first + count; ++seed)
      EXPECT_TRUE(MixedProgram(seed, mesh, mode).run()) << "FERMATA_SEED=" << seed << " FERMATA_FUZZ_COUNT=1";
}

/// What one rank has read is pending on the others when all of them read a divided value.
TEST(RanksMixedOrder, PendingCallsComeBeforeThoseOfThePartitioner) {
  const ModeGuard compiled(Mode::compiled);
  const Mesh mesh({{"data", world().size()}});
  const Tensor x = shard(ones({world().size() * 2, 3}), mesh, {"data"}).sync();
  for (int reader = 0; reader < world().size(); ++reader) {
    const Tensor a = distributed::all_reduce(full({3}, world().rank() + 1, DType::f32)), b = x.sum({0}),
                 c = exp(x).sum({0});
    if (world().rank() == reader) { EXPECT_EQ(a.to_vector<float>().size(), 3u); }
    EXPECT_EQ(b.to_vector<float>()[0], static_cast<float>(world().size() * 2));
    EXPECT_GT(c.to_vector<float>()[0], 0.0f);
    EXPECT_EQ(a.to_vector<float>()[0], static_cast<float>(world().size() * (world().size() + 1)) / 2);
  }
}

/// Calls inside of functions keep their place as well.
TEST(RanksMixedOrder, CompiledLoopsComeAfterPendingCalls) {
  const ModeGuard compiled(Mode::compiled);
  const auto loop = compile([](const Tensor& t) {
    return fori_loop(
        0, 3, [](const Tensor&, const Tensor& p) { return distributed::all_reduce(p, distributed::Reduction::mean); },
        t);
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor mine = full({4}, world().rank(), DType::f32).sync();
    const Tensor a = distributed::all_reduce(mine, distributed::Reduction::max), b = loop(mine);
    if (world().rank() == i % world().size()) {
      EXPECT_EQ(b.to_vector<float>()[0], (static_cast<float>(world().size()) - 1) / 2);
    }
    EXPECT_EQ(a.to_vector<float>()[0], static_cast<float>(world().size()) - 1);
  }
}

}  // namespace
}  // namespace fermata
